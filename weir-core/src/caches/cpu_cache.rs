//! The per-CPU buckets, and how another CPU's are taken over.
//!
//! # The protocol
//!
//! `table[cpu]` points to that CPU's [`CpuSlab`], or to `DUMMY`, whose buckets are all empty and full at once. A
//! pop or push runs as one restartable section: read the CPU's index, read the table, read the bucket's `current`
//! index, read or write a slot, and commit by one store of `current`. If the thread is preempted, migrated or
//! signalled before that store, the section starts over and nothing has happened.
//!
//! To take CPU `c`'s buckets over (a *drain*):
//!
//! 1. claim `c`: its state goes from `ACTIVE` to `STOPPED` by one compare-and-swap, so one drain at a time;
//! 2. store `DUMMY` to `table[c]`;
//! 3. fence: every thread inside a section restarts it, and reads the table again;
//! 4. the slab is the drainer's alone: empty it, and release the memory of its slots if all of them are empty (zeros are
//!    what the words below first slots must hold);
//! 5. store the slab back to `table[c]` with release order, then the state to `ACTIVE`.
//!
//! The interleaving this excludes: a thread reads `table[c]` before step 2, sleeps, and commits its pop in the
//! middle of step 4, so that one object is both popped and drained. After step 3 such a section has either
//! committed (and step 4 sees it) or restarts (and finds `DUMMY`). The engine never waits for step 3 on an
//! allocation path: a thread that finds `DUMMY` goes to the depot.
//!
//! Should the fence be refused (a sandbox that came later), step 4 is left out: the slab is put back as it was.
//!
//! # Resizing a bucket
//!
//! A bucket's `end` says how much it may hold, and anybody may store a new one at any time, on any CPU's slab
//! ([`PerCpu::resize`]). It is a word of its own: a thread of that CPU stores `current` only, so no commit is lost, and
//! a section that read the old `end` before has still read one that lies within the class's slots. What can come of it
//! is a bucket that holds more than it may: it takes no more, pops bring it down, and the CPU's next overflow gives the
//! surplus to the depot. (When both words were halves of one, a store of `end` from another CPU would have stored back
//! an old `current`: an object popped twice, or one that nobody has. `loom_resize` shows both.)
//!
//! A cache wishes for a ceiling (`tuning`), and each CPU follows when it next visits the depot; a cache whose ceiling
//! falls has all its CPUs' buckets resized at once. A new CPU's buckets have room for nothing until the first visit.
//!
//! Where the platform has no restartable sections, the table holds nothing but `DUMMY` and the same slabs are used
//! behind a lock each ([`PerCpu::locked`]).

mod audit;

use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::base::backoff::Backoff;
use crate::base::id_set::IdSet;
use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::caches::geometry::{BUCKETED, UNBUCKETED, slots};
use crate::platform::Platform;
use crate::platform::cpu_table::{CLASSES, CpuSlab, DUMMY_SLOT, FIRST_SLOT, MAX_CPUS, NO_CPU, SLOTS, Table, dummy};
use crate::platform::lock::{Guard, Lock};
use crate::platform::rank;

// What is counted by class has a place for every number with buckets, and none for those without.
const _: () = assert!(BUCKETED < CLASSES && CLASSES == UNBUCKETED);

/// Slabs used where the platform has no restartable sections.
pub const LOCKED_SLABS: usize = 32;

/// Word index of each class's first slot; the word before it is always zero.
const BEGIN: [u32; BUCKETED + 1] = {
    let mut out = [0; BUCKETED + 1];
    let (mut at, mut class) = (FIRST_SLOT + 1, 1);
    while class < BUCKETED {
        out[class] = at as u32;
        at += slots(class) + 1;
        class += 1;
    }
    out[BUCKETED] = at as u32;
    out
};
/// Bytes of a CPU's slab; only what its buckets reach is ever touched.
pub const SLAB_BYTES: usize = (BEGIN[BUCKETED] as usize * 8).next_multiple_of(PAGE);

const ABSENT: u8 = 0;
const ACTIVE: u8 = 1;
const STOPPED: u8 = 2;

/// Sets every bucket to empty. The memory is zero, so the words before the first slots are.
///
/// # Safety
/// `slab` points to [`SLAB_BYTES`] zero bytes that are the caller's alone.
unsafe fn init(slab: *mut CpuSlab) {
    // SAFETY: the slab is valid and the caller's alone.
    let headers = unsafe { &(*slab).headers };
    // What is no class (a large run's pages, nobody's pages) has a bucket that is empty and full at once, so that
    // the fast path of a free needs no check of its own.
    for (class, header) in headers.iter().enumerate() {
        let begin = if (1..BUCKETED).contains(&class) { BEGIN[class] } else { DUMMY_SLOT };
        header.current.store(begin, Relaxed);
        header.end.store(begin, Relaxed);
    }
}

