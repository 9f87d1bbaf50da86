//! What the standard library has for caches where Weir does not run.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::alloc as program;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_core::base::time::Time;
use weir_core::base::zone_class::ZoneClass;
use weir_core::evict::waits::{self, Waits};
use weir_core::platform::lock::Lock;
use weir_core::platform::{Clock, Wait, rank};

/// The largest run of a zone: there are none.
pub const MAX_RUN: usize = 0;
/// In what steps allocators give memory, bytes; most align to it.
const STEP: usize = 16;

/// Nobody says when memory is short.
pub fn hears_pressure() -> bool {
    false
}

/// The platform of locks and clocks.
pub struct System;

/// The platform.
pub fn system() -> &'static System {
    &System
}

/// Where threads sleep.
#[derive(Default)]
struct Bed {
    lock: Mutex<()>,
    woken: Condvar,
}

/// Threads that wait for different words may share a bed, so whoever is woken looks at its word again.
static BEDS: LazyLock<[Bed; 32]> = LazyLock::new(Default::default);

impl Bed {
    fn of(word: &AtomicU32) -> &'static Self {
        // What has such words lies on cache lines of its own, mostly.
        &BEDS[core::ptr::from_ref(word).addr() / 64 % BEDS.len()]
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wait for System {
    /// The word is read under the bed's lock, which who wakes takes after it has changed the word. So either the new value is seen
    /// here, or this thread sleeps before it is woken.
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let bed = Bed::of(word);
        let guard = bed.lock();
        if word.load(Relaxed) == expected {
            drop(bed.woken.wait(guard));
        }
    }

    fn wake(&self, word: &AtomicU32) {
        let bed = Bed::of(word);
        drop(bed.lock());
        bed.woken.notify_all();
    }

    /// Nothing here waits for a time.
    fn wait_for(&self, word: &AtomicU32, expected: u32, _: Option<u64>) {
        self.wait(word, expected);
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        None
    }
}

impl Clock for System {
    fn now(&self) -> Time {
        Time(coarse_ns())
    }
}

/// The time since the first call, ns.
pub fn coarse_ns() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A number of the calling thread, which no other thread has meanwhile; not 0.
pub fn thread() -> usize {
    std::thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

/// A block of the program's allocator.
pub fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    debug_assert!(layout.size() > 0);
    // SAFETY: no caller wants an empty block.
    NonNull::new(unsafe { program::alloc(layout) })
}

/// A block of the program's allocator that reads as zero.
pub fn alloc_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    debug_assert!(layout.size() > 0);
    // SAFETY: no caller wants an empty block.
    NonNull::new(unsafe { program::alloc_zeroed(layout) })
}

/// Frees one.
///
/// # Safety
/// The block is from [`alloc`] or [`alloc_zeroed`] with that layout, and not used any more.
pub unsafe fn free(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { program::dealloc(block.as_ptr(), layout) }
}

/// Bytes that a block of that layout takes, about.
pub fn block_size(layout: Layout) -> usize {
    layout.size().checked_next_multiple_of(STEP).unwrap_or(usize::MAX)
}

/// Bytes that a block of the program's takes, about: it has a word of its allocator's.
pub fn program_block_size(layout: Layout) -> usize {
    match layout.size() {
        0 => 0,
        size => size.saturating_add(8).checked_next_multiple_of(STEP).unwrap_or(usize::MAX),
    }
}

/// A zone of the program's own: there are none.
#[derive(Debug)]
pub enum Zone {}

impl Zone {
    pub fn class(&self) -> ZoneClass {
        match *self {}
    }

    pub fn has_room(&self, _: usize) -> bool {
        match *self {}
    }

    pub fn contains(&self, _: usize) -> bool {
        match *self {}
    }

    pub fn is_foreign_at(&self, _: usize) -> bool {
        match *self {}
    }
}

pub fn alloc_in(zone: &'static Zone, _: Layout) -> Option<NonNull<u8>> {
    match *zone {}
}

pub fn alloc_first_in(zone: &'static Zone, _: Layout, _: usize) -> Option<NonNull<u8>> {
    match *zone {}
}

pub fn alloc_low32(_: Layout) -> Option<NonNull<u8>> {
    None
}

/// # Safety
/// There are no runs.
pub unsafe fn free_run(_: Option<&'static Zone>, _: NonNull<u8>, _: usize) {
    unreachable!("no run was allocated")
}

/// Without zones no entry lies in one.
#[inline]
pub fn has_foreign_entries() -> bool {
    false
}

/// The bound alone says how much a cache may have.
pub fn may_grow(_: usize) -> bool {
    true
}

/// Nothing lies below 4 GiB by request.
pub fn may_grow_low32(_: usize) -> bool {
    true
}

/// Nothing calls caches here, in a forked child or elsewhere.
pub fn serve_child() {}

/// CPUs that the process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Words that others cannot foresee.
pub fn random() -> [u64; 2] {
    [0, 1].map(|word| RandomState::new().hash_one(word))
}

/// Sleeps while `word` is `seen`, or for no reason, for what the thread `runner` computes. `false`: that thread waits for this one,
/// directly or through others.
pub fn wait_for(word: &AtomicU32, seen: u32, runner: usize) -> bool {
    /// Threads that wait, of all caches.
    struct List(Waits);
    // SAFETY: the waits are in the frames of threads that wait, and are read under the list's lock alone.
    unsafe impl Send for List {}
    static LIST: Lock<List, { rank::EVICTABLE_CACHES }> = Lock::new(List(Waits::new()));
    waits::wait_for((&LIST, |list| &mut list.0), system(), (thread(), runner), (word, seen))
}

/// How the process knows a cache: not at all.
pub struct Membership;

impl Membership {
    pub fn new<T>(_: NonNull<T>) -> Self {
        Self
    }
}
