//! Figures that one process tells about itself: a page of counters that a reader in another process can map.
//!
//! The page has a fixed layout, so that `weir run` and `weir stat` read it while the program runs and after it was
//! killed. Counters are written on slow paths only and with relaxed order: a reader sees each counter whole, but no two
//! of them at one instant. The background thread brings up to date what is more than a counter: the measured figures
//! and the tables ([`crate::telemetry::tables`]), each of one instant.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::base::cost::{Cost, POINTS};
use crate::base::time::{Nanos, Time};
use crate::telemetry::histogram::Histogram;
use crate::telemetry::tables::{CacheRow, EvictableRow, Row, Table, ZoneRow};
use crate::telemetry::trace::Ring;

/// First word of a page that a running Weir has claimed (`"weirstat"`).
pub const MAGIC: u64 = u64::from_le_bytes(*b"weirstat");
/// Version of the layout; a reader refuses any other.
pub const VERSION: u32 = 16;
/// Bytes of one process's page, in a statistics file and elsewhere: eight pages of the kernel's, of which those that
/// hold nothing take no memory.
pub const PAGE_BYTES: usize = 8 * 4096;
/// Bytes at its beginning that hold the counters: all but the tables.
pub const COUNTER_BYTES: usize = core::mem::offset_of!(Stats, zones);
/// Places for zones.
const ZONES: usize = 16;
/// Places for evictable caches.
const EVICTABLE_CACHES: usize = 16;
/// Places for caches: malloc's 77 and 48 of the program's, or of its run classes.
const CACHES: usize = 125;
/// First word of a statistics file (`"weirfile"`).
pub const FILE_MAGIC: u64 = u64::from_le_bytes(*b"weirfile");
/// Pages of a statistics file: its [`Header`], then one for each process. A page that was never taken takes no memory.
pub const FILE_PAGES: usize = 4096;

/// Page 0 of a statistics file, which hands out the others.
#[repr(C, align(4096))]
pub struct Header {
    /// [`FILE_MAGIC`], written last by the maker of the file.
    pub magic: AtomicU64,
    /// [`VERSION`]: a process takes no page of another layout.
    pub version: AtomicU32,
    /// The next free page. It starts at 1, and goes on beyond [`FILE_PAGES`], which counts those that came too late.
    pub next: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= PAGE_BYTES);

impl Header {
    /// Begins a file: what a process reads before it writes anything.
    pub fn init(&self) {
        self.next.store(1, Relaxed);
        self.version.store(VERSION, Relaxed);
        self.magic.store(FILE_MAGIC, Relaxed);
    }

    /// Whether this is the first page of a statistics file of this layout.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Relaxed) == FILE_MAGIC && self.version.load(Relaxed) == VERSION
    }

    /// The number of a page that is the caller's from now on, if there is one left.
    pub fn take_page(&self) -> Option<usize> {
        let number = self.next.fetch_add(1, Relaxed);
        (1..FILE_PAGES as u64).contains(&number).then_some(number as usize)
    }
}

/// Whether something of a process is open to others: the page of statistics, the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Opening {
    /// There is no background thread, which opens it.
    NoThread = 0,
    /// The page is open to readers.
    Open = 1,
    /// A setting switches it off.
    Off = 2,
    /// The program runs in a sandbox of its own, or one that leaves the background thread no descriptors of its own:
    /// it was not tried.
    Sandbox = 3,
    /// The kernel refused it.
    Refused = 4,
}

impl Opening {
    /// The value of a number; `None`: one of another version.
    pub fn of(number: u32) -> Option<Self> {
        [Self::NoThread, Self::Open, Self::Off, Self::Sandbox, Self::Refused].get(number as usize).copied()
    }
}

/// Where the memory was when it was last measured, bytes: as [`Usage`](crate::reclaim::Usage) has it. A reader tells a copy that a
/// measurement changed half-way as one of a table ([`crate::telemetry::tables`]): the first word and the last are not the same.
#[repr(C)]
pub struct Measured {
    /// When, ns of the monotonic clock; 0: never.
    pub at: AtomicU64,
    /// [`Usage::live`](crate::reclaim::Usage::live).
    pub live: AtomicU64,
    /// [`Usage::idle`](crate::reclaim::Usage::idle).
    pub idle: AtomicU64,
    /// [`Usage::fragmented`](crate::reclaim::Usage::fragmented).
    pub fragmented: AtomicU64,
    /// [`Usage::merged`](crate::reclaim::Usage::merged).
    pub merged: AtomicU64,
    /// [`Usage::metadata`](crate::reclaim::Usage::metadata).
    pub metadata: AtomicU64,
    /// [`Usage::untouched`](crate::reclaim::Usage::untouched).
    pub untouched: AtomicU64,
    /// The resident set of the whole process then; 0: it is not known.
    pub resident: AtomicU64,
    /// As `at`, and written before the figures.
    pub begun: AtomicU64,
}

