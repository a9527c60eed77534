//! A compiler that can build for the kernel, and a linker that it can use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::machine;

/// The linker; the version whose LLVM is that of Debian's compiler.
const LINKER: &str = "bpf-linker";
const LINKER_VERSION: &str = "0.13.0";
/// Debian's compiler is built with this LLVM, and the linker must be.
const LLVM: &str = "22";
const LLVM_PLACE: &str = "/usr/lib/llvm-22";

/// A newer compiler than the workspace's, its sources, and what the linker is built with.
const PACKAGES: &[&str] = &[
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "llvm-22-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
    "libxml2-dev",
];

/// Programs that together build for the kernel.
#[derive(Debug)]
pub(super) struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    linker: PathBuf,
}

impl Toolchain {
    /// Finds one; installs Debian's where it may.
    ///
    /// # Errors
    ///
    /// When there is none; the error says what to install.
    pub(super) fn find() -> Result<Self> {
        if let Some(nightly) = Self::nightly() {
            return Ok(nightly);
        }
        Self::debian().context(
            "the kernel programs need a rustup nightly with rust-src and bpf-linker on the \
             search path, or Debian's packages",
        )
    }

    /// Cargo with this compiler and linker, without the settings of the cargo around us.
    pub(super) fn cargo(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        for name in ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
        command
            .env("RUSTC", &self.rustc)
            // Debian's compiler is a stable one; a nightly does not care.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        command
    }

    /// What people who write kernel programs have.
    fn nightly() -> Option<Self> {
        let linker = machine::find(LINKER)?;
        let which = |program| {
            let mut rustup = Command::new("rustup");
            rustup.args(["which", "--toolchain", "nightly", program]);
            let path = machine::output(&mut rustup, "no nightly").ok()?;
            Some(PathBuf::from(path.trim_end()))
        };
        let rustc = which("rustc")?;
        has_sources(&rustc).then_some(Self { cargo: which("cargo")?, rustc, linker })
    }

    fn debian() -> Result<Self> {
        let [rustc, cargo] = ["/usr/bin/rustc", "/usr/bin/cargo"].map(PathBuf::from);
        let is_there = || cargo.is_file() && rustc.is_file() && has_sources(&rustc);
        if !is_there() || !Path::new(LLVM_PLACE).is_dir() {
            machine::apt_install("a compiler for the kernel programs", PACKAGES)?;
        }
        let llvm = llvm(&rustc)?;
        if !is_there() || llvm != LLVM {
            bail!("{} has LLVM {llvm} or no sources; {LLVM} is needed", rustc.display());
        }
        Ok(Self { cargo, rustc, linker: linker()? })
    }
}

/// Our own linker, built once.
fn linker() -> Result<PathBuf> {
    let tools = machine::directory("tools")?;
    let linker = tools.join("bin").join(LINKER);
    if linker.is_file() {
        return Ok(linker);
    }
    eprintln!("building {LINKER} {LINKER_VERSION}");
    let library = format!("{LLVM_PLACE}/lib");
    let mut install = machine::cargo(&["install", LINKER, "--version", LINKER_VERSION])?;
    install
        .args(["--locked", "--no-default-features", "--features", "llvm-22", "--root"])
        .arg(&tools)
        .env("CARGO_TARGET_DIR", tools.join("build"))
        .env("LLVM_PREFIX", LLVM_PLACE)
        .env("RUSTFLAGS", format!("-L{library} -Clink-arg=-Wl,-rpath,{library}"));
    machine::run(&mut install, "cannot build the linker of the kernel programs")?;
    Ok(linker)
}

/// Whether the sources of the core library lie where this compiler looks for them.
fn has_sources(rustc: &Path) -> bool {
    let mut command = Command::new(rustc);
    command.args(["--print", "sysroot"]);
    machine::output(&mut command, "no sysroot").is_ok_and(|root| {
        Path::new(root.trim_end()).join("lib/rustlib/src/rust/library/core").is_dir()
    })
}

/// Major version of the compiler's LLVM.
fn llvm(rustc: &Path) -> Result<String> {
    let mut command = Command::new(rustc);
    let text = machine::output(command.arg("-vV"), "cannot ask the compiler for its version")?;
    let version = text.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next());
    Ok(major.with_context(|| format!("{} does not name its LLVM", rustc.display()))?.to_owned())
}
