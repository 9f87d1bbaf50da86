//! Figures of each cache: what it holds and what happened to it, in the words of `vmstat -z` and a few more.

use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;

use crate::base::run_class;
use crate::base::time::Time;
use crate::caches::geometry::{BUCKETED, FIRST_USER, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::caches::user_cache::{COUNTED, CacheId};
use crate::platform::Platform;
use crate::telemetry::name::Name;

/// One cache's figures. They are read one after another while other threads go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Name; malloc's size classes are `malloc` and their size.
    pub name: Name,
    /// Number of the cache. Numbers 1 to 77 are malloc's, 78 to 133 runs of malloc's. User caches with per-CPU buckets
    /// come next, up to 252; from 256 on there are user caches without.
    pub number: usize,
    /// Object size, bytes.
    pub size: usize,
    /// Objects that may be out at a time; `usize::MAX`: any number.
    pub limit: usize,
    /// Free objects that reclaim leaves to it.
    pub reserve: usize,
    /// Objects in use, and those that a thread has in hand just then, on their way between bucket, depot and slab.
    pub used: usize,
    /// Free objects in CPUs' buckets.
    pub free_cpu: usize,
    /// Free objects in the depot.
    pub free_depot: usize,
    /// Free objects in slabs, those on pages that are being released among them.
    pub free_slab: usize,
    /// Bytes of its slabs.
    pub slab_bytes: usize,
    /// Allocations that succeeded: frees, and what is held. The fast path counts frees only, inside its section: one
    /// that is interrupted before its commit counts twice.
    pub requests: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Visits to the depot, by allocations and frees that the CPU's bucket could not serve.
    pub visits: u64,
    /// Allocations that found bucket and depot empty, and went to the slabs.
    pub misses: u64,
    /// Objects freed on another CPU than they were allocated on, at least. That is the net flow between CPUs since the
    /// cache was made, which can be known at no cost for the fast path. It falls where the flow turns round, and begins anew where a
    /// CPU has more than 2^31 too many.
    pub crossed: u64,
    /// Objects that a CPU's bucket may hold: now, at least, at most; zeros for a cache without buckets.
    pub bucket: [usize; 3],
    /// Objects of the depot that will be wanted again.
    pub working_set: usize,
    /// Time since an allocation last found the depot empty, ns, as of the last window's end. What was before the first window's
    /// end does not count. 0 for a run class, which has no depot.
    pub stale_ns: u64,
    /// Trims that took something.
    pub trims: u64,
    /// Bytes that trims took from the depot.
    pub trimmed_bytes: u64,
    /// Drains that took something.
    pub drains: u64,
    /// Bytes that drains took from CPUs' buckets.
    pub drained_bytes: u64,
}

impl CacheStats {
    /// Name as text, as far as it is text.
    ///
    /// ```
    /// use weir_core::{caches::figures::CacheStats, telemetry::name::Name};
    ///
    /// let stats = CacheStats { name: Name::new(b"mbu"), ..CacheStats::default() };
    /// assert_eq!(stats.name(), "mbu");
    /// ```
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Whether it is a run class: its objects are runs of pages.
    pub fn is_of_runs(&self) -> bool {
        run_class::contains(class_of_number(self.number))
    }

    /// The table's head, for lines made by `Display`.
    pub const HEAD: &str = concat!(
        "ITEM                     SIZE      LIMIT      USED  FREE:CPU     DEPOT      SLAB          REQ   FAIL",
        "     XCPU  BUCKET(MIN-MAX)    WSET STALE_MS  TRIMS DRAINS   BACK_KIB"
    );
}

impl core::fmt::Display for CacheStats {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:<22} {:>6} ", self.name(), self.size)?;
        if self.limit == usize::MAX {
            write!(f, "{:>10}", "-")?
        } else {
            write!(f, "{:>10}", self.limit)?
        }
        let [now, least, most] = self.bucket;
        write!(
            f,
            " {:>9} {:>9} {:>9} {:>9} {:>12} {:>6} {:>8} {:>4} {:>10}",
            self.used,
            self.free_cpu,
            self.free_depot,
            self.free_slab,
            self.requests,
            self.failures,
            self.crossed,
            now,
            Range(least, most),
        )?;
        let back = (self.trimmed_bytes + self.drained_bytes) >> 10;
        let stale = self.stale_ns / 1_000_000;
        write!(f, " {:>7} {:>8} {:>6} {:>6} {:>10}", self.working_set, stale, self.trims, self.drains, back)
    }
}

