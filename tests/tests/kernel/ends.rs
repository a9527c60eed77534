//! Ends, orderly (FIN) and abrupt (RST), of either side and at every stage: the other side
//! learns of it, no answer looks whole that is not, and the next one is not harmed.

use std::time::{Duration, Instant};

use gateway_tests::wait::soon;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::on_every_path;
use super::scripted::{END, EVENTS, Exchange, Scripted};
use super::site::{Datapath, Site, request};
use super::story::Story;

on_every_path!(
    a_client_that_ends_at_any_stage_takes_its_request_along,
    a_client_that_leaves_a_flood_stops_the_engine_within_a_second,
    a_client_that_closes_half_its_connection_stops_the_engine,
    a_server_that_closes_after_the_last_chunk_has_answered,
    a_server_that_ends_at_any_stage_leaves_no_whole_answer,
);

/// How soon one side must know that the other is gone.
pub(crate) const WITHIN: Duration = Duration::from_secs(1);

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Orderly,
    Abruptly,
}

impl Ends {
    const BOTH: [Self; 2] = [Self::Orderly, Self::Abruptly];

    fn end(self, stream: TcpStream) {
        if let Self::Abruptly = self {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
    }
}

/// Waits until the engine's connection is closed, which must not take long.
pub(crate) async fn closed_at_once(exchange: &mut Exchange, gone: Instant, what: &str) {
    exchange.closed().await;
    assert!(gone.elapsed() < WITHIN, "{what}: the engine knew after {:?}", gone.elapsed());
}

/// Where a client stands when it ends.
#[derive(Clone, Copy, Debug)]
enum Heard {
    /// Nothing; it has sent this many bytes of its request, not all.
    Asked(usize),
    /// Nothing, but the engine has the request.
    Nothing,
    Head,
    /// So many chunks; the engine goes on.
    Chunks(usize),
}

fn a_client_that_ends_at_any_stage_takes_its_request_along(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let whole = request().len();
    let stages = [
        Heard::Asked(0),
        Heard::Asked(10),
        Heard::Asked(whole - 5),
        Heard::Nothing,
        Heard::Head,
        Heard::Chunks(1),
        Heard::Chunks(7),
        Heard::Chunks(300),
    ];
    let story = Story::of(1, 1000);
    site.play(async {
        for (ends, stage) in
            Ends::BOTH.into_iter().flat_map(|ends| stages.map(|stage| (ends, stage)))
        {
            let mut client = site.connect().await;
            let what = format!("{ends:?} after {stage:?}");
            if let Heard::Asked(bytes) = stage {
                client.send(&request()[..bytes]).await.unwrap();
                ends.end(client.into_stream());
            } else {
                client.send(&request()).await.unwrap();
                let mut exchange = engine.exchange().await;
                exchange.body().await;
                match stage {
                    Heard::Head => {
                        exchange.send(EVENTS).await;
                        soon(client.head()).await.unwrap();
                    }
                    Heard::Chunks(chunks) => {
                        exchange.send(EVENTS).await;
                        for number in 0..chunks {
                            exchange.send(&story.frame(number)).await;
                        }
                        story.hear_head_and(&mut client, chunks).await;
                    }
                    Heard::Asked(_) | Heard::Nothing => {}
                }
                let gone = Instant::now();
                ends.end(client.into_stream());
                closed_at_once(&mut exchange, gone, &what).await;
            }
            site.gateway.idle().await;
        }
        site.hear(&mut engine, story).await;
    });
}

fn a_client_that_leaves_a_flood_stops_the_engine_within_a_second(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = Story::of(1, usize::MAX);
    site.play(async {
        for ends in Ends::BOTH {
            let mut client = site.ask().await;
            let mut exchange = engine.exchange().await;
            let flood = site.pod.spawn(async move {
                exchange.body().await;
                exchange.send(EVENTS).await;
                let frames: Vec<u8> = (0..1000).flat_map(|number| story.frame(number)).collect();
                exchange.send(&frames).await;
                // Until the gateway closes; the bytes only have to be well framed.
                while exchange.try_send(&story.frame(1000)).await {}
                Instant::now()
            });
            story.hear_head_and(&mut client, 1000).await;
            let gone = Instant::now();
            ends.end(client.into_stream());
            let noticed = soon(flood).await.unwrap();
            assert!(noticed - gone < WITHIN, "{ends:?}: {:?}", noticed - gone);
            site.gateway.idle().await;
        }
        site.hear(&mut engine, Story::of(2, 100)).await;
    });
}

fn a_client_that_closes_half_its_connection_stops_the_engine(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let story = Story::of(1, 200);
    site.play(async {
        let mut client = site.ask().await;
        let mut exchange = engine.exchange().await;
        exchange.body().await;
        exchange.send(EVENTS).await;
        for number in 0..100 {
            exchange.send(&story.frame(number)).await;
        }
        story.hear_head_and(&mut client, 100).await;
        let gone = Instant::now();
        client.finish_sending().await.unwrap();
        closed_at_once(&mut exchange, gone, "half closed").await;
        drop(client);
        site.hear(&mut engine, story).await;
    });
}

fn a_server_that_closes_after_the_last_chunk_has_answered(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    site.play(async {
        let mut client = site.connect().await;
        // The client's connection lives on; the engine's is a new one each time.
        for seed in 0..20 {
            client.send(&request()).await.unwrap();
            let story = Story::of(seed, 100);
            let mut exchange = engine.exchange().await;
            let telling = async {
                story.tell(&mut exchange).await;
                drop(exchange);
            };
            tokio::join!(telling, story.hear(&mut client));
            site.gateway.idle().await;
        }
    });
}

/// What a server has sent of its answer when it ends.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// So many bytes of the head.
    Head(usize),
    /// The head, so many whole chunks, and so many bytes after them.
    Chunks(usize, usize),
}

