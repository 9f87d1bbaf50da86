//! The per-CPU buckets, and how another CPU's are taken over.
//!
//! # The protocol
//!
//! `table[cpu]` points to that CPU's [`CpuSlab`], or to `DUMMY`, whose buckets are all empty and full at once. A pop or
//! push runs as one restartable section. It reads the CPU's index, the table, and the bucket's `current` index. It
//! reads or writes a slot, and commits by one store of `current`. If the thread is preempted, migrated or signalled
//! before that store, the section starts over and nothing has happened.
//!
//! To take CPU `c`'s buckets over (a *drain*):
//!
//! 1. Claim `c`: its state goes from `ACTIVE` to `STOPPED` by one compare-and-swap, so one drain at a time.
//! 2. Store `DUMMY` to `table[c]`.
//! 3. Fence: every thread inside a section restarts it, and reads the table again.
//! 4. The slab is the drainer's alone: empty it, and release the memory of its slots if all of them are empty. Then the
//!    slots are zeros, which is what the words below first slots must hold.
//! 5. Store the slab back to `table[c]` with release order, then the state to `ACTIVE`.
//!
//! The interleaving this excludes: a thread reads `table[c]` before step 2 and sleeps. It commits its pop in the middle
//! of step 4, so that one object is both popped and drained. After step 3 such a section has either committed (and step
//! 4 sees it) or restarts (and finds `DUMMY`). The engine never waits for step 3 on an allocation path: a thread that
//! finds `DUMMY` goes to the depot.
//!
//! Should the fence be refused (a sandbox that came later), step 4 is left out: the slab is put back as it was.
//!
//! # Resizing a bucket
//!
//! A bucket's `end` says how much it may hold, and any thread may store a new one at any time, on any CPU's slab
//! ([`PerCpu::resize`]). `end` is a word of its own. A thread of that CPU stores `current` only, so no commit is lost.
//! A section that read the old `end` before has still read one that lies within the class's slots. As a result a bucket
//! may hold more than it may: it takes no more, and pops bring it down. The CPU's next flush moves the surplus to the
//! depot. When both words were halves of one, a store of `end` from another CPU would have stored back an old
//! `current`. Then an object is popped twice, or lost. `crates/weir-models/tests/caches/cpu_cache/main.rs` shows both.
//!
//! A cache has a ceiling ([`super::bucket_size`]), and each CPU's bucket gets it when that CPU next visits the depot. A
//! cache whose ceiling falls has all its CPUs' buckets resized at once. A new CPU's buckets have room for nothing until
//! the first visit.
//!
//! Buckets of run classes have no ceiling: what each may hold is decided CPU by CPU (`rooms`).
//!
//! Where the platform has no restartable sections, the table holds nothing but `DUMMY` and the same slabs are used
//! behind a lock each ([`PerCpu::locked`]).

mod audit;
mod counts;
mod drain;
pub(crate) mod rooms;
pub(crate) mod waiting;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::base::backoff::Backoff;
use crate::base::run::Run;
use crate::base::units::{Class, Order, PAGE};
use crate::caches::geometry::{BUCKETED, slots};
use crate::platform::cpu_table::{BUCKETS, CLASSES, CpuSlab, DUMMY_SLOT, FIRST_SLOT, MAX_CPUS, NO_CPU, Table};
use crate::platform::lock::{Guard, Lock, RankTurn};
use crate::platform::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, array, constructor};
use crate::platform::{Platform, rank};

/// Slabs used where the platform has no restartable sections.
pub const LOCKED_SLABS: usize = 32;

/// Word index of each class's first slot; the word before it is always zero.
const BEGIN: [u32; BUCKETED + 1] = {
    let mut out = [0; BUCKETED + 1];
    let (mut at, mut class) = (FIRST_SLOT + 1, 1);
    while class < BUCKETED {
        out[class] = at as u32;
        at += slots(Class(class as u8)) + 1;
        class += 1;
    }
    out[BUCKETED] = at as u32;
    out
};
/// Bytes of a CPU's slab; only what its buckets reach is ever touched.
pub const SLAB_BYTES: usize = (BEGIN[BUCKETED] as usize * 8).next_multiple_of(PAGE);
const _: () = assert!(BUCKETED <= BUCKETS);

const ABSENT: u8 = 0;
const ACTIVE: u8 = 1;
const STOPPED: u8 = 2;

