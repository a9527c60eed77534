//! The crates of the dependency graph, as `cargo metadata` tells them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::machine;

/// A package in the graph.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression, if the manifest has one.
    pub(super) license: Option<String>,
    /// Where it came from; nowhere for a crate of the workspace.
    pub(super) source: Option<String>,
    id: String,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
}

/// All packages that a build for one of `targets` needs, ours included.
///
/// # Errors
///
/// When cargo cannot resolve the graph.
pub(super) fn packages(targets: &[String]) -> Result<BTreeSet<Package>> {
    let mut packages = BTreeSet::new();
    for target in targets {
        let mut command = machine::cargo(&["metadata", "--format-version", "1", "--locked"])?;
        command.args(["--filter-platform", target]);
        let text = machine::output(&mut command, "cannot read the dependency graph")?;
        let metadata: Metadata =
            serde_json::from_str(&text).context("cannot read the dependency graph")?;
        packages.extend(metadata.used());
    }
    Ok(packages)
}

impl Metadata {
    /// `packages` has those of every platform; the nodes are of one.
    fn used(self) -> impl Iterator<Item = Package> {
        let nodes: BTreeSet<String> = self.resolve.nodes.into_iter().map(|node| node.id).collect();
        self.packages.into_iter().filter(move |package| nodes.contains(&package.id))
    }
}

/// Names that stand for more than one version, with these.
pub(super) fn duplicates(packages: &BTreeSet<Package>) -> Vec<(&str, Vec<&Package>)> {
    let mut by_name: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in packages {
        by_name.entry(&package.name).or_default().push(package);
    }
    by_name.into_iter().filter(|(_, versions)| versions.len() > 1).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::check) fn package(name: &str, version: &str, license: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: (!license.is_empty()).then(|| license.to_owned()),
            source: Some("registry+https://example.org".to_owned()),
            id: format!("{name}@{version}"),
        }
    }

    #[test]
    fn packages_of_other_platforms_are_left_out() {
        let text = r#"{
            "packages": [
                {"name": "a", "version": "1.0.0", "id": "a@1", "license": "MIT", "source": null},
                {"name": "windows", "version": "1.0.0", "id": "w@1", "license": null, "source": null}
            ],
            "resolve": {"nodes": [{"id": "a@1", "dependencies": []}], "root": null}
        }"#;
        let metadata: Metadata = serde_json::from_str(text).unwrap();
        let names: Vec<String> = metadata.used().map(|package| package.name).collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_crate_in_two_versions_is_a_duplicate() {
        let packages = [("a", "1.0.0"), ("a", "2.0.0"), ("b", "1.0.0")];
        let packages = packages.map(|(name, version)| package(name, version, "MIT")).into();
        let found = duplicates(&packages);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1.len()), ("a", 2));
    }
}
