//! The memory of the program's processes, sampled while it runs.
//!
//! A page that several processes share (a forked worker with its parent, a library) is to count once. The kernel
//! computes each process's part (`Pss` of `smaps_rollup`) but has to walk the page tables for it. So this is done when a
//! process started or ended, and once a second. In between, the part that was shared is subtracted from the resident set,
//! which costs little to read. Where `smaps_rollup` may not be read (a setuid program's), all of its resident set counts.
//!
//! Samples take at most a twentieth of one CPU's time: the more one took, the longer until the next. The time for which
//! the CPU was others' is none of it: on a busy machine samples are as frequent as on one at rest.

use super::verdict;
use crate::base::units::monotonic_ns;
use crate::figures::memory::{Heap, Memory, Share};
use crate::figures::run::{ExcludedProcess, LimitReport, ProcessMemory, ResidentSum};
use crate::processes::loaded::{self, LibraryState};
use crate::processes::maps;
use crate::processes::stats_file::StatsFile;
use crate::processes::tree::ProcessTree;
use crate::report::timeline::Samples;
use procfs::process::{Process, Stat};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Shortest time between two samples.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Longest time between two walks over page tables, unless they cost too much.
const WALK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a sample, as a multiple of the CPU time it took.
const PAUSE: u32 = 20;
/// Resident bytes from which on it is checked whether a process allocates through Weir at all.
const CHECKED_FROM: u64 = 8 << 20;
/// Processes that are named.
const NAMED: usize = 3;
/// Processes of a kind that are kept by name. A service may have ever new ones.
const KEPT: usize = 1000;

/// Places of [`ProcessRecord::is_noted`].
const WITHOUT: usize = 0;
const UNCOUNTED: usize = 1;

/// By how much the limit, which holds for each process, was exceeded.
#[derive(Clone, Debug, Default)]
pub struct LimitExcess {
    /// The process that was most bytes above it.
    worst: Option<ProcessMemory>,
    /// Time during which at least one process was above it.
    time: Duration,
}

impl LimitExcess {
    /// The report, with the largest resident set that the kernel counted, if it did, and with what bounds that. It may lie
    /// between two samples, so samples alone do not show that a limit was kept.
    pub fn of(&self, bytes: u64, counted: Option<u64>, bound: u64) -> LimitReport {
        let seen = self.worst.as_ref().map_or(0, |worst| worst.bytes);
        let most = counted.unwrap_or(0).saturating_sub(bytes).max(seen);
        let exceeded_by_bytes = (counted.is_some() || bound <= bytes || most > 0).then_some(most);
        // Another may have had that, which lived between two samples.
        let by = self.worst.clone().filter(|worst| verdict::is_seen(Some(most), worst.bytes));
        LimitReport { bytes, exceeded_by_bytes, exceeded_seconds: self.time.as_secs_f64(), by }
    }
}

/// The last sample of one process.
struct ProcessRecord {
    started: u64,
    name: String,
    /// In its own PID namespace, as in its page of counters.
    inner_pid: i32,
    bytes: u64,
    /// Resident bytes that are others' parts of shared pages.
    shared: u64,
    anonymous: Share,
    by_rss: bool,
    high: u64,
    /// It has waited for a child, which may have been larger than any process that was sampled.
    has_waited: bool,
    loaded: LibraryState,
    /// It is among those without Weir, or among those that are not counted.
    is_noted: [bool; 2],
}

/// Processes that are told of by name, as far as they are kept.
#[derive(Debug, Default)]
pub struct Excluded {
    pub named: Vec<ExcludedProcess>,
    /// Further ones.
    pub more: u64,
}

impl Excluded {
    fn add(&mut self, name: &str, pid: i32, why: &str) {
        // A process that one sample missed is looked at anew by the next.
        if self.named.iter().any(|it| it.pid == pid && it.name == name) {
            return;
        }
        if self.named.len() < KEPT {
            self.named.push(ExcludedProcess { name: name.to_owned(), pid, why: why.to_owned() });
        } else {
            self.more += 1;
        }
    }
}