/// Sets every bucket to empty. The memory is zero, so the words before the first slots are.
///
/// # Safety
/// `slab` points to [`SLAB_BYTES`] zero bytes that are the caller's alone.
unsafe fn init(slab: *mut CpuSlab) {
    // SAFETY: the caller gives a mapped slab of zeros, for which headers, which are atomics, have a value.
    let headers = unsafe { &(*slab).headers };
    // Classes that are no number have a bucket that is empty and full at once. They mark a large run's pages, free
    // pages, and slabs of caches without buckets. So the fast path of a free needs no check of its own.
    for (class, header) in headers.iter().enumerate() {
        let begin = if (1..BUCKETED).contains(&class) { BEGIN[class] } else { DUMMY_SLOT };
        header.current.store(begin, Relaxed);
        header.end.store(begin, Relaxed);
    }
}

/// Lets the bucket of `class` hold `room` objects from now on.
fn resize(slab: &CpuSlab, class: Class, room: usize) {
    debug_assert!(room <= slots(class));
    slab.headers[class.index()].end.store(BEGIN[class.index()] + room as u32, Relaxed);
}

/// Objects in the bucket of `class`.
fn in_bucket(slab: &CpuSlab, class: Class) -> usize {
    (slab.headers[class.index()].current.load(Relaxed) - BEGIN[class.index()]) as usize
}

/// The CPUs' slabs.
#[repr(C)]
pub struct PerCpu {
    /// Read by the fast path.
    pub table: Table,
    state: [AtomicU8; MAX_CPUS],
    slabs: [AtomicPtr<CpuSlab>; MAX_CPUS],
    /// CPU indices seen so far, plus one.
    seen: AtomicU32,
    locks: [Lock<(), { rank::BUCKETS }>; LOCKED_SLABS],
    /// One drain at a time, and none across a fork.
    draining: Lock<(), { rank::DRAIN }>,
    /// Memory for slabs is asked for.
    asking: Backoff,
    /// Pushes already counted, by class (see [`PerCpu::pushes`]).
    retired: [AtomicU64; CLASSES],
    /// Pages that all buckets of run classes have room for (see [`rooms`]).
    room_pages: AtomicU32,
    /// Lengths, pages, of the last four runs that buckets were asked for and did not have, the last in the lowest bits.
    missed: AtomicU64,
    /// The CPUs that missed them, in the same places.
    missed_on: AtomicU64,
    /// Not 0: on some CPU a run may wait that is much for the heap (see [`waiting`]).
    much_waiting: AtomicU32,
}

