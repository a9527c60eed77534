//! What the engine says: chunks that tell their place, so that any byte lost, doubled or
//! misplaced is seen.

use gateway_tests::client::RawClient;
use gateway_tests::wait::soon;

use super::scripted::{END, EVENTS, Exchange, chunk};

/// An answer: chunk by chunk, the same whenever it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    /// Different stories have no chunk in common.
    pub(crate) seed: u64,
    pub(crate) chunks: usize,
    pub(crate) length: Length,
}

/// Bytes of a chunk's content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Exactly(usize),
    /// From the first to the second, differently for each chunk.
    Between(usize, usize),
}

impl Story {
    /// As a language model tells it.
    pub(crate) fn of(seed: u64, chunks: usize) -> Self {
        Self { seed, chunks, length: Length::Between(200, 400) }
    }

    /// The content of a chunk: an event whose text only this story has, only here.
    pub(crate) fn content(&self, number: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(self.seed << 32 | number as u64);
        let length = match self.length {
            Length::Exactly(length) => length,
            Length::Between(least, most) => random.usize(least..=most),
        };
        let mut event = format!("data: {{\"s\":{},\"n\":{number},\"t\":\"", self.seed).into_bytes();
        let end = b"\"}\n\n";
        let text = length.saturating_sub(event.len() + end.len());
        // Eight letters at a time: this is built without optimisation.
        for _ in 0..text.div_ceil(8) {
            let letters = (random.u64(..) & 0x0f0f_0f0f_0f0f_0f0f) | 0x6060_6060_6060_6060;
            event.extend_from_slice(&letters.to_le_bytes());
        }
        event.truncate(event.len() - (8 - text % 8) % 8);
        event.extend_from_slice(end);
        event
    }

    /// A chunk as it stands on the wire.
    pub(crate) fn frame(&self, number: usize) -> Vec<u8> {
        chunk(&self.content(number))
    }

    /// The whole body as it stands on the wire.
    pub(crate) fn body(&self) -> Vec<u8> {
        let frames = (0..self.chunks).flat_map(|number| self.frame(number));
        frames.chain(END.iter().copied()).collect()
    }

    /// Takes the request's body and answers: the head, each chunk in a segment of its own
    /// if the network lets it, and the end.
    pub(crate) async fn tell(&self, exchange: &mut Exchange) {
        exchange.body().await;
        self.tell_answer(exchange).await;
    }

    /// As [`Story::tell`], when the request was read already.
    pub(crate) async fn tell_answer(&self, exchange: &mut Exchange) {
        exchange.send(EVENTS).await;
        for number in 0..self.chunks {
            exchange.send(&self.frame(number)).await;
        }
        exchange.send(END).await;
    }

    /// An answer of which every chunk is heard before the next one is told.
    pub(crate) async fn tell_in_step(&self, exchange: &mut Exchange, client: &mut RawClient) {
        exchange.body().await;
        exchange.send(EVENTS).await;
        self.hear_head_and(client, 0).await;
        for number in 0..self.chunks {
            exchange.send(&self.frame(number)).await;
            self.hear_chunk(client, number).await;
        }
        exchange.send(END).await;
        self.hear_rest(client, self.chunks).await;
    }

    /// Reads an answer and compares every byte of it.
    pub(crate) async fn hear(&self, client: &mut RawClient) {
        self.hear_head_and(client, 0).await;
        self.hear_rest(client, 0).await;
    }

    /// Reads the head and this many chunks.
    pub(crate) async fn hear_head_and(&self, client: &mut RawClient, chunks: usize) {
        let head = soon(client.head()).await.unwrap();
        assert_eq!(head.status, 200);
        for number in 0..chunks {
            self.hear_chunk(client, number).await;
        }
    }

    /// Reads from a chunk to the end.
    pub(crate) async fn hear_rest(&self, client: &mut RawClient, first: usize) {
        for number in first..self.chunks {
            self.hear_chunk(client, number).await;
        }
        let end = soon(client.take(END.len())).await.unwrap();
        assert_eq!(end, END, "after the last chunk of {self:?}");
    }

    /// Reads one chunk and compares it.
    pub(crate) async fn hear_chunk(&self, client: &mut RawClient, number: usize) {
        let expected = self.frame(number);
        let heard = soon(client.take(expected.len())).await;
        let heard = heard.unwrap_or_else(|error| panic!("chunk {number} of {self:?}: {error}"));
        assert!(
            heard == expected,
            "chunk {number} of {self:?} is\n{}\ninstead of\n{}",
            String::from_utf8_lossy(&heard),
            String::from_utf8_lossy(&expected)
        );
    }
}