impl Measured {
    /// The figures in the order in which they lie here.
    fn figures(&self) -> [&AtomicU64; 7] {
        [&self.live, &self.idle, &self.fragmented, &self.merged, &self.metadata, &self.untouched, &self.resident]
    }

    /// Notes what was found at a time, ns: live, idle, fragmented, merged, metadata, untouched, and the process's resident set.
    pub fn note(&self, at: u64, found: [u64; 7]) {
        self.begun.store(at, Relaxed);
        fence(Release);
        self.figures().into_iter().zip(found).for_each(|(figure, bytes)| figure.store(bytes, Relaxed));
        self.at.store(at, Release);
    }

    /// What [`Measured::note`] noted last, and when. `None`: nothing was yet, or it is being noted just now.
    pub fn found(&self) -> Option<([u64; 7], u64)> {
        let at = self.at.load(Acquire);
        let found = self.figures().map(|figure| figure.load(Relaxed));
        fence(Acquire);
        (at > 0 && self.begun.load(Relaxed) == at).then_some((found, at))
    }
}

/// The control channel.
#[repr(C)]
pub struct Control {
    /// An [`Opening`].
    pub state: AtomicU32,
    /// Why the kernel refused it (errno); 0 otherwise.
    pub error: AtomicU32,
    /// Two random numbers, of which its socket's name is made.
    pub name: [AtomicU64; 2],
    /// Two random numbers that a client sends first: who has read them here may look into the process.
    pub token: [AtomicU64; 2],
}

