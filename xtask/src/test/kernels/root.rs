//! What the machine boots into: busybox, `ip`, `tc`, the test programs and what they load.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::archive::Archive;
use super::kernel::Kernel;
use crate::machine;

/// How the line starts that follows each test program's last.
pub(super) const ENDED: &str = "suite ended";

/// Writes the root file system to `image`.
///
/// # Errors
///
/// When a program is missing and cannot be installed.
pub(super) fn write(
    image: &Path,
    kernel: &Kernel,
    tests: &[PathBuf],
    filter: Option<&str>,
) -> Result<()> {
    let file = File::create(image).with_context(|| format!("cannot write {}", image.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    for directory in ["/dev", "/proc", "/sys", "/tmp"] {
        archive.directory(Path::new(directory))?;
    }
    archive.program(Path::new("/init"), init(filter.unwrap_or_default()).as_bytes())?;
    for (name, module) in kernel.modules()? {
        archive.program(&Path::new("/modules").join(name), &module)?;
    }
    let busybox = machine::require("busybox", &["busybox-static"])?;
    let ip = machine::require("ip", &["iproute2"])?;
    let tc = machine::require("tc", &["iproute2"])?;
    let mut libraries = BTreeSet::new();
    let programs =
        [(busybox, "/bin/busybox".into()), (ip, "/sbin/ip".into()), (tc, "/sbin/tc".into())];
    let tests =
        tests.iter().enumerate().map(|(number, test)| (test.clone(), format!("/tests/{number}")));
    for (program, place) in programs.into_iter().chain(tests) {
        libraries.append(&mut libraries_of(&program)?);
        archive.program(Path::new(&place), &stripped(&program, image)?)?;
    }
    for library in libraries {
        archive.program(&library, &read(&library)?)?;
    }
    Ok(archive.finish()?)
}

/// The first process. Tests must not skip themselves, so it says `CI=true`; emulation is slow,
/// so they are small. The user-space path is the same on all kernels.
fn init(filter: &str) -> String {
    format!(
        "#!/bin/busybox sh
/bin/busybox mkdir -p /bin && /bin/busybox --install -s /bin
export PATH=/sbin:/bin CI=true RUST_BACKTRACE=0 GATEWAY_TEST_SIZE=small
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
for module in /modules/*; do insmod $module || echo no $module; done
ip link set lo up
ulimit -n 65536
for test in /tests/*; do
  $test {filter} --skip user::
  echo {ENDED} with $?
done
dmesg | grep -E 'WARNING|BUG|Oops'
poweroff -f
"
    )
}

/// Without what only a debugger reads: it would be most of the machine's memory.
fn stripped(program: &Path, image: &Path) -> Result<Vec<u8>> {
    let strip = machine::require("strip", &["binutils"])?;
    let copy = image.with_extension("stripped");
    let mut command = Command::new(strip);
    command.arg("-o").arg(&copy).arg(program);
    machine::run(&mut command, "cannot strip a program")?;
    let content = read(&copy)?;
    fs::remove_file(&copy)?;
    Ok(content)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The shared libraries that a program loads; none of one that is static.
fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    Ok(libraries_in(&String::from_utf8_lossy(&output.stdout)))
}

/// The paths in what `ldd` prints.
fn libraries_in(text: &str) -> BTreeSet<PathBuf> {
    let words = text.split_whitespace();
    words.filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_where_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3a)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f3b)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries_in(text), expected.iter().map(PathBuf::from).collect());
        assert_eq!(libraries_in("\tnot a dynamic executable\n"), BTreeSet::new());
    }

    #[test]
    fn the_first_process_passes_the_filter_on() {
        assert!(init("wires::").contains("\n  $test wires:: --skip user::\n"));
    }
}
