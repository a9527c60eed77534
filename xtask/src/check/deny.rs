//! Licences, duplicates and sources of dependencies, by the rules in deny.toml.
//!
//! The file is cargo-deny's, of which this understands the part that we use, so
//! that checking needs no further program and cargo-deny agrees. A key that is not
//! understood is an error: a rule that nobody applies is worse than none.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use spdx::{Expression, Licensee};

use super::crates::{self, Package};
use super::{none_of, text};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    #[expect(dead_code, reason = "its only content is `deny`, which is what happens")]
    sources: Sources,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Deny,
    skip: Vec<Skip>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(dead_code, reason = "the only value is `deny`, which is what happens")]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
}

/// Nothing else is allowed to be written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

/// A version that may stand beside another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    /// `name@version`; the version may be cut short, as in `name@0.2`.
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

/// Checks the whole dependency graph.
///
/// # Errors
///
/// When a dependency breaks a rule, or a rule is not understood.
pub(super) fn run() -> Result<()> {
    let rules: Rules = toml::from_str(&text::read(Path::new("deny.toml"))?).context("deny.toml")?;
    let packages = crates::packages(&rules.graph.targets)?;
    let Deny::Deny = rules.bans.multiple_versions;
    let mut faults = rules.licenses.faults(&packages)?;
    faults.extend(rules.bans.faults(&packages));
    faults.extend(foreign(&packages));
    none_of(&faults)
}

impl Licenses {
    fn faults(&self, packages: &BTreeSet<Package>) -> Result<Vec<String>> {
        let mut allowed = Vec::new();
        for name in &self.allow {
            allowed.push(
                Licensee::parse(name).with_context(|| format!("deny.toml: unknown `{name}`"))?,
            );
        }
        let faults = packages.iter().filter_map(|package| {
            let Some(license) = &package.license else {
                return Some(format!("{} {}: no licence", package.name, package.version));
            };
            match Expression::parse_mode(license, spdx::ParseMode::LAX) {
                Ok(expression)
                    if expression
                        .evaluate(|one| allowed.iter().any(|licensee| licensee.satisfies(one))) =>
                {
                    None
                }
                _ => Some(format!(
                    "{} {}: licence `{license}` is not allowed by deny.toml",
                    package.name, package.version
                )),
            }
        });
        Ok(faults.collect())
    }
}

impl Bans {
    fn faults(&self, packages: &BTreeSet<Package>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut used = BTreeSet::new();
        for (name, versions) in crates::duplicates(packages) {
            let is_skipped = |package: &&&Package| {
                let skip = self.skip.iter().position(|skip| skip.covers(package));
                used.extend(skip);
                skip.is_some()
            };
            let skipped = versions.iter().filter(is_skipped).count();
            if versions.len() - skipped > 1 {
                let versions: Vec<&str> = versions.iter().map(|one| one.version.as_str()).collect();
                faults.push(format!("{name}: versions {}", versions.join(", ")));
            }
        }
        for (index, skip) in self.skip.iter().enumerate() {
            if skip.reason.is_empty() {
                faults.push(format!("deny.toml: skip of {} has no reason", skip.package));
            }
            if !used.contains(&index) {
                faults.push(format!("deny.toml: nothing needs the skip of {}", skip.package));
            }
        }
        faults
    }
}

impl Skip {
    fn covers(&self, package: &Package) -> bool {
        let Some((name, version)) = self.package.split_once('@') else { return false };
        let rest = package.version.strip_prefix(version);
        let whole = |rest: &str| rest.is_empty() || rest.starts_with(['.', '-', '+']);
        package.name == name && rest.is_some_and(whole)
    }
}

/// Dependencies that come from elsewhere than a registry or this workspace.
fn foreign(packages: &BTreeSet<Package>) -> impl Iterator<Item = String> {
    packages.iter().filter_map(|package| {
        let source = package.source.as_deref()?;
        let registry = source.starts_with("registry+") || source.starts_with("sparse+");
        (!registry).then(|| format!("{}: comes from {source}", package.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::crates::tests::package;

    fn licences(license: &str) -> Vec<String> {
        let rules = Licenses { allow: vec!["MIT".to_owned(), "Apache-2.0".to_owned()] };
        rules.faults(&[package("a", "1.0.0", license)].into()).unwrap()
    }

    fn bans(skip: &str, reason: &str, versions: &[&str]) -> Vec<String> {
        let skip = Skip { package: skip.to_owned(), reason: reason.to_owned() };
        let rules = Bans { multiple_versions: Deny::Deny, skip: vec![skip] };
        rules.faults(&versions.iter().map(|version| package("a", version, "MIT")).collect())
    }

    #[test]
    fn a_choice_of_licences_needs_one_that_is_allowed() {
        assert_eq!(licences("GPL-3.0-only OR MIT"), Vec::<String>::new());
        assert_eq!(licences("MIT/Apache-2.0"), Vec::<String>::new());
        assert!(licences("GPL-3.0-only AND MIT")[0].contains("not allowed"));
        assert!(licences("")[0].contains("no licence"));
    }

    #[test]
    fn a_second_version_needs_a_reason() {
        assert_eq!(bans("a@1", "b has not moved yet", &["1.2.0", "2.0.0"]), Vec::<String>::new());
        assert!(bans("a@1", "", &["1.2.0", "2.0.0"])[0].contains("no reason"));
        assert!(bans("a@1", "x", &["1.2.0", "2.0.0", "3.0.0"])[0].contains("1.2.0, 2.0.0, 3.0.0"));
    }

    #[test]
    fn a_skip_that_is_no_longer_needed_is_a_fault() {
        assert!(bans("a@1", "x", &["2.0.0"])[0].contains("nothing needs"));
        assert!(bans("a@1", "x", &["10.0.0", "2.0.0"]).iter().any(|f| f.contains("nothing")));
    }

    #[test]
    fn a_rule_that_is_not_understood_is_refused() {
        let error = toml::from_str::<Licenses>("allow = []\nexceptions = []").unwrap_err();
        assert!(error.to_string().contains("exceptions"));
    }
}
