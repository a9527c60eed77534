//! House rules for files: how long, and what they must not say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::none_of;
use crate::machine;

/// Lines a source file may have. A file whose purpose needs an "and" is two files.
const LONGEST: usize = 400;

/// Directories under which everyone's machine has things: naming them says nothing
/// about one machine.
const COMMON: &[&str] =
    &["/", "/home", "/mnt", "/opt", "/src", "/srv", "/tmp", "/usr/local", "/usr/src", "/var/tmp"];

/// Where package clients keep the addresses of their registries.
const CLIENTS: &[&str] = &[
    ".cargo/config.toml",
    ".npmrc",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    "/etc/pip.conf",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
];

pub(super) fn file_length() -> Result<()> {
    let mut faults = Vec::new();
    for file in tracked("*.rs")? {
        let lines = read(&file)?.lines().count();
        if lines > LONGEST {
            faults.push(format!("{}: {lines} lines, at most {LONGEST}", file.display()));
        }
    }
    none_of(&faults)
}

/// Nothing names a place that exists on one machine only: this checkout, the home
/// directory, or the mirrors its package clients are set up with.
pub(super) fn words() -> Result<()> {
    let forbidden: Vec<String> = places().into_iter().chain(registries()).collect();
    let mut faults = Vec::new();
    for file in tracked("*")? {
        let ours = file.extension().is_none_or(|extension| extension != "lock");
        // What is not text cannot say anything.
        let Some(text) = ours.then(|| read(&file).ok()).flatten() else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = forbidden.iter().find(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{}: names `{word}`", file.display(), number + 1));
            }
        }
    }
    none_of(&faults)
}

/// Files that git knows, relative to the workspace.
pub(super) fn tracked(pattern: &str) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(machine::workspace()).args(["ls-files", "-z", "--", pattern]);
    let files = machine::output(&mut git, "cannot list the files")?;
    let files = files.split_terminator('\0').map(PathBuf::from);
    // A file that was removed is still known until the removal is committed.
    Ok(files.filter(|file| machine::workspace().join(file).is_file()).collect())
}

/// Text of a file of the workspace.
pub(super) fn read(file: &Path) -> Result<String> {
    let file = machine::workspace().join(file);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

fn places() -> Vec<String> {
    let workspace = machine::workspace();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let places = [Some(workspace.clone()), workspace.parent().map(Path::to_owned), home];
    let places = places.into_iter().flatten().filter(|place| is_of_one_machine(place));
    places.map(|place| format!("{}/", place.display())).collect()
}

fn is_of_one_machine(place: &Path) -> bool {
    !COMMON.iter().any(|common| Path::new(common) == place)
}

fn registries() -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut hosts = BTreeSet::new();
    for client in CLIENTS {
        // Joining an absolute path keeps it.
        let place = home.join(client);
        let inside = fs::read_dir(&place).into_iter().flatten().flatten().map(|file| file.path());
        for file in inside.chain([place.clone()]) {
            hosts.extend(hosts_in(&fs::read_to_string(file).unwrap_or_default()));
        }
    }
    hosts.into_iter().collect()
}

/// Hosts of the addresses in `text` that have a dot or a port, that is, not `localhost`.
fn hosts_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split("//").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c));
        let host = &rest[..end.unwrap_or(rest.len())];
        let loopback = host.starts_with("127.") || !host.contains('.');
        (!loopback).then(|| host.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_settings_of_package_clients() {
        let text = "registry = \"sparse+https://mirror.example.org/index/\"\n// see below\n\
                    proxy=http://127.0.0.1:3128\ndeb http://deb.example.net:80/debian stable main";
        let hosts: Vec<String> = hosts_in(text).collect();
        assert_eq!(hosts, ["mirror.example.org", "deb.example.net"]);
    }

    #[test]
    fn a_directory_that_everyone_has_may_be_named() {
        assert!(!is_of_one_machine(Path::new("/tmp")));
        assert!(is_of_one_machine(Path::new("/home/someone")));
    }

    #[test]
    fn this_file_is_tracked() {
        assert!(tracked("*.rs").unwrap().contains(&PathBuf::from("xtask/src/main.rs")));
    }
}
