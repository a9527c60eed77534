//! A root file system as the kernel takes it: a cpio archive in the "newc" format
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// File types, as in `stat(2)`.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive being written.
#[derive(Debug)]
pub(super) struct Archive<W: Write> {
    out: W,
    /// Each entry is its own file to the kernel only with a number of its own.
    entries: u32,
    directories: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a directory, and those above it, unless they are there.
    pub(super) fn directory(&mut self, path: &Path) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().filter(|path| path.parent().is_some()).collect();
        for path in above.into_iter().rev() {
            if self.directories.insert(path.to_owned()) {
                self.entry(path, DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file that can be run, and the directories above it.
    pub(super) fn program(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            self.directory(directory)?;
        }
        self.entry(path, PROGRAM, content)
    }

    /// Writes the end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, &[])?;
        self.out.flush()
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        let too_large = |_| io::Error::other(format!("{name} is too large for the archive"));
        let length = u32::try_from(content.len()).map_err(too_large)?;
        let name_length = u32::try_from(name.len() + 1).map_err(too_large)?;
        self.entries += 1;
        // Magic, number, mode, user, group, links, time, length, device, device of the
        // file, length of the name, checksum (not used).
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    /// Everything starts at a multiple of four.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_follow_their_directories() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.program(Path::new("/usr/bin/a"), b"12345").unwrap();
        archive.program(Path::new("/usr/bin/b"), b"").unwrap();
        archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        let names: Vec<&str> =
            starts.iter().map(|start| text[start + 110..].split('\0').next().unwrap()).collect();
        assert_eq!(names, ["usr", "usr/bin", "usr/bin/a", "usr/bin/b", "TRAILER!!!"]);
        assert_eq!(bytes.len() % 4, 0);
        // Number, mode, length and length of the name of the third.
        let header = &text[starts[2]..];
        assert_eq!((&header[6..14], &header[14..22]), ("00000003", "000081ed"));
        assert_eq!((&header[54..62], &header[94..102]), ("00000005", "0000000a"));
    }
}
