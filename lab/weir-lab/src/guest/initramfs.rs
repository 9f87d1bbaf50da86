//! An initial file system for a guest kernel, in cpio's "newc" form, as the kernel's documentation describes it.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One under construction.
#[derive(Default)]
pub struct Initramfs {
    archive: Vec<u8>,
    known: BTreeSet<PathBuf>,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTERS: u32 = 0o020_600;

impl Initramfs {
    /// With the places to mount on, and the devices that a process finds open at its start.
    pub fn new() -> Initramfs {
        let mut new = Initramfs::default();
        for place in ["/proc", "/sys", "/dev"] {
            new.directories(Path::new(place));
        }
        new.entry(Path::new("/dev/console"), CHARACTERS, (5, 1), &[]);
        new.entry(Path::new("/dev/null"), CHARACTERS, (1, 3), &[]);
        new
    }

    /// A file of that content.
    pub fn file(&mut self, place: &Path, content: &[u8]) {
        if let Some(above) = place.parent() {
            self.directories(above);
        }
        self.entry(place, PROGRAM, (0, 0), content);
    }

    /// A copy of a file of this machine.
    pub fn copy(&mut self, from: &Path, place: &Path) -> Result<()> {
        let content = std::fs::read(from).with_context(|| from.display().to_string())?;
        self.file(place, &content);
        Ok(())
    }

    /// A program or shared object at `place`, and every shared object that it needs, each where it is here.
    pub fn copy_with_libraries(&mut self, from: &Path, place: &Path) -> Result<()> {
        self.copy(from, place)?;
        let told = Command::new("ldd").arg(from).output()?;
        for line in String::from_utf8_lossy(&told.stdout).lines() {
            // "name => /path (address)", "/path (address)", or "name (address)" for the kernel's own.
            let library = line.split_whitespace().find(|word| word.starts_with('/'));
            if let Some(library) = library.map(Path::new).filter(|library| !self.known.contains(*library)) {
                self.copy(library, library)?;
            }
        }
        Ok(())
    }

    /// The whole.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("/TRAILER!!!"), 0, (0, 0), &[]);
        self.archive
    }

    fn directories(&mut self, place: &Path) {
        let mut above: Vec<&Path> = place.ancestors().filter(|path| path.parent().is_some()).collect();
        above.reverse();
        for directory in above {
            self.entry(directory, DIRECTORY, (0, 0), &[]);
        }
    }

    fn entry(&mut self, place: &Path, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.known.insert(place.to_path_buf()) {
            return;
        }
        let name = place.strip_prefix("/").unwrap_or(place).to_string_lossy().into_owned();
        let number = self.known.len() as u32;
        let fields =
            [number, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
        self.archive.extend_from_slice(b"070701");
        for field in fields {
            self.archive.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.archive.extend_from_slice(name.as_bytes());
        self.archive.push(0);
        self.align();
        self.archive.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.archive.resize(self.archive.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_names_and_contents_are_aligned() {
        let mut image = Initramfs::new();
        image.file(Path::new("/a/b"), b"12345");
        let archive = image.finish();
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        let at = text.find("a/b\0").unwrap();
        // A header is 110 bytes; its seventh number is the content's length.
        assert_eq!(&text[at - 110..at - 104], "070701");
        assert_eq!(&text[at - 110 + 6 + 48..at - 110 + 6 + 56], "00000005");
        assert_eq!(text.matches("070701").count(), 8, "proc sys dev console null a a/b trailer");
    }
}