/// The processes and their sums.
#[derive(Default)]
pub struct Sampler {
    pub tree: ProcessTree,
    limit: Option<u64>,
    library: String,
    known: HashMap<i32, ProcessRecord>,
    /// All processes of the last sample, zombies too.
    seen: HashSet<i32>,
    /// When page tables were walked last, and the CPU time that sample took.
    walked: Option<(Instant, Duration)>,
    before: Option<Instant>,
    pub last: Option<ResidentSum>,
    pub peak: Option<ResidentSum>,
    pub excess: LimitExcess,
    /// All samples, in bounded memory.
    pub curve: Samples,
    /// How many found a process.
    pub samples: u32,
    pub without: Excluded,
    /// Processes on Weir of which no counters can be read.
    pub uncounted: Excluded,
    /// The largest resident set that a process had before one of the samples, by its own mark.
    pub most_high: u64,
    /// Why there are no samples.
    pub obstacle: Option<String>,
    /// Whether a process of the last sample had waited for a child by then.
    pub has_waited: bool,
    /// Largest part of a process that others shared: by so much the resident set alone is too large.
    pub most_shared: u64,
}

impl Sampler {
    pub fn new(tree: ProcessTree, limit: Option<u64>, library: &Path) -> Self {
        Self { tree, limit, library: loaded::name_in_maps(library), ..Self::default() }
    }

    /// Takes a sample; returns the time to wait before the next.
    pub fn sample(&mut self, stats: &StatsFile) -> Duration {
        let (began, cpu_before) = (Instant::now(), thread_cpu_time());
        let pids = self.tree.pids();
        let seen: HashSet<i32> = pids.iter().copied().collect();
        let came_or_went = seen != self.seen;
        self.seen = seen;
        let due = self.walked.is_none_or(|(at, took)| at.elapsed() >= WALK_INTERVAL.max(took * PAUSE));
        let walk = came_or_went || due;
        let (mut sum, mut risen, mut above) = (ResidentSum::default(), 0, false);
        let mut now = HashMap::new();
        for pid in pids {
            let old = self.known.remove(&pid);
            let Some((mut known, resident, rise)) = sample_process(pid, old, walk, &now, &self.library) else {
                continue;
            };
            above |= self.check_limit(pid, &known, resident);
            risen = risen.max(rise);
            sum.bytes += known.bytes;
            sum.processes += 1;
            sum.by_rss += usize::from(known.by_rss);
            self.most_shared = self.most_shared.max(known.shared);
            self.most_high = self.most_high.max(known.high).max(resident);
            self.note_without(pid, &mut known, stats);
            now.insert(pid, known);
        }
        self.known = now;
        if sum.processes > 0 {
            self.samples += 1;
            sum.largest = self.largest();
            self.has_waited = self.known.values().any(|known| known.has_waited);
            // By the ids of their own PID namespaces.
            // A process that executed a program without Weir has pages of what it was before.
            let on_weir = self.known.values().filter(|known| !matches!(known.loaded, LibraryState::Absent(_)));
            let inner: HashMap<u32, Share> = on_weir.map(|known| (known.inner_pid as u32, known.anonymous)).collect();
            sum.heap = Heap::of(stats.pages_of(&inner));
            let unknown = Memory { resident_bytes: sum.bytes, ..Memory::default() };
            self.curve.add(monotonic_ns(), sum.heap.map_or(unknown, |heap| heap.within(sum.bytes)));
            self.note_sum(sum, risen);
        }
        if above && let Some(before) = self.before {
            self.excess.time += began - before;
        }
        self.before = Some(began);
        let took = thread_cpu_time().saturating_sub(cpu_before);
        if walk {
            self.walked = Some((began, took));
        }
        INTERVAL.max(took * PAUSE)
    }

    fn note_sum(&mut self, sum: ResidentSum, risen: u64) {
        // A process was larger for a moment since the last sample; the others are assumed to have been as they are now.
        let peak = ResidentSum { bytes: sum.bytes + risen, ..sum.clone() };
        if self.peak.as_ref().is_none_or(|before| before.bytes < peak.bytes) {
            self.peak = Some(peak);
        }
        self.last = Some(sum);
    }

