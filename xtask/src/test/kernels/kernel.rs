//! A kernel from Debian, unpacked below the target directory; nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine;

/// Modules that the tests need and that are not built in, in the order of loading.
const MODULES: [&str; 4] = [
    "drivers/net/veth.ko",
    "net/sched/sch_ingress.ko",
    "net/sched/cls_bpf.ko",
    "net/sched/cls_u32.ko",
];

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) release: String,
    /// What is booted.
    pub(super) image: PathBuf,
    directory: PathBuf,
}

impl Kernel {
    /// Gets the newest kernel of a series, named by Debian's package for it.
    ///
    /// # Errors
    ///
    /// When this is not Debian, or the package cannot be had.
    pub(super) fn fetch(series: &str) -> Result<Self> {
        machine::require("dpkg-deb", &["dpkg"])?;
        let mut ask = Command::new("apt-cache");
        ask.args(["depends", "--important", series]);
        let answer = machine::output(&mut ask, "cannot ask for kernels; is this Debian?")?;
        let package = answer.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.with_context(|| format!("the package list has no {series}"))?;
        let release = package.trim_start_matches("linux-image-").to_owned();
        let directory = machine::directory("kernels")?.join(&release);
        let image = directory.join("boot").join(format!("vmlinuz-{release}"));
        if !image.exists() {
            unpack(package, &directory)?;
        }
        Ok(Self { release, image, directory })
    }

    /// Name and content of each module, in the order of loading.
    ///
    /// # Errors
    ///
    /// When one is missing.
    pub(super) fn modules(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let kernel = self.directory.join("lib/modules").join(&self.release).join("kernel");
        let numbered = MODULES.iter().enumerate();
        let modules = numbered.map(|(number, module)| {
            let name = Path::new(module).file_name().unwrap_or_default().to_string_lossy();
            Ok((format!("{number}-{name}"), module_at(&kernel.join(module))?))
        });
        modules.collect()
    }
}

/// Newer kernels have their modules compressed.
fn module_at(file: &Path) -> Result<Vec<u8>> {
    if file.exists() {
        return fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    }
    let file = file.with_extension("ko.xz");
    let xz = machine::require("xz", &["xz-utils"])?;
    let output = Command::new(xz).args(["-dc"]).arg(&file).output()?;
    anyhow::ensure!(output.status.success(), "cannot unpack {}", file.display());
    Ok(output.stdout)
}

fn unpack(package: &str, directory: &Path) -> Result<()> {
    let downloads = machine::directory("kernels")?.join("download");
    // Of an earlier run that broke off, or another version of the package.
    let _ = fs::remove_dir_all(&downloads);
    fs::create_dir_all(&downloads)?;
    let mut download = Command::new("apt-get");
    download.current_dir(&downloads).args(["download", "-qq", package]);
    // The user that it downloads as may not write here.
    download.args(["-o", "APT::Sandbox::User=root"]);
    machine::run(&mut download, "cannot download the kernel")?;
    let archive = fs::read_dir(&downloads)?.flatten().map(|entry| entry.path()).next();
    let archive = archive.context("apt-get has downloaded nothing")?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("--extract").arg(&archive).arg(directory);
    machine::run(&mut unpack, "cannot unpack the kernel")
}
