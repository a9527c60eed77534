//! Documents say what is true: their links lead somewhere, and every dependency has
//! its reason.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::none_of;
use super::text::{read, tracked};
use crate::machine;

/// Where each dependency's reason stands.
const REASONS: &str = "docs/dependencies.md";

pub(super) fn links() -> Result<()> {
    let root = machine::workspace();
    let mut faults = Vec::new();
    for file in tracked("*.md")? {
        let beside = root.join(file.parent().unwrap_or(Path::new("")));
        let text = read(&file)?;
        for (number, line) in text.lines().enumerate() {
            for link in local_links(line) {
                if !beside.join(link).exists() {
                    faults.push(format!("{}:{}: no {link}", file.display(), number + 1));
                }
            }
        }
    }
    none_of(&faults)
}

pub(super) fn reasons() -> Result<()> {
    let manifest: toml::Table = read(Path::new("Cargo.toml"))?.parse().context("Cargo.toml")?;
    let text = read(Path::new(REASONS))?;
    let mut faults = Vec::new();
    for (name, dependency) in dependencies(&manifest) {
        // Our own crates need no reason.
        let ours = dependency.get("path").is_some();
        if !ours && !has_reason(&text, name) {
            faults.push(format!("{REASONS}: no line that starts with `| {name} |`"));
        }
    }
    none_of(&faults)
}

/// The list of metrics is what the daemon says.
pub(super) fn metrics() -> Result<()> {
    const LIST: &str = "docs/metrics.md";
    let arguments = ["run", "--quiet", "--locked", "--package", "inference-gateway", "metrics"];
    let told = machine::output(&mut machine::cargo(&arguments)?, "the daemon does not say")?;
    if read(Path::new(LIST))? != told {
        bail!("{LIST} is out of date: cargo run --package inference-gateway metrics > {LIST}");
    }
    Ok(())
}

fn dependencies(manifest: &toml::Table) -> impl Iterator<Item = (&str, &toml::Value)> {
    let table = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let table = table.and_then(toml::Value::as_table).into_iter().flatten();
    table.map(|(name, value)| (name.as_str(), value))
}

/// A row of the table whose second cell says something.
fn has_reason(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        cells.next() == Some(name) && cells.next().is_some_and(|reason| !reason.is_empty())
    })
}

/// Targets of the links in a line that are files; anchors are cut off.
fn local_links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?.trim();
        let elsewhere = target.is_empty() || target.contains("://") || target.contains("mailto:");
        (!elsewhere).then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_are_found_without_their_anchors() {
        let line = "see [a](docs/a.md#top), [b](https://example.org) and [c](#here) or [d](d.md)";
        assert_eq!(local_links(line).collect::<Vec<_>>(), ["docs/a.md", "d.md"]);
    }

    #[test]
    fn a_reason_is_a_cell_with_words() {
        let text = "| crate | reason |\n|---|---|\n| bytes | shared buffers |\n| http | |\n";
        assert!(has_reason(text, "bytes"));
        assert!(!has_reason(text, "http") && !has_reason(text, "byte"));
    }

    #[test]
    fn dependencies_of_the_workspace_are_listed_with_ours() {
        let text = "[workspace.dependencies]\nours = { path = \"ours\" }\nbytes = \"1\"\n";
        let manifest: toml::Table = text.parse().unwrap();
        let names: Vec<_> = dependencies(&manifest).map(|(name, _)| name).collect();
        assert_eq!(names, ["bytes", "ours"]);
    }
}
