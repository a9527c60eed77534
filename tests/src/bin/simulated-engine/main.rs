//! Starts simulated model servers and tells where they listen.
//!
//! One line per server goes to standard output once all of them listen, for example
//! `fast http://127.0.0.1:40123`. The process ends on SIGINT and SIGTERM, and with
//! `--exit-with-stdin` when its standard input closes, so that it never outlives
//! the program that started it.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Parser;
use gateway_tests::server::Simulated;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

mod args;

use args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut servers = Vec::new();
    for options in args.servers()? {
        let (name, bind) = (options.name.clone(), options.bind);
        let started = Simulated::start(options).await;
        servers.push(started.with_context(|| format!("cannot start {name} on {bind}"))?);
    }
    let mut out = std::io::stdout().lock();
    for server in &servers {
        writeln!(out, "{} {}", server.options().name, server.url())?;
    }
    out.flush()?;
    drop(out);
    wait_for_the_end(if args.exit_with_stdin { Stdin::EndsUs } else { Stdin::Ignored }).await
}

/// What the end of standard input means.
#[derive(Clone, Copy)]
enum Stdin {
    EndsUs,
    Ignored,
}

async fn wait_for_the_end(stdin: Stdin) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let closed = async {
        let mut sink = [0; 1024];
        match stdin {
            Stdin::EndsUs => while matches!(tokio::io::stdin().read(&mut sink).await, Ok(1..)) {},
            Stdin::Ignored => std::future::pending().await,
        }
    };
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
        () = closed => {}
    }
    // Returning would wait for the thread that reads standard input.
    std::process::exit(0);
}