/// The counters of one process. All are totals since the process (or its last `fork`) began, unless said otherwise. They lie in
/// mappings, which begin at a page of the kernel's, of 4 KiB or more.
#[repr(C, align(4096))]
pub struct Stats {
    /// [`MAGIC`] once the page is in use.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Process id of the writer.
    pub pid: AtomicU32,
    /// 1 where the fast path runs on restartable sequences, 0 where it falls back to locked buckets.
    pub rseq: AtomicU32,
    /// 1 while the background thread runs.
    pub background: AtomicU32,
    /// Bytes given back, by [`Cause`](crate::base::cause::Cause).
    pub given_back: [AtomicU64; 4],
    /// Pressure events heard.
    pub pressure_events: AtomicU64,
    /// Current pressure level (0 none, 1 some, 2 severe).
    pub pressure_level: AtomicU64,
    /// When the last pressure event was heard, ns of the monotonic clock; 0: none was since the process (or its last `fork`) began.
    /// A process that runs looks for relief: its level is true however long ago this was. One that is stopped does not look.
    pub pressure_heard_at: AtomicU64,
    /// Time from a pressure event to the last idle byte given back, with the time for which others went first. What the balancer
    /// has caches evict below a limit of the process's own comes after that.
    pub pressure_latency: Histogram,
    /// The longest such time, ns.
    pub pressure_latency_max: AtomicU64,
    /// Batches reported to the system below.
    pub reports: AtomicU64,
    /// Batches that the system below refused.
    pub report_failures: AtomicU64,
    /// Nanoseconds spent in report calls.
    pub report_ns: AtomicU64,
    /// Bytes touched again within `refault_ms` of being reported.
    pub refault_bytes: AtomicU64,
    /// Bytes that calm windows reported, and that were touched again so soon that a longer hold would have kept them.
    pub calm_refault_bytes: AtomicU64,
    /// How often the time for which calm windows keep idle memory is doubled now, since too much was touched again
    /// ([`Hold`](crate::policy::hold::Hold)).
    pub patience: AtomicU64,
    /// Huge-backed pageblocks given back whole.
    pub huge_kept: AtomicU64,
    /// Huge-backed pageblocks given back in part, which splits the huge page.
    pub huge_split: AtomicU64,
    /// Pageblocks given back in part that the kernel filled with a huge page.
    pub huge_collapsed: AtomicU64,
    /// Pageblocks that were full and still, behind which a huge page was put.
    pub huge_made: AtomicU64,
    /// Frees that the fast path served.
    pub fast_frees: AtomicU64,
    /// Allocations that found the CPU's bucket empty.
    pub alloc_misses: AtomicU64,
    /// Frees that no CPU's bucket took.
    pub free_misses: AtomicU64,
    /// Objects now handed out or waiting in a bucket, that is, not in a slab.
    pub objects_out: AtomicU64,
    /// Those that were when the process was forked: allocations of its parent's.
    pub parents_objects: AtomicU64,
    /// Allocations larger than the largest size class that no bucket served.
    pub large_allocs: AtomicU64,
    /// Bytes of objects, runs and blocks that the program holds, as of the last window's end
    /// ([`Usage::live`](crate::reclaim::Usage::live)); so are the next three.
    pub live_bytes: AtomicU64,
    /// Bytes that are free and resident and can be released ([`Usage::idle`](crate::reclaim::Usage::idle)).
    pub idle_bytes: AtomicU64,
    /// Bytes that are free and resident beside objects in use
    /// ([`Usage::fragmented`](crate::reclaim::Usage::fragmented)): here also whole pages inside slabs that are in
    /// use.
    pub fragmented_bytes: AtomicU64,
    /// Bytes that are resident as those are, and share memory ([`Usage::merged`](crate::reclaim::Usage::merged)).
    pub merged_bytes: AtomicU64,
    /// Resident bytes of Weir's own ([`Usage::metadata`](crate::reclaim::Usage::metadata)).
    pub metadata_bytes: AtomicU64,
    /// Bytes of pages now handed out by the zones, to slabs and runs.
    pub page_bytes: AtomicU64,
    /// Bytes of blocks now mapped on their own.
    pub mapped_bytes: AtomicU64,
    /// Bytes of address space grown for heap pages, resident or not.
    pub address_bytes: AtomicU64,
    /// Bytes of zones that the program made.
    pub zone_bytes: AtomicU64,
    /// Bytes of the memory of depots' buckets: a part of the metadata.
    pub shell_bytes: AtomicU64,
    /// Object-cache trims that gave something back.
    pub trims: AtomicU64,
    /// Drains of all CPUs' buckets.
    pub drains: AtomicU64,
    /// Times an allocation reclaimed for itself.
    pub direct_reclaims: AtomicU64,
    /// Pages scanned, by [`Side`](crate::reclaim::Side): the balancer's (with all that is reclaimed beside the program), direct
    /// reclaim. So are the next.
    pub scanned_pages: [AtomicU64; 2],
    /// Pages reclaimed.
    pub reclaimed_pages: [AtomicU64; 2],
    /// Times an allocation, or pressure, had something for the balancer to do.
    pub wake_requests: AtomicU64,
    /// Times the balancer woke for that.
    pub wakeups: AtomicU64,
    /// Nanoseconds that allocations spent in direct reclaim, or waited for the balancer.
    pub direct_stall_ns: AtomicU64,
    /// Nanoseconds from the balancer's wake-ups to its sleeps, pauses and waits for a CPU included.
    pub balancer_active_ns: AtomicU64,
    /// Nanoseconds of that on a CPU.
    pub balancer_cpu_ns: AtomicU64,
    /// Allocations that failed because of `hard_limit`.
    pub hard_limit_failures: AtomicU64,
    /// Times that pressure was over.
    pub reliefs: AtomicU64,
    /// Times of allocations that reclaimed by themselves, or waited for the balancer.
    pub direct_stalls: Histogram,
    /// Times that batches took to be released.
    pub release_times: Histogram,
    /// Where the memory was when it was last measured.
    pub measured: Measured,
    /// Whether others may map this page: an [`Opening`].
    pub sharing: AtomicU32,
    /// Why the kernel refused that (errno); 0 otherwise.
    pub sharing_error: AtomicU32,
    /// The control channel.
    pub control: Control,
    /// Where the heap profile's table is in the process's memory ([`crate::profile::layout`]); 0: none.
    pub profile: AtomicU64,
    /// Addresses of the heap, the first and the one behind all that it ever had; 0: it has none yet. By these a reader
    /// tells its mappings from the program's.
    pub heap_addresses: [AtomicU64; 2],
    /// Likewise of the metadata, as far as addresses were given to it.
    pub metadata_addresses: [AtomicU64; 2],
    /// The number of the control group that has the limit of the first zone ([`Room::group`](crate::reclaim::budget::Room::group)).
    pub limit_group: AtomicU64,
    /// The last batches reported.
    pub trace: Ring,
    /// Zones.
    pub zones: Table<{ ZONES * ZoneRow::WORDS }>,
    /// Evictable caches.
    pub evictable_caches: Table<{ EVICTABLE_CACHES * EvictableRow::WORDS }>,
    /// The cost curve: what it would cost the process to do without its cheapest bytes. Each point is of all bytes up to it.
    pub costs: Table<{ POINTS * Cost::WORDS }>,
    /// Object caches that were ever used. Their totals are of the caches: a forked child's go on from its parent's.
    pub caches: Table<{ CACHES * CacheRow::WORDS }>,
}

