//! The file through which the program's processes tell their counters.
//!
//! Page 0 begins with a counter of the next free page, 1 at first; each process that uses Weir takes a page by
//! adding to it and keeps its [`Stats`] there. So what a process counted outlives it, however it ended.

use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir::stats::{MAGIC, PAGE_BYTES, Stats, VERSION};

/// Pages, and so processes, that the file has room for. The file is sparse: an unused page costs nothing.
const PAGES: usize = 4096;

/// A mapped statistics file, removed when it is dropped.
pub struct StatsFile {
    path: PathBuf,
    map: *const u8,
}

// SAFETY: the mapping is used through atomics only, and lives as long as the value.
unsafe impl Sync for StatsFile {}

impl StatsFile {
    /// Makes an empty one in shared memory, or else in the directory for temporary files.
    pub fn create() -> Result<Self, Failure> {
        let name = format!("weir-{}.stats", std::process::id());
        let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let mut last = None;
        for path in places.map(|dir| dir.join(&name)) {
            match Self::create_at(&path) {
                Ok(file) => return Ok(file),
                Err(e) => last = Some((path, e)),
            }
        }
        let why = last.map(|(path, e)| format!("{}: {e}", path.display())).unwrap_or_default();
        Err(Failure::own(format!("cannot make a statistics file ({why}): make /dev/shm writable or set TMPDIR")))
    }

    fn create_at(path: &Path) -> std::io::Result<Self> {
        // A file of that name is a leftover of a dead process with our number.
        let _ = std::fs::remove_file(path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let made = file.set_len((PAGES * PAGE_BYTES) as u64).and_then(|()| map(&file));
        match made {
            Ok(map) => {
                let stats = Self { path: path.to_path_buf(), map };
                stats.next_page().store(1, Relaxed);
                Ok(stats)
            }
            Err(e) => {
                let _ = std::fs::remove_file(path);
                Err(e)
            }
        }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn next_page(&self) -> &AtomicU64 {
        // SAFETY: the mapping is page-aligned, outlives `self`, and its first word is only ever used atomically.
        unsafe { &*self.map.cast() }
    }

    /// Pages that were asked for.
    fn asked(&self) -> u64 {
        self.next_page().load(Relaxed).saturating_sub(1)
    }

    /// How many asked for a page when none was left.
    pub fn beyond(&self) -> u64 {
        self.asked().saturating_sub(PAGES as u64 - 1)
    }

    /// The pages in use.
    pub fn pages(&self) -> impl Iterator<Item = &Stats> {
        let taken = (self.asked() as usize).min(PAGES - 1);
        let in_use = |s: &&Stats| s.magic.load(Relaxed) == MAGIC && s.version.load(Relaxed) == VERSION;
        // SAFETY: page `i` lies in the mapping, is page-aligned as Stats is, and holds atomics only, for which any
        // bytes are a value.
        (1..=taken).map(|i| unsafe { &*self.map.add(i * PAGE_BYTES).cast::<Stats>() }).filter(in_use)
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.map.cast_mut().cast(), PAGES * PAGE_BYTES) };
    }
}

fn map(file: &File) -> std::io::Result<*const u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at no fixed address.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), PAGES * PAGE_BYTES, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at as *const u8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_in_turn_and_too_many_are_only_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let stats = StatsFile::create_at(&path).unwrap();
        assert_eq!((stats.beyond(), stats.pages().count()), (0, 0));
        let slot = stats.next_page().fetch_add(1, Relaxed) as usize;
        assert_eq!(stats.pages().count(), 0, "taken, but not yet filled in");
        // SAFETY: the slot lies in the mapping and is used atomically.
        let page: &Stats = unsafe { &*stats.map.add(slot * PAGE_BYTES).cast() };
        page.version.store(VERSION, Relaxed);
        page.magic.store(MAGIC, Relaxed);
        page.reports.store(7, Relaxed);
        assert_eq!(stats.pages().map(|p| p.reports.load(Relaxed)).collect::<Vec<_>>(), [7]);
        stats.next_page().store(PAGES as u64 + 10, Relaxed);
        assert_eq!((stats.beyond(), stats.pages().count()), (10, 1));
        drop(stats);
        assert!(!path.exists());
    }
}
