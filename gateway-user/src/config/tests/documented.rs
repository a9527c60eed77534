//! The reference is complete.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;
use crate::args::Arguments;

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");

/// Keys of a dump.
fn keys(yaml: &str) -> impl Iterator<Item = String> {
    let keys = yaml.lines().filter_map(|line| line.trim_start_matches([' ', '-']).split_once(':'));
    keys.map(|(key, _)| key.to_owned()).collect::<Vec<_>>().into_iter()
}

/// Keys that an unknown one is answered with.
fn known(yaml: &str) -> impl Iterator<Item = String> {
    let message = refused(yaml).to_string();
    let (_, known) = message.split_once("expected one of ").unwrap();
    known.split(", ").map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[test]
fn every_key_is_in_the_reference() {
    let mut written: BTreeSet<String> = keys(&parse(&pool("")).to_yaml()).collect();
    // A dump leaves out what is off by default.
    for more in ["flowControl: {}", "predicted: {}", "sessionAffinity: {}", "weights: { lru: 1 }"] {
        written.extend(keys(&parse(&pool(more)).to_yaml()));
    }
    for wrong in ["x: 1", "flowControl: { x: 1 }", "metrics: { mapping: { x: 1 } }"] {
        written.extend(known(&pool(wrong)));
    }
    written.extend(known("x: 1"));
    written.extend(known("auth: { apiKeys: [ { x: 1 } ] }"));
    assert!(written.len() > 90, "{written:?}");
    for key in written {
        assert!(REFERENCE.contains(&key), "`{key}` is not in docs/configuration.md");
    }
}

#[test]
fn every_flag_is_in_the_reference() {
    let command = Arguments::command();
    let run = command.find_subcommand("run").unwrap();
    for flag in run.get_arguments().filter_map(clap::Arg::get_long) {
        let written = REFERENCE.contains(&format!("`--{flag}`"));
        assert!(written || matches!(flag, "help" | "version"), "--{flag}");
    }
}
