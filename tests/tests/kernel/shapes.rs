//! Chunks of every shape, cut into packets at every place.

use gateway_tests::wait::soon;

use super::scripted::{EVENTS, chunk};
use super::site::{Datapath, Site};
use super::story::{Length, Story};
use super::{on_every_path, size};

on_every_path!(
    a_whole_answer_in_one_write_arrives_as_it_was_sent,
    chunks_cut_at_odd_places_arrive_as_they_were_sent,
    huge_and_tiny_chunks_arrive_as_they_were_sent,
    size_lines_of_every_kind_arrive_as_they_were_sent,
);

fn a_whole_answer_in_one_write_arrives_as_it_was_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        for (seed, length) in [(1, 30), (2, 300), (3, 3000)] {
            let story = Story { length: Length::Exactly(length), ..Story::of(seed, 3000) };
            let mut client = site.ask().await;
            let mut exchange = engine.exchange().await;
            exchange.body().await;
            let answer = [EVENTS, &story.body()].concat();
            tokio::join!(exchange.send(&answer), story.hear(&mut client));
        }
    });
}

fn chunks_cut_at_odd_places_arrive_as_they_were_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let mut random = fastrand::Rng::with_seed(3);
    site.play(async {
        // Cuts in every part of the framing, and runs of several chunks.
        for (seed, most) in [(1, 3), (2, 40), (3, 700), (4, 5000)] {
            let story = Story::of(seed, size(150, 5000));
            let mut client = site.ask().await;
            let mut exchange = engine.exchange().await;
            let body = story.body();
            let telling = async {
                exchange.body().await;
                exchange.send(EVENTS).await;
                let mut rest = body.as_slice();
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(random.usize(1..=most).min(rest.len()));
                    exchange.send(piece).await;
                    rest = after;
                    // Otherwise the pieces would be put together again before they leave.
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(telling, story.hear(&mut client));
        }
    });
}

fn huge_and_tiny_chunks_arrive_as_they_were_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        let lengths = [(1, 30, 2000), (2, 1400, 1600), (3, 65_000, 20), (4, 1 << 20, 4)];
        for (seed, length, chunks) in lengths {
            let story = Story { seed, chunks, length: Length::Exactly(length) };
            site.hear(&mut engine, story).await;
        }
        let mixed = Story { seed: 5, chunks: 200, length: Length::Between(30, 20_000) };
        site.hear(&mut engine, mixed).await;
    });
}

fn size_lines_of_every_kind_arrive_as_they_were_sent(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        let mut client = site.ask().await;
        let mut exchange = engine.exchange().await;
        exchange.body().await;
        exchange.send(EVENTS).await;
        soon(client.head()).await.unwrap();
        let story = Story::of(1, 50);
        for number in 0..50 {
            let content = story.content(number);
            let length = content.len();
            let lines = [
                format!("{length:X}\r\n"),
                format!("{length:08x}\r\n"),
                format!("{length:016x}\r\n"),
                format!("{length:x};last=\"{number}\"\r\n"),
                format!("{length:x};a;b=c;and-more-than-the-kernel-reads\r\n"),
            ];
            for line in lines {
                // Between others of the usual kind, on which the kernel may have gone on.
                let framed = [line.as_bytes(), &content, b"\r\n"].concat();
                for piece in [chunk(&content), framed, chunk(&content)] {
                    exchange.send(&piece).await;
                    let heard = soon(client.take(piece.len())).await.unwrap();
                    assert!(heard == piece, "{line:?}: {}", String::from_utf8_lossy(&heard));
                }
            }
        }
        let end = b"0\r\nx-trailer: yes\r\n\r\n";
        exchange.send(end).await;
        assert_eq!(soon(client.take(end.len())).await.unwrap(), end);
    });
}
