//! The per-CPU buckets, and how another CPU's are taken over.
//!
//! # The protocol
//!
//! `table[cpu]` points to that CPU's [`CpuSlab`], or to [`DUMMY`], whose buckets are all empty and full at once. A
//! pop or push runs as one restartable section: read the CPU's index, read the table, read the bucket's `current`
//! index, read or write a slot, and commit by one store of `current`. If the thread is preempted, migrated or
//! signalled before that store, the section starts over and nothing has happened.
//!
//! To take CPU `c`'s buckets over (a *drain*):
//!
//! 1. claim `c`: its state goes from `ACTIVE` to `STOPPED` by one compare-and-swap, so one drain at a time;
//! 2. store `DUMMY` to `table[c]`;
//! 3. fence: every thread inside a section restarts it, and reads the table again;
//! 4. the slab is the drainer's alone: empty it;
//! 5. store the slab back to `table[c]` with release order, then the state to `ACTIVE`.
//!
//! The interleaving this excludes: a thread reads `table[c]` before step 2, sleeps, and commits its pop in the
//! middle of step 4, so that one object is both popped and drained. After step 3 such a section has either
//! committed (and step 4 sees it) or restarts (and finds `DUMMY`). The engine never waits for step 3 on an
//! allocation path: a thread that finds `DUMMY` goes to the depot.
//!
//! Should the fence be refused (a sandbox that came later), step 4 is left out: the slab is put back as it was.
//!
//! Where the platform has no restartable sections, the table holds nothing but `DUMMY` and the same slabs are used
//! behind a lock each ([`PerCpu::locked`]).

mod audit;

use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::backoff::Backoff;
use crate::lock::{Guard, Lock};
use crate::page::PAGE;
use crate::platform::{Platform, Run};
use crate::size_class::{CLASS, COUNT, MIN_ALIGN, cpu_objects};

/// CPU indices that the table has room for.
pub const MAX_CPUS: usize = 1024;
/// The index of a thread that has none: its entry is the dummy for good. A platform's threads have it before the fast
/// path is set up, so that what they began then can never touch buckets that exist after.
pub const NO_CPU: usize = MAX_CPUS;
/// Slabs used where the platform has no restartable sections.
pub const LOCKED_SLABS: usize = 32;

/// Class numbers there may be: as many as a byte of the class map tells apart.
const CLASSES: usize = 256;
/// Words (of 8 bytes) before the first slot: a header a class, then a counter of four bytes a class.
const FIRST_SLOT: usize = CLASSES + CLASSES / 2;
/// Word index of each class's first slot; the word before it is always zero.
const BEGIN: [u16; COUNT + 2] = {
    let mut out = [0; COUNT + 2];
    let (mut at, mut class) = (FIRST_SLOT + 1, 1);
    while class <= COUNT {
        out[class] = at as u16;
        at += cpu_objects(class) + 1;
        class += 1;
    }
    assert!(at < u16::MAX as usize);
    out[COUNT + 1] = at as u16;
    out
};
/// Bytes of a CPU's slab; only what its buckets reach is ever touched.
pub const SLAB_BYTES: usize = (BEGIN[COUNT + 1] as usize * 8).next_multiple_of(PAGE);

const ABSENT: u8 = 0;
const ACTIVE: u8 = 1;
const STOPPED: u8 = 2;

/// Where a class's slots are, in words from the slab's start. `slot[current - 1]` is the object on top, or zero.
///
/// Two words, so that a commit stores `current` alone: all of what the next section loads (a load of bytes that two
/// stores wrote waits for the cache), and nothing of `end`.
#[repr(C)]
struct Header {
    /// The slot that a push writes next.
    current: AtomicU32,
    /// The slot at which a push is refused.
    end: AtomicU32,
}

/// One CPU's buckets: for each class a header, a counter of pushes, and slots.
#[repr(C, align(64))]
pub struct CpuSlab {
    headers: [Header; CLASSES],
    pushes: [AtomicU32; CLASSES],
}

/// Where in a header `end` is, bytes: for the platform's assembly.
pub const END_OFFSET: usize = core::mem::offset_of!(Header, end);
/// Where in a slab the counters of pushes begin, bytes: for the platform's assembly.
pub const PUSHES_OFFSET: usize = core::mem::offset_of!(CpuSlab, pushes);