impl PerCpu {
    constructor! {
        /// No CPU has buckets yet.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self {
                table: Table::new(),
                state: array![AtomicU8::new(ABSENT); MAX_CPUS],
                slabs: array![AtomicPtr::new(core::ptr::null_mut()); MAX_CPUS],
                seen: AtomicU32::new(0),
                locks: array![Lock::new(()); LOCKED_SLABS],
                draining: Lock::new(()),
                asking: Backoff::new(),
                retired: array![AtomicU64::new(0); CLASSES],
                room_pages: AtomicU32::new(0),
                missed: AtomicU64::new(0),
                missed_on: AtomicU64::new(u64::MAX),
                much_waiting: AtomicU32::new(0),
            }
        }
    }

    /// Gives the current CPU buckets if it has none yet. `false`: there is no memory for them, or they are stopped.
    pub(crate) fn install<P: Platform>(&self, platform: &P) -> bool {
        let cpu = platform.cpu();
        if cpu == NO_CPU || platform.checks_all() {
            return false;
        }
        if self.state[cpu].load(Acquire) != ABSENT {
            return self.state[cpu].load(Relaxed) == ACTIVE;
        }
        if !self.asking.ready() {
            return false;
        }
        let Some(slab) = Self::make(platform) else {
            self.asking.refused();
            return false;
        };
        if !self.place(platform, cpu, slab) {
            return false;
        }
        self.table.entry(cpu).store(slab, Release);
        self.state[cpu].store(ACTIVE, Release);
        true
    }

    /// In a forked child, which has one thread: completes what threads of the parent had begun. A thread that had
    /// placed a slab and not yet made it `ACTIVE` will never do so here. In the parent no other thread may, as that one
    /// might be asleep.
    pub(crate) fn finish_installs<P: Platform>(&self, platform: &P) {
        if !platform.lockless() {
            return;
        }
        for cpu in 0..MAX_CPUS {
            let slab = self.slabs[cpu].load(Relaxed);
            if !slab.is_null() && self.state[cpu].load(Relaxed) == ABSENT {
                self.seen.fetch_max(cpu as u32 + 1, Relaxed);
                self.table.entry(cpu).store(slab, Relaxed);
                self.state[cpu].store(ACTIVE, Relaxed);
            }
        }
    }

    /// Makes `slab` the one of `index`, unless another thread was quicker.
    fn place<P: Platform>(&self, platform: &P, index: usize, slab: *mut CpuSlab) -> bool {
        if self.slabs[index].compare_exchange(core::ptr::null_mut(), slab, AcqRel, Acquire).is_err() {
            platform.unmap(Run { addr: slab as usize, len: SLAB_BYTES });
            return false;
        }
        self.seen.fetch_max(index as u32 + 1, Relaxed);
        true
    }

    fn make<P: Platform>(platform: &P) -> Option<*mut CpuSlab> {
        let slab = platform.map_metadata(SLAB_BYTES, Order::PAGE).ok()? as *mut CpuSlab;
        // SAFETY: mapped just now, of that size, all zero, and no other thread has its address yet.
        unsafe { init(slab) };
        Some(slab)
    }

    /// The locked slab for slot `index`, where the platform has no restartable sections; none where each free is checked.
    pub(crate) fn locked<'a, P: Platform>(
        &'a self,
        platform: &'a P,
        index: usize,
    ) -> Option<(Guard<'a, (), P, { rank::BUCKETS }>, *mut CpuSlab)> {
        if platform.checks_all() { None } else { self.locked_always(platform, index) }
    }

    /// [`PerCpu::locked`], also where each free is checked.
    fn locked_always<'a, P: Platform>(
        &'a self,
        platform: &'a P,
        index: usize,
    ) -> Option<(Guard<'a, (), P, { rank::BUCKETS }>, *mut CpuSlab)> {
        let index = index % LOCKED_SLABS;
        if self.slabs[index].load(Acquire).is_null() {
            if !self.asking.ready() {
                return None;
            }
            let Some(slab) = Self::make(platform) else {
                self.asking.refused();
                return None;
            };
            self.place(platform, index, slab);
        }
        let guard = self.locks[index].lock(platform);
        Some((guard, self.slabs[index].load(Acquire)))
    }

    /// Lets the current CPU's bucket of `class` hold `room` objects; whether it holds no more than that now.
    pub(crate) fn resize<P: Platform>(&self, platform: &P, class: Class, room: usize) -> bool {
        self.here(platform).is_none_or(|slab| Self::resize_locked(slab, class, room))
    }

    /// [`PerCpu::resize`] of the slab that the caller holds the lock of.
    pub(crate) fn resize_locked(slab: &CpuSlab, class: Class, room: usize) -> bool {
        resize(slab, class, room);
        in_bucket(slab, class) <= room
    }

    /// Lets every CPU's bucket of `class`, if it has buckets, hold `room` objects.
    pub(crate) fn resize_all(&self, class: Class, room: usize) {
        if class.index() >= BUCKETED {
            return;
        }
        self.all().for_each(|slab| resize(slab, class, room));
    }

    /// The current CPU's slab, if it has one; the thread may be on another CPU at once.
    fn here<P: Platform>(&self, platform: &P) -> Option<&CpuSlab> {
        let cpu = platform.cpu();
        let cpu = if platform.lockless() { cpu } else { cpu % LOCKED_SLABS };
        // SAFETY: the pointer is null or a slab that was initialised before it was stored and is never unmapped. A
        // `CpuSlab` is atomics alone, so other threads may work on it meanwhile.
        self.slabs.get(cpu).and_then(|slab| unsafe { slab.load(Acquire).as_ref() })
    }

    /// The slabs that there are.
    pub(crate) fn all(&self) -> impl Iterator<Item = &CpuSlab> {
        let seen = self.seen.load(Acquire) as usize;
        // SAFETY: each pointer is null or a slab that was initialised before it was stored and is never unmapped. A
        // `CpuSlab` is atomics alone, so its CPU may work on it meanwhile.
        (0..seen).filter_map(|cpu| unsafe { self.slabs[cpu].load(Acquire).as_ref() })
    }

    /// Passes its locks to the turn of a rank.
    pub(crate) fn freeze<P: Platform>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.draining);
        turn.locks(|| self.locks.iter());
    }
}
