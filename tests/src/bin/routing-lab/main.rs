//! Runs scenarios of the routing lab and reports.
//!
//! Tables go to standard output, rows to a JSON file, and beside it pictures of the first
//! seed and a page with everything. Nothing but the times in the last line depends on the
//! machine: the same arguments give the same rows.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use gateway_tests::lab::catalogue::{self, Entry};
use gateway_tests::lab::contenders;
use gateway_tests::lab::policy::Contender;

mod args;
mod campaign;
mod origin;
mod progress;

use args::Args;
use campaign::Campaign;

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        list();
        return Ok(());
    }
    Campaign::new(&args, &chosen(&args)?, &policies(&args)?)?.run()
}

fn list() {
    for entry in catalogue::entries() {
        println!("{:32} {}", entry.name, entry.about);
    }
    let names: Vec<&str> = contenders().map(|contender| contender.name).collect();
    println!("\npolicies: {}", names.join(", "));
}

fn chosen(args: &Args) -> Result<Vec<&'static Entry>> {
    if args.scenario == "all" {
        return Ok(catalogue::entries().collect());
    }
    let find = |name: &str| {
        let found = catalogue::entries().find(|entry| entry.name == name);
        found.with_context(|| format!("unknown scenario `{name}`; --list names them all"))
    };
    args.scenario.split(',').map(find).collect()
}

fn policies(args: &Args) -> Result<Vec<Contender>> {
    let all: Vec<Contender> = contenders().collect();
    for name in &args.policies {
        if !all.iter().any(|contender| contender.name == name) {
            bail!("unknown policy `{name}`; --list names them all");
        }
    }
    let wanted = |contender: &Contender| {
        args.policies.is_empty() || args.policies.iter().any(|name| name == contender.name)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// Writes a file as a whole or not at all: an interruption leaves the one before.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