#[repr(C, align(64))]
struct DummySlab(CpuSlab, [u64; 2]);

/// Current and end of a bucket that is empty and full at once: the word before its first slot is zero.
const DUMMY_SLOT: u32 = FIRST_SLOT as u32 + 1;

impl Header {
    const fn new(begin: u32, objects: u32) -> Self {
        Self { current: AtomicU32::new(begin), end: AtomicU32::new(begin + objects) }
    }
}

static DUMMY: DummySlab = DummySlab(
    CpuSlab {
        headers: [const { Header::new(DUMMY_SLOT, 0) }; CLASSES],
        pushes: [const { AtomicU32::new(0) }; CLASSES],
    },
    [0; 2],
);

/// What a push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the bucket.
    Done,
    /// The bucket is full.
    Full,
    /// The same object is on the bucket's top already: it was freed twice.
    Twice,
}

/// What the fast path reads: each CPU's slab, and the class of a size, beside each other so that one register holds the
/// address of both.
#[repr(C, align(64))]
pub struct Table {
    entries: [AtomicPtr<CpuSlab>; MAX_CPUS + 1],
    classes: [u8; CLASS.len()],
}

/// Where in a table the classes by `(size + 15) / 16` begin, bytes: for the platform's assembly.
pub const CLASSES_OFFSET: usize = core::mem::offset_of!(Table, classes);

impl Table {
    const fn new() -> Self {
        Self { entries: [const { AtomicPtr::new(dummy()) }; MAX_CPUS + 1], classes: CLASS }
    }

    /// The class of objects of `size` bytes, at most [`MAX_SIZE`](crate::size_class::MAX_SIZE).
    #[inline(always)]
    pub fn class_of(&self, size: usize) -> usize {
        self.classes[size.div_ceil(MIN_ALIGN)] as usize
    }

    /// The slab that `cpu`'s fast path uses now.
    pub fn entry(&self, cpu: usize) -> &AtomicPtr<CpuSlab> {
        &self.entries[cpu]
    }
}

const fn dummy() -> *mut CpuSlab {
    (&raw const DUMMY.0).cast_mut()
}

impl CpuSlab {
    /// Sets every bucket to empty. The memory is zero, so the words before the first slots are.
    ///
    /// # Safety
    /// `slab` points to [`SLAB_BYTES`] zero bytes that nobody else uses.
    unsafe fn init(slab: *mut Self) {
        // SAFETY: the slab is valid and the caller's alone.
        let headers = unsafe { &(*slab).headers };
        // What is no class (a large run's pages, nobody's pages) has a bucket that is empty and full at once, so that
        // the fast path of a free needs no check of its own.
        for (class, header) in headers.iter().enumerate() {
            let (begin, objects) = match class {
                1..=COUNT => (u32::from(BEGIN[class]), cpu_objects(class) as u32),
                _ => (DUMMY_SLOT, 0),
            };
            header.current.store(begin, Relaxed);
            header.end.store(begin + objects, Relaxed);
        }
    }

    fn slot(slab: *const Self, word: u32) -> *mut *mut u8 {
        slab.cast::<*mut u8>().cast_mut().wrapping_add(word as usize)
    }

    /// Pops without restartable sections.
    ///
    /// # Safety
    /// Nobody else works on the slab now.
    pub unsafe fn pop(slab: *const Self, class: usize) -> *mut u8 {
        // SAFETY: the caller has the slab to itself; `current` names a slot of the class or the zero word before it.
        unsafe {
            let current = &(*slab).headers[class].current;
            let top = current.load(Relaxed) - 1;
            let object = *Self::slot(slab, top);
            if !object.is_null() {
                current.store(top, Relaxed);
            }
            object
        }
    }