    /// Whether the process is above the limit now.
    fn check_limit(&mut self, pid: i32, known: &ProcessRecord, resident: u64) -> bool {
        let Some(limit) = self.limit else { return false };
        let over = known.high.max(resident).saturating_sub(limit);
        if over > self.excess.worst.as_ref().map_or(0, |worst| worst.bytes) {
            self.excess.worst = Some(ProcessMemory { name: known.name.clone(), pid, bytes: over });
        }
        resident > limit
    }

    fn note_without(&mut self, pid: i32, known: &mut ProcessRecord, stats: &StatsFile) {
        let (kind, why) = match &known.loaded {
            LibraryState::Absent(why) => (WITHOUT, why.as_str()),
            LibraryState::Loaded if has_own_malloc(pid, known, stats) => (WITHOUT, "has a malloc of its own"),
            LibraryState::LoadedUncounted if stats.path().is_some() => {
                (UNCOUNTED, "has another user, rights or namespace")
            }
            LibraryState::Loaded | LibraryState::LoadedUncounted | LibraryState::MissingSince(_) => return,
        };
        if !std::mem::replace(&mut known.is_noted[kind], true) {
            [&mut self.without, &mut self.uncounted][kind].add(&known.name, pid, why);
        }
    }

    fn largest(&self) -> Vec<ProcessMemory> {
        let mut all: Vec<_> = self.known.iter().collect();
        all.sort_by_key(|(pid, known)| (std::cmp::Reverse(known.bytes), **pid));
        let named = |(pid, known): (&i32, &ProcessRecord)| ProcessMemory {
            name: known.name.clone(),
            pid: *pid,
            bytes: known.bytes,
        };
        all.into_iter().take(NAMED).map(named).collect()
    }
}

/// Samples a process: its record, its resident set, and how much larger that was for a moment since the last sample.
fn sample_process(
    pid: i32,
    old: Option<ProcessRecord>,
    walk: bool,
    parents: &HashMap<i32, ProcessRecord>,
    library: &str,
) -> Option<(ProcessRecord, u64, u64)> {
    let (mut process, mut stat) = stat_of(pid)?;
    if stat.rss == 0 {
        (process, stat) = stat_of(maps::living(pid))?;
    }
    let mut resident = stat.rss * procfs::page_size();
    // A zombie: ended, and not yet waited for.
    if resident == 0 {
        return None;
    }
    let old = old.filter(|old| old.started == stat.starttime);
    // Between `vfork` and `exec` a child is in its parent's memory, which is counted there.
    if old.is_none() && parents.contains_key(&stat.ppid) && shares_memory(pid, stat.ppid) {
        return None;
    }
    let status = maps::status(&process).ok()?;
    let high = status.vmhwm.unwrap_or(0) * 1024;
    let (shared, anonymous, by_rss) = match &old {
        Some(old) if !walk => (old.shared, old.anonymous, old.by_rss),
        _ => match process.smaps_rollup().ok().and_then(proportional) {
            Some((rss, pss, anonymous)) => {
                // Exact, where the counters are some pages behind on each CPU.
                resident = rss;
                (rss.saturating_sub(pss), anonymous, false)
            }
            None if process.stat().is_ok_and(|stat| stat.rss > 0) => (0, Share::default(), true),
            // It has ended since it was found.
            None => return None,
        },
    };
    // Only a mark above the last one is new. Executing another program resets it.
    let rise = if old.as_ref().is_none_or(|old| high > old.high) { high.saturating_sub(resident) } else { 0 };
    // Another name is another program: its state is determined afresh.
    let same = old.as_ref().filter(|old| old.name == stat.comm);
    let loaded = loaded::judge(&process, same.map(|old| &old.loaded), library);
    let is_noted = same.map_or([false; 2], |old| old.is_noted);
    // One that executes another program at this moment was judged as that, under the name of the one before: the next sample tells.
    let changed = process.stat().ok().filter(|now| now.comm != stat.comm);
    let (name, loaded, is_noted) = match changed {
        Some(now) => (now.comm, LibraryState::MissingSince(Instant::now()), [false; 2]),
        None => (stat.comm, loaded, is_noted),
    };
    let known = ProcessRecord {
        started: stat.starttime,
        name,
        inner_pid: status.nspid.and_then(|pids| pids.last().copied()).unwrap_or(pid),
        bytes: resident.saturating_sub(shared),
        shared,
        anonymous,
        by_rss,
        high,
        has_waited: stat.cminflt + stat.cmajflt > 0,
        loaded,
        is_noted,
    };
    Some((known, resident, rise))
}

