//! Restartable sequences: the area that libc registers for each thread, and whether the fast path can use it.
//!
//! A *section* is a stretch of instructions that the kernel sends back to its start if the thread was preempted, migrated or
//! signalled inside it. A thread announces one by storing the address of its descriptor (start, length, abort address) in its
//! rseq area. Every libc thread has such an area, at a fixed distance from the thread pointer. It is registered by glibc, from
//! 2.35 on. Where libc registers none, the library does (`own_registration.rs`).
//!
//! The library has a thread-local block of its own (`os/thread_block.rs`). The block is laid out as an area with the index
//! [`NO_CPU`]: that table entry is always the empty dummy. The sections (`arch/*/sections.rs`) address that block plus `DELTA`.
//! That is 0 until libc's area has been found to work, and then the distance to it. So sections are safe before anything was set
//! up, also for a thread that is inside a section at that moment. They are safe as well where there are no restartable sequences,
//! without a check of their own. Fast paths written by hand address [`AREA`] and save an addition; what keeps them out until that
//! is set is said there. [`ID`] is the field with the index: `mm_cid` where the kernel has it (dense: bounded by the number of
//! threads), or `cpu_id_start`.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use linux_raw_sys::general::__NR_rseq;
use weir_core::base::size_class::MAX_SIZE;
use weir_core::platform::cpu_table::NO_CPU;

use crate::arch::sections;
use crate::arch::thread::{block_distance, read_thread_word, thread_pointer};
use crate::arch::words::AREA_MM_CID;
pub use crate::arch::words::{DELTA, ID};
use crate::os::futex::{command, membarrier};
use crate::os::process::auxiliary_from_libc;
use crate::os::symbol::weak_symbol;
use crate::os::syscall::{check, syscall4};
use crate::os::thread_block::{self, BLOCK};
use crate::platform::fast_path::own_registration;
use crate::platform::fast_path::rseq_area::{
    AREA_BYTES, AREA_CPU_ID, AREA_CPU_ID_START, AREA_NODE_ID, Area, write_no_cpu,
};
use crate::platform::machine;

/// From the thread pointer to the area in use; 0 until [`enable`] was called. No fast path uses it before: an
/// allocation compares its size with [`FAST_SIZES`], a free finds that the window has no pages (see `Linux::window`).
pub static AREA: AtomicUsize = AtomicUsize::new(0);
/// Sizes below this take the fast path at once: none until [`enable`] found that there is one, and none while the heap
/// profile samples.
pub static FAST_SIZES: AtomicUsize = AtomicUsize::new(0);
/// Sizes below this take the fast path once they are counted off the thread's countdown: those of [`FAST_SIZES`], while the
/// heap profile samples.
pub static SAMPLED_SIZES: AtomicUsize = AtomicUsize::new(0);
/// [`enable`] found a fast path ([`IS_FAST`]), and the heap profile samples ([`IS_COUNTED`]).
static STATE: AtomicUsize = AtomicUsize::new(0);
const IS_FAST: usize = 1;
const IS_COUNTED: usize = 2;
/// One allocation in some is guarded, so that each is looked at.
const IS_GUARDED: usize = 4;
/// The program may have a `malloc` of its own.
const IS_UNUSED: usize = 8;

/// Auxiliary vector entry: bytes of the rseq area that the kernel fills.
const AT_RSEQ_FEATURE_SIZE: usize = 27;

weak_symbol!(
    /// Where libc's area lies, from the thread pointer.
    rseq_offset = "__rseq_offset": NonNull<isize>
);
weak_symbol!(
    /// Bytes of it that are filled; 0: it is not registered.
    rseq_size = "__rseq_size": NonNull<u32>
);

/// The area that libc registered for the calling thread, if it did.
pub fn area() -> Option<Area> {
    // SAFETY: libc's variables, when they exist, are set before any code of this library runs.
    let (offset, size) = unsafe { (rseq_offset()?.read(), rseq_size()?.read() as usize) };
    // SAFETY: libc's area of the calling thread.
    if size == 0 || (unsafe { read_thread_word(offset.wrapping_add_unsigned(AREA_CPU_ID)) } as i32) < 0 {
        return None;
    }
    // 20 and 32 are what a libc reports that does not read the kernel's size; it is in the auxiliary vector then.
    let filled = match size {
        20 | 32 => auxiliary_from_libc(AT_RSEQ_FEATURE_SIZE).map_or(size, |filled| filled.clamp(16, 32)),
        _ => size,
    };
    Some(Area::new(offset, filled))
}

/// Puts the fast path on restartable sequences if all it needs is there. That is an area, a table big enough for every index, and
/// the fence that takes another CPU's buckets over.
///
/// A section that another thread has begun on its block before ends there, on the dummy.
pub fn enable(max_cpus: usize) -> bool {
    AREA.store(block_distance(), Relaxed);
    let of_libc = area();
    if of_libc.is_none() && rseq_size().is_some() {
        return false; // libc was told to leave it
    }
    if machine::cpus_bound() > max_cpus || membarrier(command::REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).is_err() {
        return false;
    }
    let Some(area) = of_libc.or_else(own_registration::begin) else { return false };
    let id = if area.mm_cid { AREA_MM_CID } else { AREA_CPU_ID_START };
    ID.store(id, Relaxed);
    // Whoever sees libc's area sees which field of it is filled: in any other, zeros would be an index.
    DELTA.store((area.offset as usize).wrapping_sub(block_distance()), Release);
    AREA.store(area.offset as usize, Relaxed);
    STATE.fetch_or(IS_FAST, SeqCst);
    show_state();
    true
}