    /// Pushes without restartable sections.
    ///
    /// # Safety
    /// Nobody else works on the slab now.
    pub unsafe fn push(slab: *const Self, class: usize, object: *mut u8) -> Pushed {
        // SAFETY: the caller has the slab to itself, and `current < end` names a slot of the class.
        unsafe {
            let header = &(*slab).headers[class];
            let current = header.current.load(Relaxed);
            if *Self::slot(slab, current - 1) == object {
                return Pushed::Twice;
            }
            if current >= header.end.load(Relaxed) {
                return Pushed::Full;
            }
            *Self::slot(slab, current) = object;
            (*slab).pushes[class].store((*slab).pushes[class].load(Relaxed).wrapping_add(1), Relaxed);
            header.current.store(current + 1, Relaxed);
            Pushed::Done
        }
    }
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
    locks: [Lock<(), 1>; LOCKED_SLABS],
    /// One drain at a time, and none across a fork.
    draining: Lock<(), 0>,
    /// Memory for slabs is asked for.
    asking: Backoff,
    /// Pushes already counted (see [`PerCpu::pushes`]).
    retired: AtomicU64,
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
            retired: AtomicU64::new(0),
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
        let slab = platform.map(SLAB_BYTES, PAGE)? as *mut CpuSlab;
        // SAFETY: fresh memory of that size, all zero.
        unsafe { CpuSlab::init(slab) };
        Some(slab)
    }

    /// The locked slab for slot `index`, where the platform has no restartable sections.
    pub fn locked<'a, P: Platform>(
        &'a self,
        platform: &'a P,
        index: usize,
    ) -> Option<(Guard<'a, (), P, 1>, *mut CpuSlab)> {
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

    /// Takes every CPU's buckets over, one fence for all of them, and hands each object to `sink` (class, object):
    /// the CPU loop outside, the class loop inside. The order in which classes are visited starts at `first_class`.
    pub fn drain<P: Platform>(&self, platform: &P, first_class: usize, mut sink: impl FnMut(usize, *mut u8)) {
        let _one = self.draining.lock(platform);
        let seen = self.seen.load(Acquire) as usize;
        if !platform.lockless() {
            for index in (0..seen).filter(|&i| !self.slabs[i].load(Acquire).is_null()) {
                if let Some((_guard, slab)) = self.locked(platform, index) {
                    empty(slab, first_class, &mut sink);
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
                empty(slab, first_class, &mut sink);
            }
            self.table.entry(cpu).store(slab, Release);
            self.state[cpu].store(ACTIVE, Release);
        }
    }

    /// Frees that the fast path served since the start, over all CPUs (32-bit counters: read often enough).
    pub fn pushes(&self) -> u64 {
        let seen = self.seen.load(Acquire) as usize;
        let slabs = (0..seen).map(|cpu| self.slabs[cpu].load(Acquire)).filter(|s| !s.is_null());
        // SAFETY: a slab, once made, lives on; its counters are atomics.
        let sum: u64 =
            slabs.map(|s| unsafe { (*s).pushes.iter().map(|p| u64::from(p.load(Relaxed))).sum::<u64>() }).sum();
        let before = self.retired.load(Relaxed);
        // The 32-bit counters wrap: only what the sum grew by (modulo 2^32) since the last reading is added.
        // Another reader may have been later with its sum and quicker to store it: then this one knows nothing new.
        let grown = (sum as u32).wrapping_sub(before as u32);
        let now = before + u64::from(if grown > i32::MAX as u32 { 0 } else { grown });
        self.retired.store(now, Relaxed);
        now
    }

    /// Holds every lock of this module until [`PerCpu::thaw`]: for `fork`.
    pub fn freeze<P: Platform>(&self, platform: &P) {
        self.draining.acquire(platform);
        self.locks.iter().for_each(|l| l.acquire(platform));
    }

    /// Undoes [`PerCpu::freeze`].
    ///
    /// # Safety
    /// The caller froze it.
    pub unsafe fn thaw<P: Platform>(&self, platform: &P) {
        // SAFETY: as the caller promises.
        unsafe {
            self.locks.iter().rev().for_each(|l| l.release(platform));
            self.draining.release(platform);
        }
    }
}

fn empty(slab: *mut CpuSlab, first_class: usize, sink: &mut impl FnMut(usize, *mut u8)) {
    for i in 0..COUNT {
        let class = 1 + (first_class + i) % COUNT;
        loop {
            // SAFETY: the slab is the caller's alone: it is stopped and fenced, or its lock is held.
            let object = unsafe { CpuSlab::pop(slab, class) };
            if object.is_null() {
                break;
            }
            sink(class, object);
        }
    }
}
