//! All processes that have Weir.

use super::locate;
use super::page::{Inspected, Missing, Page, of_proc};
use crate::base::descriptors::is_too_many;
use crate::base::parallel::each;
use crate::base::units::monotonic_ns;
use crate::figures::memory::Memory;
use crate::processes::{maps, tree};
use procfs::process::Stat;

/// Processes that a worker takes at a time.
const BATCH: usize = 16;
/// Threads at most: with more the kernel's locks are what is waited for.
const MOST_WORKERS: usize = 8;

/// A process whose page was read. No file of it is open any more.
pub struct Seen {
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
    /// Processes that could not be looked at, as too many files were open: with Weir or without.
    pub not_opened: Vec<i32>,
}

/// Looks at all processes. A program that has Weir built in, and so small a heap that there is no background thread yet, is
/// found by its number only.
pub fn all() -> Found {
    let pids = tree::numbers();
    locate::memfd_device();
    // A thread for each CPU: the time goes into the kernel's writing of maps, 0.1 ms for a process.
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    let looks = each(pids.chunks(BATCH), workers, look_once);
    let mut found = looks.into_iter().fold(Found::default(), Found::and).one_by_one();
    found.readable.sort_by_key(|seen| seen.stat.pid);
    found.others.sort_by_key(|(pid, _)| *pid);
    found
}

impl Found {
    fn and(mut self, other: Self) -> Self {
        self.readable.extend(other.readable);
        self.others.extend(other.others);
        self.not_allowed += other.not_allowed;
        self.not_opened.extend(other.not_opened);
        self
    }

    /// Looks again at those for which too many files were open. One by one they need few, and the others' are closed by now.
    fn one_by_one(mut self) -> Self {
        let again = std::mem::take(&mut self.not_opened);
        again.into_iter().map(|pid| look_once(&[pid])).fold(self, Self::and)
    }

    /// `number` is what the process was looked for by, `pid` that of a thread of it that lives.
    fn note(&mut self, number: i32, pid: i32, why: Missing) {
        match why {
            Missing::NoProcess | Missing::NotLoaded => {}
            Missing::TooManyFiles => self.not_opened.push(number),
            why => self.others.push((pid, why)),
        }
    }
}

/// Looks at these.
pub fn look_at(pids: &[i32]) -> Found {
    locate::memfd_device();
    look_once(pids).one_by_one()
}

fn look_once(pids: &[i32]) -> Found {
    let mut found = Found::default();
    let (mut inspected, mut numbers) = (Vec::new(), Vec::new());
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
                Ok(it) => {
                    inspected.push(it);
                    numbers.push(number);
                }
                Err(why) => found.note(number, pid, why),
            },
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => found.not_allowed += 1,
            Err(error) if is_too_many(&error) => found.not_opened.push(number),
            _ => {}
        }
    }
    let pages = Inspected::pages(&inspected);
    for ((it, page), number) in inspected.into_iter().zip(pages).zip(numbers) {
        let (address, process) = (it.likely_place(), it.process);
        // One that has ended meanwhile is left out.
        match page.and_then(|page| Ok((page, process.stat().map_err(of_proc)?))) {
            Ok((page, stat)) => found.readable.push(Seen { stat, page, address }),
            Err(why) => found.note(number, process.pid(), why),
        }
    }
    found
}
