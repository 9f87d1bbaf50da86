//! Counts of what the heap and its caches did, for monitoring: plain numbers, read one after another while other threads go on.
//!
//! Bytes are named `_bytes`; everything else is a count, in objects where objects are meant. What the heap holds *now*
//! is [`heap::usage`](crate::heap::usage).
//!
//! ```
//! for cache in weir::stats::caches().filter(|cache| cache.used > 0) {
//!     println!("{}: {} in use, {} free", cache.name(), cache.used, cache.free());
//! }
//! println!("released because it lay idle: {} bytes", weir::stats::process().released_idle_bytes);
//! ```

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use weir_core::base::cause::Cause;
use weir_core::caches::figures::CacheStats as Figures;
use weir_linux::platform::statics::STATS;
use weir_linux::process::heap::HEAP;

/// Counts of what happened in this process since it began (or, in a forked child, since the fork).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessStats {
    /// Released because it lay idle above the working set, bytes.
    pub released_idle_bytes: u64,
    /// Released because memory was short in the cgroup, the machine, or below, bytes.
    pub released_pressure_bytes: u64,
    /// Released to stay under the setting `limit`, bytes.
    pub released_limit_bytes: u64,
    /// Released because the program called [`heap::trim`](crate::heap::trim), bytes.
    pub released_trim_bytes: u64,
    /// Released, and touched again within the setting `refault_ms`, bytes.
    pub refault_bytes: u64,
    /// Notifications of memory pressure.
    pub pressure_events: u64,
    /// Allocations that had to reclaim memory by themselves.
    pub direct_reclaims: u64,
    /// Batches that the kernel refused to release.
    pub release_failures: u64,
    /// Whether the background thread runs now.
    pub background_thread: bool,
    /// Whether the fast path runs on restartable sequences; if not, on locks.
    pub restartable_sequences: bool,
}

/// The counts of this process.
pub fn process() -> ProcessStats {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let released = |cause: Cause| read(&STATS.given_back[cause as usize]);
    ProcessStats {
        released_idle_bytes: released(Cause::Idle),
        released_pressure_bytes: released(Cause::Pressure),
        released_limit_bytes: released(Cause::Limit),
        released_trim_bytes: released(Cause::Asked),
        refault_bytes: read(&STATS.refault_bytes),
        pressure_events: read(&STATS.pressure_events),
        direct_reclaims: read(&STATS.direct_reclaims),
        release_failures: read(&STATS.report_failures),
        background_thread: STATS.background.load(Relaxed) != 0,
        restartable_sequences: STATS.rseq.load(Relaxed) != 0,
    }
}

/// One cache's figures, in objects unless said otherwise. Displayed, they are a line of a table with the head
/// [`CacheStats::HEAD`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    figures: Figures,
    /// 1 to 77: malloc's size classes; 78 to 133: its runs; higher: made by the program.
    pub number: usize,
    /// Bytes of an object, rounded up to its alignment.
    pub object_bytes: usize,
    /// Most that may be in use at a time; `None`: any number.
    pub limit: Option<usize>,
    /// Free objects that reclaim leaves to the cache.
    pub reserve: usize,
    /// In use. An object that reclaim has in hand, on its way between bucket, depot and slab, counts for that moment.
    pub used: usize,
    /// Free in CPUs' buckets.
    pub free_cpu: usize,
    /// Free in full buckets of the depot.
    pub free_depot: usize,
    /// Free in slabs, those on pages that are being released among them.
    pub free_slab: usize,
    /// Bytes of its slabs.
    pub slab_bytes: usize,
    /// Allocations that succeeded (a free that was interrupted may count as one more).
    pub allocations: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Freed on another CPU than allocated on: at least so many. This is the net flow between CPUs, so it falls where that turns
    /// round.
    pub crossed: u64,
    /// Objects of the depot that are expected to be wanted again.
    pub working_set: usize,
    /// Time since an allocation last found the depot empty.
    pub stale: Duration,
    /// Bytes taken from the cache's depot and its CPUs' buckets by reclaim.
    pub reclaimed_bytes: u64,
}

impl CacheStats {
    /// The head of the table that [`CacheStats`] are lines of.
    pub const HEAD: &str = Figures::HEAD;

    pub(crate) fn of(of: &Figures) -> Self {
        Self {
            figures: *of,
            number: of.number,
            object_bytes: of.size,
            limit: (of.limit < usize::MAX).then_some(of.limit),
            reserve: of.reserve,
            used: of.used,
            free_cpu: of.free_cpu,
            free_depot: of.free_depot,
            free_slab: of.free_slab,
            slab_bytes: of.slab_bytes,
            allocations: of.requests,
            failures: of.failures,
            crossed: of.crossed,
            working_set: of.working_set,
            stale: Duration::from_nanos(of.stale_ns),
            reclaimed_bytes: of.trimmed_bytes + of.drained_bytes,
        }
    }

    /// The cache's name, as far as it is text; malloc's size classes are `malloc` and their size.
    pub fn name(&self) -> &str {
        self.figures.name()
    }

    /// Free objects in all.
    pub fn free(&self) -> usize {
        self.free_cpu + self.free_depot + self.free_slab
    }
}

impl fmt::Debug for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheStats")
            .field("name", &self.name())
            .field("number", &self.number)
            .field("object_bytes", &self.object_bytes)
            .field("limit", &self.limit)
            .field("reserve", &self.reserve)
            .field("used", &self.used)
            .field("free_cpu", &self.free_cpu)
            .field("free_depot", &self.free_depot)
            .field("free_slab", &self.free_slab)
            .field("slab_bytes", &self.slab_bytes)
            .field("allocations", &self.allocations)
            .field("failures", &self.failures)
            .field("crossed", &self.crossed)
            .field("working_set", &self.working_set)
            .field("stale", &self.stale)
            .field("reclaimed_bytes", &self.reclaimed_bytes)
            .finish()
    }
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures.fmt(f)
    }
}

/// All caches by ascending number, malloc's size classes among them.
pub fn caches() -> impl Iterator<Item = CacheStats> {
    let mut number = 0;
    core::iter::from_fn(move || {
        let found = HEAP.next_cache(number)?;
        number = found.number;
        Some(CacheStats::of(&found))
    })
}