fn a_server_that_ends_at_any_stage_leaves_no_whole_answer(path: Datapath) {
    let Some((site, mut engine)) = Site::new(path) else { return };
    let stages = [
        Told::Head(0),
        Told::Head(20),
        Told::Head(EVENTS.len()),
        // Within the size line, within its line end, within the content.
        Told::Chunks(0, 1),
        Told::Chunks(1, 0),
        Told::Chunks(3, 4),
        Told::Chunks(50, 100),
        Told::Chunks(300, 0),
        Told::Chunks(300, 1),
        Told::Chunks(300, 250),
    ];
    site.play(async {
        for (ends, stage) in
            Ends::BOTH.into_iter().flat_map(|ends| stages.map(|stage| (ends, stage)))
        {
            let story = Story::of(1, 301);
            break_off(&site, &mut engine, story, ends, stage).await;
            site.gateway.idle().await;
        }
        // Within the very end.
        for (ends, bytes) in
            Ends::BOTH.into_iter().flat_map(|ends| [(ends, 1), (ends, 3), (ends, 4)])
        {
            let story = Story::of(1, 300);
            break_off(&site, &mut engine, story, ends, Told::Chunks(300, bytes)).await;
            site.gateway.idle().await;
        }
        site.hear(&mut engine, Story::of(2, 300)).await;
    });
}

/// The engine sends part of an answer and ends; the client must be able to tell.
async fn break_off(site: &Site, engine: &mut Scripted, story: Story, ends: Ends, stage: Told) {
    let what = format!("{ends:?} after {stage:?} of {}", story.chunks);
    let mut client = site.ask().await;
    let mut exchange = engine.exchange().await;
    exchange.body().await;
    let (sent, boundary) = match stage {
        Told::Head(bytes) => (EVENTS[..bytes].to_vec(), None),
        Told::Chunks(chunks, more) => {
            let whole: Vec<u8> = (0..chunks).flat_map(|number| story.frame(number)).collect();
            let next = if chunks < story.chunks { story.frame(chunks) } else { END.to_vec() };
            ([EVENTS, &whole, &next[..more]].concat(), Some(whole.len()))
        }
    };
    exchange.send(&sent).await;
    if let (Ends::Abruptly, Told::Chunks(chunks, _)) = (ends, stage) {
        // A reset overtakes what was sent before it; let that arrive.
        story.hear_head_and(&mut client, chunks).await;
        ends.end(exchange.stream);
        let rest = soon(client.rest()).await.unwrap_or_default();
        assert_unfinished(&rest, &sent[EVENTS.len() + boundary.unwrap_or(0)..], &what);
        return;
    }
    ends.end(exchange.stream);
    let Ok(head) = soon(client.head()).await else { return };
    let Some(boundary) = boundary else {
        // A whole head may have been passed on already.
        assert!(head.status == 502 || sent.len() == EVENTS.len(), "{what}: {}", head.status);
        if head.status == 200 {
            assert_unfinished(&soon(client.rest()).await.unwrap_or_default(), &[], &what);
        }
        return;
    };
    let rest = soon(client.rest()).await.unwrap_or_default();
    let (whole, rest) = rest.split_at_checked(boundary).unwrap_or_else(|| {
        panic!("{what}: {} bytes came of {boundary} in whole chunks", rest.len())
    });
    assert!(whole == &sent[EVENTS.len()..EVENTS.len() + boundary], "{what}: chunks were changed");
    assert_unfinished(rest, &sent[EVENTS.len() + boundary..], &what);
}

/// After whole chunks may come part of what was cut off, or an error event, and no end.
pub(crate) fn assert_unfinished(rest: &[u8], cut_off: &[u8], what: &str) {
    let text = String::from_utf8_lossy(rest);
    assert!(!rest.ends_with(END), "{what}: the answer looks whole: {text}");
    let told = text.contains("\"error\":{");
    assert!(told || cut_off.starts_with(rest), "{what}: the client got {text}");
}
