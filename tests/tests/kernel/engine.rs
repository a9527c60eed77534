//! The engine as a process: killed while it writes.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use gateway_tests::client::RawClient;
use gateway_tests::net::{Network, Room};
use gateway_tests::wait::{eventually, soon};
use socket2::SockRef;

use super::ends::assert_unfinished;
use super::on_every_path;
use super::process::{self, Process};
use super::scripted::{END, EVENTS};
use super::site::{Datapath, Site, asked_by, request_by};
use super::story::Story;

on_every_path!(an_engine_that_is_killed_while_it_writes_leaves_no_whole_answer);

/// Whose answers end; those of others never do.
const PATIENT: u64 = 100;

fn story_for(user: u64) -> Story {
    Story::of(user, if user >= PATIENT { 300 } else { usize::MAX })
}

#[test]
#[ignore = "the engine of other tests, which start it as a process"]
fn the_engine() {
    let Some(addr) = process::input() else { return };
    let listener = TcpListener::bind(addr).unwrap();
    process::listening(listener.local_addr().unwrap());
    for stream in listener.incoming() {
        thread::spawn(|| answer_all(&stream.unwrap()));
    }
}

/// Answers one request after the other, each chunk by a call of its own, which waits until
/// there is room for all of it.
fn answer_all(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_send_buffer_size(32 * 1024)?;
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if line == "\r\n" {
                break;
            }
        }
        if length == 0 {
            // The listing that the gateway asks for by itself.
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body)?;
        let story = story_for(asked_by(&body));
        stream.write_all(EVENTS)?;
        for number in 0..story.chunks {
            stream.write_all(&story.frame(number))?;
        }
        stream.write_all(END)?;
    }
}

/// When the engine is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// While the clients read all they get.
    Flowing,
    /// When its calls wait, because the clients read no more.
    Waiting,
}

const STREAMS: u64 = 4;
const HEARD: usize = 200;

fn an_engine_that_is_killed_while_it_writes_leaves_no_whole_answer(path: Datapath) {
    let Some(net) = Network::for_test(1) else { return };
    // So that the engine soon waits when nobody reads, also where everything is emulated.
    for buffers in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        net.gateway.set(buffers, "4096 16384 65536").unwrap();
    }
    let pod = Room::new(&net.pods[0].namespace, 1).unwrap();
    let start = |addr: &str| Process::start(pod.namespace(), "engine::the_engine", addr);
    let mut engine = start(&SocketAddr::new(path.engine(&net), 0).to_string());
    let (front, addr) = (path.front(&net), engine.addr);
    let room = Room::new(&net.pods[0].namespace, 1).unwrap();
    let Some(site) = Site::before(path, net, front, room, addr) else { return };
    site.play(async {
        for killed in [Killed::Flowing, Killed::Waiting, Killed::Flowing, Killed::Waiting] {
            let mut clients = Vec::new();
            for user in 0..STREAMS {
                let client = match killed {
                    Killed::Flowing => site.connect().await,
                    Killed::Waiting => site.connect_narrow().await,
                };
                clients.push((story_for(user), ask(client, user).await));
            }
            for (story, client) in &mut clients {
                story.hear_head_and(client, HEARD).await;
            }
            if let Killed::Waiting = killed {
                eventually(|| calls_that_wait(&engine) == STREAMS as usize).await;
            }
            engine.signal(libc::SIGKILL);
            for (story, mut client) in clients {
                // A reset says it, too.
                let rest = soon(client.rest()).await.unwrap_or_default();
                assert_broken_off(story, &rest, killed);
            }
            site.gateway.idle().await;
            drop(engine);
            engine = start(&addr.to_string());
            let mut client = ask(site.connect().await, PATIENT).await;
            story_for(PATIENT).hear(&mut client).await;
        }
    });
    site.assert_taken(path);
}

async fn ask(mut client: RawClient, user: u64) -> RawClient {
    client.send(&request_by(user)).await.unwrap();
    client
}

/// Checks that whole chunks in their order are followed by less than one.
fn assert_broken_off(story: Story, rest: &[u8], killed: Killed) {
    let (mut number, mut at) = (HEARD, 0);
    let mut frame = story.frame(number);
    while rest[at..].starts_with(&frame) {
        at += frame.len();
        number += 1;
        frame = story.frame(number);
    }
    assert_unfinished(&rest[at..], &frame, &format!("{killed:?}, after {number} chunks"));
}

/// Threads of the engine that sleep in a send call.
fn calls_that_wait(engine: &Process) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", engine.id())).unwrap();
    let waits = |task: io::Result<fs::DirEntry>| {
        // "running", or the number of the system call and its arguments. A thread may be
        // gone meanwhile.
        let call = fs::read_to_string(task.unwrap().path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&libc::SYS_sendto.to_string())
    };
    tasks.map(waits).filter(|waits| *waits).count()
}