/// `(min-max)`, padded as one word.
struct Range(usize, usize);

impl core::fmt::Display for Range {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let digits = |n: usize| n.checked_ilog10().unwrap_or(0) as usize + 1;
        let len = digits(self.0) + digits(self.1) + 3;
        for _ in len..f.width().unwrap_or(0) {
            f.write_str(" ")?;
        }
        write!(f, "({}-{})", self.0, self.1)
    }
}

impl<P: Platform> Caches<P> {
    /// The figures of the first cache with a number above `number`; `None`: there is none. O(CPUs), and numbers in between
    /// that have no cache any more.
    pub(crate) fn next_figures(&self, number: usize) -> Option<CacheStats> {
        let number = self.table.numbers_after(number).find(|&number| self.table.get(number).is_live())?;
        self.cpu.pushes();
        Some(self.figures_of(number))
    }

    /// Calls `see` with the figures of each cache, by number. O(caches * CPUs).
    pub(crate) fn each_figures(&self, see: &mut dyn FnMut(CacheStats)) {
        self.cpu.pushes();
        let live = self.table.numbers().filter(|&number| self.table.get(number).is_live());
        live.for_each(|number| see(self.figures_of(number)));
    }

    /// The figures of a user cache. O(CPUs).
    pub(crate) fn figures(&self, id: CacheId) -> CacheStats {
        self.cpu.pushes();
        self.figures_of(id.number())
    }

    fn figures_of(&self, number: usize) -> CacheStats {
        let cache = self.table.get(number);
        let (g, counts) = (cache.shape.get(), &cache.counts);
        let bucket = [cache.tuning.ceiling(), g.bucket[0].into(), g.bucket[2].into()];
        let bucket = if number < BUCKETED { bucket } else { [0; 3] };
        let mut stats = CacheStats {
            name: if number < FIRST_USER { malloc_name(g.size) } else { cache.user.name() },
            number,
            size: g.size as usize,
            limit: Some(cache.user.limit.load(Relaxed)).filter(|&limit| limit < COUNTED).unwrap_or(usize::MAX),
            reserve: cache.user.reserve.load(Relaxed),
            failures: counts.failures.load(Relaxed),
            bucket,
            trims: counts.trims.load(Relaxed),
            trimmed_bytes: counts.trimmed.load(Relaxed),
            drains: counts.drains.load(Relaxed),
            drained_bytes: counts.drained.load(Relaxed),
            ..CacheStats::default()
        };
        let (mut out, mut short_at) = (if g.is_of_runs() { self.cpu.came(g.class()) } else { 0 }, Time::ZERO);
        for domain in cache.domains().filter(|_| !g.is_of_runs()) {
            let depot = domain.depot.lock(&self.pages.platform);
            stats.visits += depot.visits;
            stats.misses += depot.misses;
            short_at = depot.short_at.max(short_at);
            stats.free_depot += depot.objects;
            stats.working_set += depot.working_set.size() as usize;
            drop(depot);
            let slabs = domain.slabs.lock(&self.pages.platform);
            // Isolated objects are free; their pages are on the way to the system.
            stats.free_slab += slabs.free + slabs.isolated;
            stats.slab_bytes += slabs.slabs * usize::from(g.pages) * crate::base::units::PAGE;
            out += slabs.slabs * usize::from(g.objects) - slabs.free - slabs.isolated;
        }
        stats.stale_ns = if g.is_of_runs() { 0 } else { self.pages.events.age(short_at).0 };
        let (held, crossed) = self.cpu.held(g.class());
        (stats.free_cpu, stats.crossed) = (held, crossed as u64);
        stats.used = out.saturating_sub(stats.free_depot + held);
        let frees = self.cpu.pushes_of(g.class()) + counts.slow_frees.load(Relaxed);
        let requests = (frees + stats.used as u64).saturating_sub(cache.user.frees_before.load(Relaxed));
        stats.requests = cache.user.told_requests(requests);
        stats
    }
}

fn malloc_name(size: u32) -> Name {
    let mut name = Name::EMPTY;
    let _ = write!(name, "malloc {size}");
    name
}
