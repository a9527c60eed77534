//! A cgroup whose processes alone are steered: nobody else on the machine notices.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A cgroup made for the bench; gone when dropped.
#[derive(Debug)]
pub(super) struct Cgroup {
    place: PathBuf,
    /// Where this process was before, once it has joined.
    before: Option<PathBuf>,
}

impl Cgroup {
    /// Makes a cgroup at the root of the second version's hierarchy.
    ///
    /// # Errors
    ///
    /// When there is no such hierarchy, or for want of a right.
    pub(super) fn new() -> Result<Self> {
        let place = root()?.join(format!("gateway-bench-{}", std::process::id()));
        fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(Self { place, before: None })
    }

    /// Its directory.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Moves this process into it, with all its threads.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) fn join(&mut self) -> Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup").context("cannot read own cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let before = root()?.join(own.context("this process has no cgroup")?);
        enter(&self.place)?;
        self.before = Some(before);
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let left = self.before.as_deref().map_or(Ok(()), enter);
        let gone = left.and_then(|()| Ok(fs::remove_dir(&self.place)?));
        if let Err(error) = gone {
            eprintln!("{} stays: {error:#}", self.place.display());
        }
    }
}

fn enter(place: &Path) -> Result<()> {
    fs::write(place.join("cgroup.procs"), std::process::id().to_string())
        .with_context(|| format!("cannot enter {}", place.display()))
}

/// Where the second version's hierarchy is mounted.
fn root() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")?;
    let place = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then(|| place.into())
    });
    place.context("no second version of cgroups is mounted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_where_it_was_afterwards() {
        let own = || fs::read_to_string("/proc/self/cgroup").unwrap();
        let before = own();
        let Ok(mut cgroup) = Cgroup::new() else {
            assert!(!crate::machine::is_ci(), "CI may make cgroups");
            eprintln!("skipped: this test makes a cgroup (root)");
            return;
        };
        cgroup.join().unwrap();
        assert!(own().contains("/gateway-bench-"), "{}", own());
        let place = cgroup.place().to_owned();
        drop(cgroup);
        assert_eq!(own(), before);
        assert!(!place.exists());
    }
}