fn stat_of(pid: i32) -> Option<(Process, Stat)> {
    let process = Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    Some((process, stat))
}

/// Whether the process has much memory, and all that it counted in its page is that it never allocated.
fn has_own_malloc(pid: i32, known: &ProcessRecord, stats: &StatsFile) -> bool {
    if known.bytes < CHECKED_FROM {
        return false;
    }
    let page = stats.pages_of(&HashMap::from([(known.inner_pid as u32, ())])).next();
    page.is_some_and(|(page, ())| page.address_bytes.load(Relaxed) + page.mapped_bytes.load(Relaxed) == 0)
        // One that executes another program after it was sampled has that one's empty page, and not yet its memory.
        && stat_of(pid).is_some_and(|(_, now)| now.rss * procfs::page_size() >= CHECKED_FROM)
}

/// Resident bytes, the process's part of them, and that of its anonymous memory.
fn proportional(rollup: procfs::process::SmapsRollup) -> Option<(u64, u64, Share)> {
    let fields = rollup.memory_map_rollup.0.into_iter().next()?.extension.map;
    let both = |all: &str, own: &str| Some((*fields.get(all)?, *fields.get(own)?));
    let (rss, pss) = both("Rss", "Pss")?;
    // Before Linux 5.4 the kernel does not tell the last. Files that others have too then count with it.
    let (all, own) = both("Anonymous", "Pss_Anon").unwrap_or((rss, pss));
    Some((rss, pss, Share { own, others: all.saturating_sub(own) }))
}

/// CPU time of the calling thread so far.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether two processes have one address space.
fn shares_memory(a: i32, b: i32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: compares two processes, and touches no memory. A kernel without it, or one that refuses, returns -1.
    unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_excess_is_laid_to_a_process_that_was_seen_with_it() {
        let worst = Some(ProcessMemory { name: "small".into(), pid: 7, bytes: 10 << 20 });
        let excess = LimitExcess { worst, time: Duration::ZERO };
        let said = |counted: u64| excess.of(16 << 20, Some(counted), counted).by.map(|who| who.name);
        assert_eq!((said(26 << 20).as_deref(), said(516 << 20)), (Some("small"), None));
    }

    #[test]
    fn of_processes_without_weir_each_is_noted_once_and_so_many_by_name() {
        let mut sampler = Sampler::new(ProcessTree::default(), None, Path::new("/lib/libweir.so"));
        let stats = StatsFile::create().unwrap();
        let process = |name: &str| ProcessRecord {
            started: 0,
            name: name.into(),
            inner_pid: 1,
            bytes: 0,
            shared: 0,
            anonymous: Share::default(),
            by_rss: false,
            high: 0,
            has_waited: false,
            loaded: LibraryState::Absent("is statically linked".into()),
            is_noted: [false; 2],
        };
        let mut first = process("first");
        for _ in 0..3 {
            sampler.note_without(1, &mut first, &stats);
        }
        sampler.note_without(1, &mut process("first"), &stats);
        assert_eq!((sampler.without.named.len(), sampler.without.more), (1, 0));
        for pid in 2..2002 {
            sampler.note_without(pid, &mut process("other"), &stats);
        }
        assert_eq!((sampler.without.named.len(), sampler.without.more), (KEPT, 2001 - KEPT as u64));
        assert!(sampler.uncounted.named.is_empty());
    }
}
