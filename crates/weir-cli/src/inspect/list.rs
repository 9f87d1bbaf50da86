//! All processes that have Weir.

use super::locate;
use super::page::{Inspected, Missing, Page};
use crate::base::parallel::each;
use crate::base::units::monotonic_ns;
use crate::figures::memory::Memory;
use crate::processes::{maps, tree};
use procfs::process::{Process, Stat};

/// Processes that a worker takes at a time.
const BATCH: usize = 16;
/// Threads at most: with more the kernel's locks are what is waited for.
const MOST_WORKERS: usize = 8;

/// A process whose page was read.
pub struct Seen {
    pub process: Process,
    pub stat: Stat,
    pub page: Page,
    /// Where the page lies in its memory, if that is known.
    pub address: Option<u64>,
}

impl Seen {
    /// The parts of the process's resident set.
    pub fn memory(&self) -> Memory {
        Memory::of(&self.page, self.stat.rss * procfs::page_size(), monotonic_ns())
    }
}

/// The processes found.
#[derive(Default)]
pub struct Found {
    /// Processes whose page could be read.
    pub readable: Vec<Seen>,
    /// Processes with Weir whose page could not be read, and why.
    pub others: Vec<(i32, Missing)>,
    /// Processes that this user may not look into.
    pub not_allowed: usize,
}

/// Looks at all processes. A program that has Weir built in, and so small a heap that there is no background thread yet, is
/// found by its number only.
pub fn all() -> Found {
    let pids = tree::numbers();
    // A thread for each CPU: the time goes into the kernel's writing of maps, 0.1 ms for a process.
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    let looks = each(pids.chunks(BATCH), workers, look_at);
    let mut found = looks.into_iter().fold(Found::default(), Found::and);
    found.readable.sort_by_key(|seen| seen.process.pid());
    found.others.sort_by_key(|(pid, _)| *pid);
    found
}

impl Found {
    fn and(mut self, other: Self) -> Self {
        self.readable.extend(other.readable);
        self.others.extend(other.others);
        self.not_allowed += other.not_allowed;
        self
    }

    fn note(&mut self, pid: i32, why: Missing) {
        if !matches!(why, Missing::NoProcess | Missing::NotLoaded) {
            self.others.push((pid, why));
        }
    }
}

/// Whether there may be a process with Weir that cannot be looked at: another user's, or one too many for the files that may be open.
fn is_refused(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Looks at these.
pub fn look_at(pids: &[i32]) -> Found {
    let mut found = Found::default();
    let mut inspected = Vec::new();
    for &number in pids {
        let (mut pid, mut text) = (number, maps::text(number));
        // A thread of the kernel's has none either.
        if text.as_ref().is_ok_and(Vec::is_empty) {
            pid = maps::living(number);
            text = maps::text(pid);
        }
        match text {
            // Most processes have no mapping with the name: their maps are not taken apart.
            Ok(text) if locate::names_weir(&text) => match Inspected::narrowed(pid, &text[..], None) {
                Ok(it) => inspected.push(it),
                Err(why) => found.note(pid, why),
            },
            Err(error) if is_refused(&error) => found.not_allowed += 1,
            _ => {}
        }
    }
    let pages = Inspected::pages(&inspected);
    for (it, page) in inspected.into_iter().zip(pages) {
        let (address, process) = (it.likely_place(), it.process);
        // One that has ended meanwhile is left out.
        match page.and_then(|page| Ok((page, process.stat().map_err(|_| Missing::NoProcess)?))) {
            Ok((page, stat)) => found.readable.push(Seen { process, stat, page, address }),
            Err(why) => found.note(process.pid(), why),
        }
    }
    found
}
