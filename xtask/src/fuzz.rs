//! `cargo xtask fuzz`: runs the fuzz targets.
//!
//! They build on stable Rust, without cargo-fuzz: libFuzzer comes with a crate, and
//! the compiler's instrumentation is switched on by flags. `fuzz/` is a workspace of
//! its own so that the flags reach nothing else.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::machine;

/// Runs fuzz targets; stops at the first input that breaks one.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// Target to run; all by default, which needs `--smoke`.
    target: Option<String>,
    /// Runs each for a moment instead of until Ctrl-C.
    #[arg(long)]
    smoke: bool,
    /// How long a moment is.
    #[arg(long, default_value_t = 60, requires = "smoke")]
    seconds: u64,
}

/// Coverage counters and traced comparisons, as libFuzzer wants them.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Fewer edges than this, and the build was not instrumented.
const LEAST_COVERAGE: u64 = 100;

/// Builds and runs the targets.
///
/// # Errors
///
/// When a target does not build, or an input breaks it.
pub(crate) fn run(options: &Fuzz) -> Result<()> {
    let known = targets()?;
    let chosen: Vec<&String> = match &options.target {
        Some(name) => known.iter().filter(|known| *known == name).collect(),
        None => known.iter().collect(),
    };
    if chosen.is_empty() || (options.target.is_none() && !options.smoke) {
        bail!("name one target, or say --smoke for all; targets: {}", known.join(", "));
    }
    let programs = build()?;
    for name in chosen {
        let target = Target { name, program: programs.join(name) };
        if options.smoke {
            target.smoke(options.seconds)?;
        } else {
            target.run_on()?;
        }
    }
    Ok(())
}

/// Names of the targets, as fuzz/Cargo.toml lists them.
fn targets() -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Manifest {
        bin: Vec<Bin>,
    }
    #[derive(Deserialize)]
    struct Bin {
        name: String,
    }
    let file = home().join("Cargo.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let manifest: Manifest = toml::from_str(&text).context("fuzz/Cargo.toml")?;
    Ok(manifest.bin.into_iter().map(|bin| bin.name).collect())
}

/// Builds all targets; they are in the directory returned.
fn build() -> Result<PathBuf> {
    machine::require("c++", &["build-essential"])?;
    // Named, so that build scripts and proc macros are not instrumented.
    let host = machine::output(Command::new("rustc").args(["--print", "host-tuple"]), "no host")?;
    let target = machine::target()?.join("fuzz");
    let mut cargo = machine::cargo(&["build", "--release", "--target", host.trim()])?;
    cargo.current_dir(home()).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", FLAGS);
    machine::run(&mut cargo, "cannot build the fuzz targets")?;
    Ok(target.join(host.trim()).join("release"))
}

fn home() -> PathBuf {
    machine::workspace().join("fuzz")
}

/// A built target.
#[derive(Debug)]
struct Target<'a> {
    name: &'a str,
    program: PathBuf,
}

impl Target<'_> {
    /// libFuzzer on this target: starts from the seeds, keeps what is new in a corpus.
    fn command(&self) -> Result<Command> {
        let corpus = home().join("corpus").join(self.name);
        let artifacts = home().join("artifacts");
        for place in [&corpus, &artifacts] {
            fs::create_dir_all(place).with_context(|| format!("{}", place.display()))?;
        }
        let prefix = artifacts.join(format!("{}-", self.name));
        let mut command = Command::new(&self.program);
        command.current_dir(home()).stdin(Stdio::null());
        command.arg("-max_len=4096").arg(format!("-artifact_prefix={}", prefix.display()));
        command.arg(corpus).arg(home().join("seeds").join(self.name));
        Ok(command)
    }

    /// Runs for `seconds`; quiet unless something is found.
    fn smoke(&self, seconds: u64) -> Result<()> {
        let mut command = self.command()?;
        command.arg(format!("-max_total_time={seconds}"));
        let output = command.output().with_context(|| format!("{command:?} does not start"))?;
        let words = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            println!("fuzz {} ... FAILED\n{}", self.name, tail(&words));
            return self.broken();
        }
        let coverage = coverage(&words).unwrap_or_default();
        if coverage < LEAST_COVERAGE {
            bail!("{} covers {coverage} edges; was it instrumented?\n{}", self.name, tail(&words));
        }
        let runs = words.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or_default();
        println!("fuzz {} ... ok ({coverage} edges; {runs})", self.name);
        Ok(())
    }

    /// Runs until something is found or somebody has enough.
    fn run_on(&self) -> Result<()> {
        let mut command = self.command()?;
        let status = command.status().with_context(|| format!("{command:?} does not start"))?;
        if status.success() { Ok(()) } else { self.broken() }
    }

    fn broken(&self) -> Result<()> {
        bail!(
            "an input breaks {name}; it is the newest file {artifacts}/{name}-*; \
             replay it with `{program} FILE`",
            name = self.name,
            artifacts = home().join("artifacts").display(),
            program = self.program.display(),
        )
    }
}

/// Edges covered in the end, from lines such as `#2 INITED cov: 412 ft: 1066 ...`.
fn coverage(words: &str) -> Option<u64> {
    let covers = |line: &str| line.split_once(" cov: ")?.1.split_whitespace().next()?.parse().ok();
    words.lines().rev().find_map(covers)
}

/// The end of what libFuzzer said, where the finding is.
fn tail(words: &str) -> String {
    let lines: Vec<&str> = words.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_file_and_seeds() {
        let targets = targets().unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            let source = home().join("fuzz_targets").join(&target).with_extension("rs");
            assert!(source.is_file(), "{} is missing", source.display());
            let seeds = fs::read_dir(home().join("seeds").join(&target)).unwrap();
            assert!(seeds.count() > 0, "{target} has no seeds");
        }
    }

    #[test]
    fn coverage_is_that_of_the_last_line_that_tells() {
        let words = "INFO: seed\n#2\tINITED cov: 412 ft: 1066 corp: 1\n\
                     #9\tNEW    cov: 415 ft: 1070 corp: 2\nDone 9 runs in 1 second(s)\n";
        assert_eq!(coverage(words), Some(415));
        assert_eq!(coverage("nothing"), None);
    }
}
