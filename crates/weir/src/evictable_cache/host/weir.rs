//! What Weir has for its caches.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use weir_core::base::units::PAGE;
use weir_linux::os::process::random_words;
use weir_linux::platform::machine::possible_cpus;
use weir_linux::platform::statics::TUNABLES;
use weir_linux::process::callbacks::{self, Registration};
use weir_linux::process::evictable_list::{self, Evictable, Node};
use weir_linux::process::heap::HEAP;

pub use crate::heap::{block_size, program_block_size};
pub use crate::zone::{MAX_RUN, Zone};
pub use weir_linux::arch::thread::thread_pointer as thread;
pub use weir_linux::os::clock::coarse_ns;
pub use weir_linux::platform::linux::Linux as System;

use crate::heap;

/// Alignment of every block of the heap.
const HEAP_ALIGN: usize = 16;

/// Whether somebody says when memory is short.
pub fn hears_pressure() -> bool {
    TUNABLES.background.get() != 0
}

/// The platform of locks and clocks.
#[inline]
pub fn system() -> &'static System {
    HEAP.platform()
}

/// A block of Weir's heap.
#[inline]
pub fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    NonNull::new(match layout.align() <= HEAP_ALIGN {
        true => heap::alloc(layout.size()),
        false => heap::alloc_aligned(layout.align(), layout.size()),
    })
}

/// A block of Weir's heap that reads as zero, aligned to 16.
pub fn alloc_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    debug_assert!(layout.align() <= HEAP_ALIGN);
    NonNull::new(heap::alloc_zeroed(layout.size()))
}

/// Frees one.
///
/// # Safety
/// The block is from [`alloc`] or [`alloc_zeroed`] with that layout, and not used any more.
#[inline]
pub unsafe fn free(block: NonNull<u8>, layout: Layout) {
    match layout.align() <= HEAP_ALIGN {
        // SAFETY: a block of the heap of that size, which the caller gives up, and which was never resized.
        true => unsafe { heap::free_sized(block.as_ptr(), layout.size()) },
        // SAFETY: a block of the heap, which the caller gives up.
        false => unsafe { heap::free(block.as_ptr()) },
    }
}

/// A run of whole pages of a zone.
pub fn alloc_in(zone: &'static Zone, layout: Layout) -> Option<NonNull<u8>> {
    Some(zone.alloc_aligned(layout.size(), layout.align().max(PAGE))?.into_raw().cast())
}

/// A run of whole pages of a zone, or where that is at its low mark of the heap, then `size` bytes.
pub fn alloc_first_in(zone: &'static Zone, layout: Layout, size: usize) -> Option<NonNull<u8>> {
    match zone.alloc_first_aligned(layout.size(), layout.align().max(PAGE)) {
        Some(run) => Some(run.into_raw().cast()),
        None => NonNull::new(heap::alloc_aligned(layout.align().max(PAGE), size)),
    }
}

/// A run of whole pages below 4 GiB.
pub fn alloc_low32(layout: Layout) -> Option<NonNull<u8>> {
    if layout.align() <= PAGE { NonNull::new(heap::alloc_low32(layout.size())) } else { None }
}

/// Frees a run of whole pages that [`alloc_in`], [`alloc_first_in`] or [`alloc_low32`] gave.
///
/// # Safety
/// The run is of that zone or of the heap, has `size` bytes, and is not used any more.
pub unsafe fn free_run(zone: Option<&'static Zone>, block: NonNull<u8>, size: usize) {
    match zone.filter(|zone| zone.contains(block.addr().get())) {
        // SAFETY: a run of the zone, whole, by the caller's promise.
        Some(zone) => drop(unsafe { zone.pages_from_raw(NonNull::slice_from_raw_parts(block, size)) }),
        // SAFETY: a block of the heap, which the caller gives up.
        None => unsafe { heap::free(block.as_ptr()) },
    }
}

/// Whether a cache of this process has, or had, entries in a zone of the parent's.
static HAS_FOREIGN_ENTRIES: AtomicBool = AtomicBool::new(false);

/// Whether entries of a cache may lie in a zone of the parent's: in a forked child alone. Asked at the end of every hold.
#[inline]
pub fn has_foreign_entries() -> bool {
    HAS_FOREIGN_ENTRIES.load(Relaxed)
}

/// In a forked child: entries of a cache lie in a zone of the parent's.
pub fn note_foreign_entries() {
    HAS_FOREIGN_ENTRIES.store(true, Relaxed);
}

/// Whether this is a forked child in which no thread calls caches yet: reclaim's calls of its parent's caches wait for one.
static IS_UNSERVED: AtomicBool = AtomicBool::new(false);

/// In a forked child that has caches of its parent's.
pub(super) fn note_child() {
    IS_UNSERVED.store(true, Relaxed);
}

/// Before an entry's memory is taken, under no lock: a forked child makes the threads that call its caches. None is made inside
/// `fork`, since most children execute a program. Such a child never comes here.
#[inline]
pub fn serve_child() {
    if IS_UNSERVED.load(Relaxed) {
        serve_again();
    }
}

#[cold]
#[inline(never)]
fn serve_again() {
    if IS_UNSERVED.swap(false, Relaxed) {
        callbacks::resume();
    }
}

/// Whether there is memory for caches to have so many bytes more.
pub fn may_grow(bytes: usize) -> bool {
    HEAP.may_grow(bytes)
}

/// Whether there is for caches below 4 GiB.
pub fn may_grow_low32(bytes: usize) -> bool {
    HEAP.may_grow_low32(bytes)
}

/// CPUs that the process may have.
pub fn cpus() -> usize {
    possible_cpus().map_or(1, |(count, _)| count)
}

/// Words that others cannot foresee.
pub fn random() -> [u64; 2] {
    random_words().map(|word| word as u64)
}

/// Sleeps while `word` is `seen`, or for no reason, for what the thread `runner` computes. `false`: that thread waits for this one,
/// directly or through others.
pub fn wait_for(word: &AtomicU32, seen: u32, runner: usize) -> bool {
    evictable_list::wait_for(HEAP.platform(), word, seen, runner)
}

/// How the process knows a cache: its place among those that `fork` and figures see, and what reclaim calls.
pub struct Membership {
    pub(super) node: Node,
    /// Written before the cache is given out, and taken at its end; reclaim, which may call meanwhile, does not read it.
    pub(super) registrations: UnsafeCell<[Option<Registration>; 2]>,
}

impl Membership {
    /// Of a cache that the process does not know yet.
    pub fn new<E: Evictable + 'static>(cache: NonNull<E>) -> Self {
        Self { node: Node::new(cache), registrations: UnsafeCell::new([None, None]) }
    }
}