/// Lets the bucket of `class` hold `room` objects from now on.
fn resize(slab: &CpuSlab, class: usize, room: usize) {
    debug_assert!(room <= slots(class));
    slab.headers[class].end.store(BEGIN[class] + room as u32, Relaxed);
}

/// Objects in the bucket of `class`.
fn in_bucket(slab: &CpuSlab, class: usize) -> usize {
    (slab.headers[class].current.load(Relaxed) - BEGIN[class]) as usize
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
}

impl PerCpu {
    /// No CPU has buckets yet.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self {
            table: Table::new(),
            state: [const { AtomicU8::new(ABSENT) }; MAX_CPUS],
            slabs: [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS],
            seen: AtomicU32::new(0),
            locks: [const { Lock::new(()) }; LOCKED_SLABS],
            draining: Lock::new(()),
            asking: Backoff::new(),
            retired: [const { AtomicU64::new(0) }; CLASSES],
        }
    }

    /// Gives the current CPU buckets if it has none yet. `false`: there is no memory for them, or they are stopped.
    pub fn install<P: Platform>(&self, platform: &P) -> bool {
        let cpu = platform.cpu();
        if cpu == NO_CPU {
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

    /// In a forked child, which has one thread: completes what threads of the parent had begun. One that had placed a
    /// slab and not yet said so will never say it here, and nobody else may (it might be asleep, not gone).
    pub fn finish_installs<P: Platform>(&self, platform: &P) {
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
        let slab = platform.map_metadata(SLAB_BYTES, PAGE)? as *mut CpuSlab;
        // SAFETY: fresh memory of that size, all zero.
        unsafe { init(slab) };
        Some(slab)
    }

    /// The locked slab for slot `index`, where the platform has no restartable sections.
    pub fn locked<'a, P: Platform>(
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
    pub fn resize<P: Platform>(&self, platform: &P, class: usize, room: usize) -> bool {
        let Some(slab) = self.here(platform) else { return true };
        resize(slab, class, room);
        in_bucket(slab, class) <= room
    }

    /// Lets every CPU's bucket of `class`, if it has buckets, hold `room` objects.
    pub fn resize_all(&self, class: usize, room: usize) {
        if class >= BUCKETED {
            return;
        }
        self.all().for_each(|slab| resize(slab, class, room));
    }

    /// The current CPU's slab, if it has one; it may be another's at once.
    fn here<P: Platform>(&self, platform: &P) -> Option<&CpuSlab> {
        let cpu = platform.cpu();
        let cpu = if platform.lockless() { cpu } else { cpu % LOCKED_SLABS };
        // SAFETY: a slab, once made, lives on; what is used of it are atomics.
        self.slabs.get(cpu).and_then(|slab| unsafe { slab.load(Acquire).as_ref() })
    }

    /// Counts objects that came from the depot to the current CPU (or went there, if negative). A thread that has just
    /// moved counts them on the wrong CPU: these are statistics.
    pub fn note_came<P: Platform>(&self, platform: &P, class: usize, objects: i32) {
        if let Some(slab) = self.here(platform)
            && let Some(came) = slab.came.get(class)
        {
            came.fetch_add(objects as u32, Relaxed);
        }
    }

    /// Takes every CPU's buckets of the caches in `set` over, one fence for all of them, and hands each object to
    /// `sink` (class, object): the CPU loop outside, the cache loop inside, beginning with the first cache of the set
    /// at or after `first`. Each bucket may hold `room(class)` objects afterwards. With `release`, the memory behind slabs
    /// all of whose buckets are empty then goes back.
    pub fn drain<P: Platform>(
        &self,
        platform: &P,
        set: IdSet,
        first: usize,
        room: impl Fn(usize) -> usize,
        release: bool,
        mut sink: impl FnMut(usize, *mut u8),
    ) {
        let release = release && platform.release_unit() == PAGE;
        let _one = self.draining.lock(platform);
        let seen = self.seen.load(Acquire) as usize;
        if !platform.lockless() {
            for index in (0..seen).filter(|&i| !self.slabs[i].load(Acquire).is_null()) {
                if let Some((_guard, slab)) = self.locked(platform, index) {
                    empty(slab, set, first, &room, &mut sink);
                    if release {
                        release_slots(platform, slab);
                    }
                }
            }
            return;
        }
        let claim = |cpu: &usize| self.state[*cpu].compare_exchange(ACTIVE, STOPPED, AcqRel, Relaxed).is_ok();
        for cpu in (0..seen).filter(claim) {
            self.table.entry(cpu).store(dummy(), Release);
        }
        let ours = platform.fence();
        for cpu in (0..seen).filter(|&cpu| self.state[cpu].load(Relaxed) == STOPPED) {
            let slab = self.slabs[cpu].load(Acquire);
            if ours {
                empty(slab, set, first, &room, &mut sink);
                if release {
                    release_slots(platform, slab);
                }
            }
            self.table.entry(cpu).store(slab, Release);
            self.state[cpu].store(ACTIVE, Release);
        }
    }

    /// The slabs that there are.
    fn all(&self) -> impl Iterator<Item = &CpuSlab> {
        let seen = self.seen.load(Acquire) as usize;
        // SAFETY: a slab, once made, lives on; what is read of it here are atomics.
        (0..seen).filter_map(|cpu| unsafe { self.slabs[cpu].load(Acquire).as_ref() })
    }

    /// Objects of `class` in buckets now, and how many of them, at least, were freed on another CPU than they were
    /// allocated on: a CPU that took fewer objects from the depot than it gave there and still holds got the
    /// difference from elsewhere. What went one way and as much the other is not seen.
    pub fn held(&self, class: usize) -> (usize, usize) {
        let (mut held, mut crossed) = (0, 0);
        if class >= BUCKETED {
            return (held, crossed);
        }
        for slab in self.all() {
            let here = in_bucket(slab, class);
            let surplus = here as i32 - slab.came[class].load(Relaxed) as i32;
            held += here;
            crossed += surplus.max(0) as usize;
        }
        (held, crossed)
    }

    /// Forgets what was counted of `class`, whose number is about to be another cache's.
    pub fn forget(&self, class: usize) {
        self.all().filter_map(|slab| slab.came.get(class)).for_each(|came| came.store(0, Relaxed));
        self.pushes();
    }

    /// Frees of `class` that the fast path served, as of the last [`PerCpu::pushes`].
    pub fn pushes_of(&self, class: usize) -> u64 {
        self.retired.get(class).map_or(0, |retired| retired.load(Relaxed))
    }

    /// Frees that the fast path served since the start, over all CPUs and classes (32-bit counters: read often enough).
    pub fn pushes(&self) -> u64 {
        let mut sums = [0u32; CLASSES];
        for slab in self.all() {
            sums.iter_mut().zip(&slab.pushes).for_each(|(sum, p)| *sum = sum.wrapping_add(p.load(Relaxed)));
        }
        let mut total = 0;
        for (sum, retired) in sums.into_iter().zip(&self.retired) {
            let before = retired.load(Relaxed);
            // The 32-bit counters wrap: only what the sum grew by (modulo 2^32) since the last reading is added.
            // Another reader may have been later with its sum and quicker to store it: then this one knows nothing new.
            let grown = sum.wrapping_sub(before as u32);
            let now = before + u64::from(if grown > i32::MAX as u32 { 0 } else { grown });
            retired.store(now, Relaxed);
            total += now;
        }
        total
    }

    /// Takes the locks of rank `rank`: for `fork`.
    pub fn freeze<P: Platform>(&self, platform: &P, rank: u32) {
        match rank {
            rank::DRAIN => self.draining.acquire(platform),
            rank::BUCKETS => self.locks.iter().for_each(|lock| lock.acquire(platform)),
            _ => {}
        }
    }

    /// Undoes [`PerCpu::freeze`].
    ///
    /// # Safety
    /// The caller, or the parent that it was forked from, froze it.
    pub unsafe fn thaw<P: Platform>(&self, platform: &P, rank: u32) {
        // SAFETY: `freeze` took these locks and made no guards.
        unsafe {
            match rank {
                rank::DRAIN => self.draining.release(platform),
                rank::BUCKETS => self.locks.iter().rev().for_each(|lock| lock.release(platform)),
                _ => {}
            }
        }
    }
}

fn empty(
    slab: *mut CpuSlab,
    set: IdSet,
    first: usize,
    room: &impl Fn(usize) -> usize,
    sink: &mut impl FnMut(usize, *mut u8),
) {
    for class in set.from(first) {
        let mut taken = 0;
        loop {
            // SAFETY: the slab is the caller's alone: it is stopped and fenced, or its lock is held.
            let object = unsafe { CpuSlab::pop(slab, class) };
            if object.is_null() {
                break;
            }
            taken += 1;
            sink(class, object);
        }
        // SAFETY: as above.
        let slab = unsafe { &*slab };
        slab.came[class].fetch_sub(taken, Relaxed);
        resize(slab, class, room(class));
    }
}

/// Releases the memory of the slots of `slab`, which is the caller's alone, if all its buckets are empty.
fn release_slots<P: Platform>(platform: &P, slab: *mut CpuSlab) {
    // SAFETY: a slab, once made, lives on; what is read of it are atomics.
    let is_empty = (1..BUCKETED).all(|class| unsafe { in_bucket(&*slab, class) } == 0);
    if is_empty {
        platform.release_metadata(&[Run { addr: slab as usize + SLOTS, len: SLAB_BYTES - SLOTS }]);
    }
}
