//! The file in which the program's processes keep their counters.
//!
//! Page 0 hands out the others ([`Header`]); each process that uses Weir takes one and keeps its [`Stats`] there. So what
//! a process counted outlives it, however it ended.
//!
//! The file is a memfd. It has no name that another user could take first, or that a killed `weir run` could leave behind.
//! Its seals keep any process from truncating it while others have it mapped. Processes find it as a descriptor of this
//! process, `/proc/PID/fd/N`, which the kernel opens for root, and for the same user with no fewer capabilities. Some
//! processes cannot open it: another user's, one in a PID or user namespace of its own, one without `/proc`. Such a process
//! runs without statistics, and is named.

use crate::processes::tree;
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::{FILE_PAGES, Header, MAGIC, PAGE_BYTES, Stats, VERSION};

/// The file's name where it is mapped, which is all that its name is good for.
pub const NAME_IN_MAPS: &str = "memfd:weir-stats (deleted)";
/// Length of the file. It is sparse: an unused page costs nothing.
const BYTES: usize = FILE_PAGES * PAGE_BYTES;

/// A mapped statistics file.
pub struct StatsFile {
    /// Where a memfd cannot be made, no process finds the pages, and all stay unused.
    file: Result<OwnedFd>,
    map: *mut c_void,
    len: usize,
}

// SAFETY: the mapping is used through atomics only, and lives as long as the value.
unsafe impl Sync for StatsFile {}

impl StatsFile {
    /// Makes an empty one. Where that is refused, it has a first page alone, and processes will find none.
    pub fn create() -> Result<Self> {
        let (prot, null) = (ProtFlags::READ | ProtFlags::WRITE, null_mut());
        let mapped = sealed_file().and_then(|file| {
            // SAFETY: a new mapping at no fixed address.
            let map = unsafe { mmap(null, BYTES, prot, MapFlags::SHARED, &file, 0) }?;
            Ok((file, map))
        });
        let stats = match mapped {
            Ok((file, map)) => Self { file: Ok(file), map, len: BYTES },
            Err(e) => {
                // SAFETY: a new private mapping at no fixed address: no other memory is touched.
                let map = unsafe { mmap_anonymous(null, PAGE_BYTES, prot, MapFlags::PRIVATE) }?;
                Self { file: Err(e), map, len: PAGE_BYTES }
            }
        };
        stats.header().init();
        Ok(stats)
    }

    /// Where other processes find it; none if they cannot.
    pub fn path(&self) -> Option<String> {
        let (pid, file) = (tree::own_pid()?, self.file.as_ref().ok()?);
        Some(format!("/proc/{pid}/fd/{}", file.as_raw_fd()))
    }

    /// Why other processes cannot open it.
    pub fn obstacle(&self) -> Option<String> {
        match (&self.file, self.path()) {
            (Err(e), _) => Some(format!("cannot make a memfd: {e}")),
            (Ok(_), None) => Some("/proc is not mounted".into()),
            (Ok(_), Some(_)) => None,
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, outlives `self`, and is only ever used atomically.
        unsafe { &*self.map.cast() }
    }

    /// Pages requested so far.
    fn requested(&self) -> u64 {
        self.header().next.load(Relaxed).saturating_sub(1)
    }

    /// Processes that found no page left.
    pub fn beyond(&self) -> u64 {
        self.requested().saturating_sub(FILE_PAGES as u64 - 1)
    }

    /// The pages in use.
    pub fn pages(&self) -> impl Iterator<Item = &Stats> {
        let taken = (self.requested() as usize).min(FILE_PAGES - 1);
        (1..=taken)
            .map(|number| self.page(number))
            .filter(|page| page.magic.load(Relaxed) == MAGIC && page.version.load(Relaxed) == VERSION)
    }

    /// The pages of these processes as they are now: one that executed another program has the last one that it took.
    /// Each with what is said of its process.
    pub fn pages_of<T: Copy>(&self, processes: &HashMap<u32, T>) -> impl Iterator<Item = (&Stats, T)> {
        let all = self.pages().map(|page| (page.pid.load(Relaxed), page));
        let last: HashMap<u32, (&Stats, T)> =
            all.filter_map(|(pid, page)| Some((pid, (page, *processes.get(&pid)?)))).collect();
        last.into_values()
    }

    fn page(&self, number: usize) -> &Stats {
        assert!((number + 1) * PAGE_BYTES <= self.len);
        // SAFETY: the page lies in the mapping, is aligned as Stats is, and holds atomics only, for which any bytes are
        // a value.
        unsafe { &*self.map.byte_add(number * PAGE_BYTES).cast::<Stats>() }
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.map, self.len) };
    }
}

fn sealed_file() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // NOEXEC_SEAL: a system may refuse a memfd that could be executed. Kernels before 6.3 refuse the flag.
    let file =
        memfd_create("weir-stats", flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create("weir-stats", flags))?;
    // A process that opens it checks that no other user may write to it.
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    set_length(&file)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Where file sizes are limited (`ulimit -f`), a length beyond the limit raises a signal that would end this process.
fn set_length(file: &OwnedFd) -> Result<()> {
    // SAFETY: ignores a signal for the time of one call. There is one thread yet.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let done = ftruncate(file, BYTES as u64);
    // SAFETY: puts back what was.
    unsafe { libc::signal(libc::SIGXFSZ, before) };
    Ok(done?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_in_turn_and_too_many_are_only_counted() {
        let stats = StatsFile::create().unwrap();
        assert_eq!((stats.beyond(), stats.pages().count()), (0, 0));
        let number = stats.header().take_page().unwrap();
        assert_eq!(stats.pages().count(), 0, "taken, but not yet filled in");
        let page = stats.page(number);
        page.version.store(VERSION, Relaxed);
        page.magic.store(MAGIC, Relaxed);
        page.reports.store(7, Relaxed);
        assert_eq!(stats.pages().map(|p| p.reports.load(Relaxed)).collect::<Vec<_>>(), [7]);
        stats.header().next.store(FILE_PAGES as u64 + 10, Relaxed);
        assert_eq!((stats.beyond(), stats.pages().count()), (10, 1));
        assert_eq!(stats.header().take_page(), None);
    }

    #[test]
    fn of_the_programs_that_a_process_was_the_last_one_is_present() {
        let stats = StatsFile::create().unwrap();
        for (pid, live) in [(7, 100), (8, 30), (7, 20), (9, 5)] {
            let page = stats.page(stats.header().take_page().unwrap());
            page.version.store(VERSION, Relaxed);
            page.pid.store(pid, Relaxed);
            page.live_bytes.store(live, Relaxed);
            page.magic.store(MAGIC, Relaxed);
        }
        let live: u64 =
            stats.pages_of(&HashMap::from([(7, ()), (8, ())])).map(|(page, ())| page.live_bytes.load(Relaxed)).sum();
        assert_eq!(live, 50);
    }

    #[test]
    fn nobody_can_cut_it_short_or_find_it_by_a_name() {
        use std::os::unix::fs::MetadataExt;
        let stats = StatsFile::create().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(stats.path().unwrap()).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.nlink(), meta.mode() & 0o777, meta.len()), (0, 0o600, BYTES as u64));
        assert!(file.set_len(0).is_err());
    }
}
