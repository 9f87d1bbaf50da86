//! All processes with Weir on this machine, looked at again and again, for programs.
//!
//! A look at a process that is known reads its page of statistics where it lay before, and its line in `/proc`. Only processes
//! that are new are searched, and every eight looks those that had no Weir: a process may have executed another program.
//! So a look at 500 processes takes some ten milliseconds of one CPU.

use crate::base::units::monotonic_ns;
use crate::figures::released::Released;
use crate::figures::{less, rows};
use crate::inspect::list::{self, Seen};
use crate::inspect::memory_reader::read_each;
use crate::inspect::page::Page;
use crate::processes::tree;
use procfs::process::Stat;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_core::telemetry::stats::{PAGE_BYTES, Stats};
use weir_core::telemetry::tables::EvictableRow;

pub use crate::figures::less::{by_share, parts, parts_within};
pub use crate::figures::memory::Memory;
pub use weir_core::base::cost::Cost;
pub use weir_core::policy::cost_curve::CostCurve;

/// Looks after which processes that had no Weir are searched again.
const EVERY: u32 = 8;
/// Processes that are searched at a time: the pages of all of them are held at once.
const BATCH: usize = 16;
/// After this time no further processes are searched at a look. The next one goes on: some may keep a page from being read, which
/// takes two seconds each.
const SEARCHING: Duration = Duration::from_secs(5);

/// A process with Weir, as it is now.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it was started, clock ticks since the machine was: with the number it is this process and no later one.
    pub started_ticks: u64,
    /// Its name.
    pub command: String,
    /// The parts of its resident set.
    pub memory: Memory,
    /// What its evictable caches hold, bytes.
    pub evictable_bytes: u64,
    /// Released to the kernel since its start, bytes.
    pub released_bytes: u64,
    /// Touched again soon after it was released, bytes since its start.
    pub touched_again_bytes: u64,
    /// Its cost curve, from its cheapest byte on: each point is of all bytes up to it.
    pub costs: Vec<Cost>,
}

/// What a look has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Processes with Weir, by number.
    pub processes: BTreeMap<i32, Process>,
    /// Why processes with Weir could not be read, by number.
    pub unreadable: BTreeMap<i32, String>,
    /// Processes that this one may not look into, and those for which too many files are open here.
    pub not_allowed: usize,
}

/// See the module.
#[derive(Default)]
pub struct Survey {
    known: HashMap<i32, Known>,
    /// Processes that had no Weir, or could not be read.
    without: HashSet<i32>,
    /// Processes among them that this one may not look into.
    not_allowed: usize,
    last: Found,
    looks: u32,
}

/// Where a process's page was.
struct Known {
    started_ticks: u64,
    address: u64,
    /// The number by which the kernel tells of its memory: its own, or that of another thread where the main thread has ended.
    living: i32,
}

impl Survey {
    /// Looks at all processes.
    pub fn look(&mut self) -> &Found {
        self.look_within(SEARCHING)
    }

    fn look_within(&mut self, searching: Duration) -> &Found {
        let begun = Instant::now();
        let pids: HashSet<i32> = tree::numbers().into_iter().collect();
        if self.looks.is_multiple_of(EVERY) {
            self.without.clear();
            (self.last.unreadable, self.not_allowed) = Default::default();
        }
        self.looks = self.looks.wrapping_add(1);
        self.known.retain(|pid, _| pids.contains(pid));
        self.without.retain(|pid| pids.contains(pid));
        self.last.unreadable.retain(|pid, _| pids.contains(pid));
        self.last.processes.clear();
        self.read_known();
        let is_new = |pid: &i32| !self.known.contains_key(pid) && !self.without.contains(pid);
        let new: Vec<i32> = pids.iter().copied().filter(is_new).collect();
        let in_time = new.chunks(BATCH).take_while(|_| begun.elapsed() < searching);
        let not_opened: usize = in_time.map(|some| self.add(some, list::look_at(some))).sum();
        self.last.not_allowed = self.not_allowed + not_opened;
        &self.last
    }

    /// Reads the pages of those that are known; who is not found as it was is known no more.
    fn read_known(&mut self) {
        let pids: Vec<i32> = self.known.keys().copied().collect();
        let places: Vec<(i32, u64)> =
            pids.iter().map(|pid| (self.known[pid].living, self.known[pid].address)).collect();
        read_each(&places, PAGE_BYTES, |nth, bytes| {
            let (pid, (living, address)) = (pids[nth], places[nth]);
            // Who has a table that is never finished is not searched for that again and again: to look for it costs far more.
            let page = bytes.ok().and_then(Page::of).filter(Page::is_ours);
            let whole = |page: Page| if page.is_good() { page } else { Page::whole(living, address).unwrap_or(page) };
            let page = page.map(whole);
            let stat = procfs::process::Process::new(living).and_then(|process| process.stat()).ok();
            let stat = stat.filter(|stat| self.known.get(&pid).is_some_and(|it| it.started_ticks == stat.starttime));
            match page.zip(stat) {
                Some((page, stat)) => drop(self.last.processes.insert(pid, Process::of(pid, &page, stat))),
                None => drop(self.known.remove(&pid)),
            }
            true
        });
    }

    /// Takes what was found of processes that are new. How many there are for which too many files are open: the next look
    /// searches those again.
    fn add(&mut self, pids: &[i32], found: list::Found) -> usize {
        self.without.extend(pids.iter().filter(|pid| !found.not_opened.contains(pid)));
        for Seen { stat, page, address } in found.readable {
            let (living, started_ticks) = (stat.pid, stat.starttime);
            // By the number that groups and `/proc` have it by.
            let of_thread = || Some(procfs::process::Process::new(living).ok()?.status().ok()?.tgid);
            let Some(pid) = (if pids.contains(&living) { Some(living) } else { of_thread() }) else { continue };
            if let Some(address) = address {
                self.known.insert(pid, Known { started_ticks, address, living });
            }
            self.without.remove(&pid);
            self.last.processes.insert(pid, Process::of(pid, &page, stat));
        }
        self.last.unreadable.extend(found.others.into_iter().map(|(pid, why)| (pid, why.to_string())));
        self.not_allowed += found.not_allowed;
        found.not_opened.len()
    }
}

impl Process {
    fn of(pid: i32, page: &Stats, stat: Stat) -> Self {
        let caches: Vec<EvictableRow> = rows(&page.evictable_caches).0;
        Self {
            pid,
            started_ticks: stat.starttime,
            memory: Memory::of(page, stat.rss * procfs::page_size(), monotonic_ns()),
            command: stat.comm,
            evictable_bytes: caches.iter().fold(0, |sum, row| sum.saturating_add(row.bytes)),
            released_bytes: Released::by([page]).total(),
            touched_again_bytes: page.refault_bytes.load(Relaxed),
            costs: less::points(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_look_has_no_time_for_the_next_one_searches() {
        let (mut survey, own) = (Survey::default(), std::process::id() as i32);
        survey.look_within(Duration::ZERO);
        assert!(survey.without.is_empty());
        survey.look_within(Duration::from_secs(3600));
        assert!(survey.without.contains(&own), "it has no Weir");
    }

    #[test]
    fn those_for_which_too_many_files_are_open_are_searched_at_the_next_look() {
        let mut survey = Survey::default();
        let found = list::Found { not_opened: vec![2, 4], not_allowed: 1, ..Default::default() };
        assert_eq!(survey.add(&[1, 2, 3, 4], found), 2);
        assert_eq!((survey.without, survey.not_allowed), (HashSet::from([1, 3]), 1));
    }
}