const _: () = assert!(size_of::<Stats>() == PAGE_BYTES);

impl Stats {
    /// A page of zeros.
    #[allow(clippy::new_without_default, reason = "only ever a static")]
    pub const fn new() -> Self {
        // SAFETY: every field is an atomic integer (or an array of them), for which all-zero bytes are a value.
        unsafe { core::mem::MaybeUninit::<Self>::zeroed().assume_init() }
    }

    /// Sets all totals to zero and leaves what tells of a state: for a forked child.
    pub fn reset_totals(&self) {
        let singles = [
            &self.pressure_events,
            &self.pressure_latency_max,
            &self.reports,
            &self.report_failures,
            &self.report_ns,
            &self.refault_bytes,
            &self.calm_refault_bytes,
            &self.huge_kept,
            &self.huge_split,
            &self.huge_collapsed,
            &self.huge_made,
            &self.fast_frees,
            &self.alloc_misses,
            &self.free_misses,
            &self.large_allocs,
            &self.trims,
            &self.drains,
            &self.direct_reclaims,
            &self.wake_requests,
            &self.wakeups,
            &self.direct_stall_ns,
            &self.balancer_active_ns,
            &self.balancer_cpu_ns,
            &self.hard_limit_failures,
            &self.reliefs,
        ];
        let sides = [&self.scanned_pages, &self.reclaimed_pages];
        let arrays = self.given_back.iter().chain(sides.into_iter().flatten());
        let all = singles.into_iter().chain(arrays);
        all.for_each(|counter| counter.store(0, Relaxed));
        self.pressure_latency.clear();
        self.direct_stalls.clear();
        self.release_times.clear();
        self.trace.clear();
        self.parents_objects.store(self.objects_out.load(Relaxed), Relaxed);
        // What the thread that is not there was to tell.
        let singles = [&self.sharing, &self.sharing_error, &self.control.state, &self.control.error, &self.background];
        singles.into_iter().for_each(|state| state.store(0, Relaxed));
        // The parent's, which the child may not be meant to steer.
        self.control.token.iter().for_each(|word| word.store(0, Relaxed));
        // Tables that were never written are left alone, so that a fork copies no page for them.
        if self.measured.at.swap(0, Relaxed) != 0 {
            self.caches.clear();
            self.zones.clear();
            self.evictable_caches.clear();
            self.costs.clear();
        }
    }

    /// Whether pressure was heard of in the last `hold` ns before `now`.
    pub(crate) fn hears_pressure(&self, now: Time, hold: Nanos) -> bool {
        let at = self.pressure_heard_at.load(Relaxed);
        at != 0 && now.since(Time(at)) <= hold
    }

    /// Adds one pressure event's time from signal to memory back.
    pub fn note_latency(&self, ns: u64) {
        self.pressure_latency.note(ns);
        self.pressure_latency_max.fetch_max(ns, Relaxed);
    }
}

/// Adds to a counter.
#[inline]
pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_is_being_noted_is_not_read() {
        let stats = Stats::new();
        assert_eq!(stats.measured.found(), None);
        stats.measured.note(5, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(stats.measured.found(), Some(([1, 2, 3, 4, 5, 6, 7], 5)));
        let words = core::mem::offset_of!(Measured, begun) / 8;
        assert_eq!((core::mem::offset_of!(Measured, at), words * 8 + 8), (0, size_of::<Measured>()));
        stats.measured.begun.store(9, Relaxed);
        assert_eq!(stats.measured.found(), None);
        stats.reset_totals();
        assert_eq!(stats.measured.found(), None);
    }

    #[test]
    fn a_child_knows_which_objects_are_its_parents() {
        let stats = Stats::new();
        stats.objects_out.store(7, Relaxed);
        stats.reset_totals();
        assert_eq!([&stats.objects_out, &stats.parents_objects].map(|count| count.load(Relaxed)), [7, 7]);
    }
}