/// The heap profile counts the program's allocations from now on, or no longer.
pub(crate) fn set_counted(is_counted: bool) {
    set(IS_COUNTED, is_counted);
}

/// Allocations are looked at for guarding from now on, or no longer.
pub(crate) fn set_guarded(is_guarded: bool) {
    set(IS_GUARDED, is_guarded);
}

/// No hand-written fast path of an allocation is taken from now on, or again. For a library that does not know yet whether it is
/// the program's malloc.
pub fn set_unused(is_unused: bool) {
    set(IS_UNUSED, is_unused);
}

fn set(what: usize, is_on: bool) {
    if is_on {
        STATE.fetch_or(what, SeqCst);
    } else {
        STATE.fetch_and(!what, SeqCst);
    }
    show_state();
}

/// Whether allocations are counted for the heap profile, or looked at for guarding.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    STATE.load(Relaxed) & (IS_COUNTED | IS_GUARDED) != 0
}

/// Sets the two sizes as the state says. Threads may do it at once. Each looks at the state again behind its stores, so that the
/// last of them leaves what the last state says. In between an allocation is not counted, or takes the slow path.
fn show_state() {
    let mut state = STATE.load(SeqCst);
    loop {
        let sizes = if state & (IS_FAST | IS_UNUSED) == IS_FAST { MAX_SIZE + 1 } else { 0 };
        let (is_counted, is_guarded) = (state & IS_COUNTED != 0, state & IS_GUARDED != 0);
        FAST_SIZES.store(if is_counted || is_guarded { 0 } else { sizes }, SeqCst);
        SAMPLED_SIZES.store(if is_counted && !is_guarded { sizes } else { 0 }, SeqCst);
        let now = STATE.load(SeqCst);
        if now == state {
            return;
        }
        state = now;
    }
}

/// Restarts every section that a thread of this process is in. `false`: refused, by a sandbox that came after the
/// registration, or the kernel has no memory for it.
pub fn fence() -> bool {
    membarrier(command::PRIVATE_EXPEDITED_RSEQ, 0, 0).is_ok()
}

/// How far from its thread pointer a thread's areas reach: bytes below and above.
pub(crate) fn reach() -> (usize, usize) {
    let block = block_distance() as isize;
    let area = block.wrapping_add(DELTA.load(Relaxed) as isize);
    let below = block.min(area).min(0).unsigned_abs();
    (below, (block.max(area) + BLOCK).max(0) as usize)
}

/// Lays out the areas of a thread that libc has no record of.
///
/// # Safety
/// `pointer` is a new thread's thread pointer; the bytes that [`reach`] names around it are mapped and unused.
pub(crate) unsafe fn lay_out(pointer: usize) {
    let block = pointer.wrapping_add(block_distance());
    // SAFETY: the block lies in the bytes that `reach` names, which the caller says are mapped and unused.
    unsafe { thread_block::mark_own(pointer) };
    for area in [block, block.wrapping_add(DELTA.load(Relaxed))] {
        // SAFETY: both areas lie in the bytes that `reach` names, which are the caller's.
        unsafe { write_no_cpu(area) };
    }
}

/// Has the kernel keep the calling thread's area, which [`lay_out`] made, or (`keep` false) no longer. Where the kernel
/// refuses, the thread's sections all find the dummy.
pub(crate) fn register(keep: bool) -> bool {
    const UNREGISTER: usize = 1;
    let delta = DELTA.load(Relaxed);
    if delta == 0 && !own_registration::is_on() {
        return true;
    }
    let area = thread_pointer().wrapping_add(block_distance()).wrapping_add(delta);
    // SAFETY: the area is the calling thread's own, and lives until it is unregistered.
    check(unsafe {
        syscall4(__NR_rseq, area, AREA_BYTES, if keep { 0 } else { UNREGISTER }, sections::SIGNATURE as usize)
    })
    .is_ok()
}

/// The current index; it may be stale at once. A thread that libc does not register is registered first.
#[inline]
pub fn index() -> usize {
    let index = index_now();
    if index == NO_CPU && own_registration::is_on() && own_registration::register_once() { index_now() } else { index }
}

/// Whether indices are dense: below the number of threads that live.
pub(crate) fn is_dense() -> bool {
    ID.load(Relaxed) == AREA_MM_CID
}

#[inline]
fn index_now() -> usize {
    let distance = block_distance().wrapping_add(DELTA.load(Acquire)).wrapping_add(ID.load(Relaxed));
    // SAFETY: a word of the area in use, which is libc's or this library's.
    unsafe { read_thread_word(distance as isize) as usize }
}

/// The current NUMA node, where the area has it.
pub fn node(area: Area) -> usize {
    // SAFETY: a word of libc's area.
    unsafe { read_thread_word(area.offset.wrapping_add_unsigned(AREA_NODE_ID)) as usize }
}
