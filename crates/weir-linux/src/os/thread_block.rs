//! The library's thread-local block: 96 bytes in each thread, found from the thread pointer by an offset that the
//! loader fills in. It needs no TLS destructor and no call. So it works in signal handlers, in forked children and in
//! threads that libc has no record of.
//!
//! It begins with 32 bytes laid out as an area of restartable sequences that says "no CPU" (`platform/fast_path/rseq.rs` says
//! what for). Behind that are
//!
//! - the thread's lock ranks (debug builds);
//! - whether the thread is one of Weir's own;
//! - whether it is in a callback for a limit that is reached;
//! - the heap profile's words for it ([`Sampling`]);
//! - the count of its aborted sections;
//! - whether the thread has registered its area ([`Registration`]).

use crate::arch::thread::{block_distance, thread_pointer};
pub use crate::arch::words::ABORTS;
use core::arch::global_asm;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use weir_core::platform::cpu_table::NO_CPU;

global_asm!(
    ".pushsection .tdata, \"awT\", @progbits",
    ".balign 32",
    ".hidden weir_thread_block",
    ".globl weir_thread_block",
    ".type weir_thread_block, @object",
    ".size weir_thread_block, 96",
    "weir_thread_block:",
    // cpu_id_start, cpu_id (not registered), rseq_cs, flags, node_id, mm_cid
    ".long {no_cpu}, -1, 0, 0, 0, 0, {no_cpu}, 0",
    ".zero 64",
    ".popsection",
    no_cpu = const NO_CPU,
);
/// Bytes of the block.
pub const BLOCK: isize = 96;
/// Where in the block the lock ranks are.
const RANKS: usize = 32;
/// Where in the block the mark of Weir's own threads is.
const OWN: usize = 36;
/// Where in the block it says that the thread is in the program's callback for a limit that is reached.
const IN_LIMIT: usize = 40;
/// Where in the block it says that the thread takes a sample of the heap profile.
const IN_SAMPLE: usize = 44;
/// Where in the block the bytes to the thread's next sample are: fast paths written by hand count them down.
pub const COUNTDOWN: usize = 48;
/// Where in the block the thread's random numbers are.
const RANDOM: usize = 56;
/// Where in the block the mean is with which the bytes to the thread's next sample were drawn.
const MEAN: usize = 64;
/// Where in the block the thread's processor time is at which its last sample ended.
const SAMPLED: usize = 72;
/// Where in the block the thread's [`Registration`] is.
const REGISTRATION: usize = 84;

/// Whether a thread registered its area by itself.
pub struct Registration;

impl Registration {
    /// The registration was not tried yet.
    pub const NEW: u32 = 0;
    /// The registration was tried, whatever came of it: it is not tried again.
    pub const TRIED: u32 = 1;
}

/// The heap profile's words of a thread. Each word is the thread's own: a signal handler on it may come between two
/// accesses, another thread may not.
pub struct Sampling {
    /// Bytes to the next sample; below 0: an allocation was the next.
    pub countdown: &'static AtomicI64,
    /// State of the random numbers; 0: none was drawn yet.
    pub random: &'static AtomicU64,
    /// The mean with which `countdown` was drawn.
    pub mean: &'static AtomicU64,
    /// The thread's processor time when its last sample ended, ns.
    pub sampled: &'static AtomicU64,
    /// 1 while a sample is taken.
    pub is_inside: &'static AtomicU32,
}

/// The calling thread's lock ranks.
pub fn ranks() -> &'static AtomicU32 {
    word(RANKS)
}

/// The calling thread's [`Registration`].
pub fn registration() -> &'static AtomicU32 {
    word(REGISTRATION)
}

/// A number that tells threads apart, for where there is no CPU index.
pub fn thread_number() -> usize {
    let pointer = thread_pointer();
    pointer >> 12 ^ pointer >> 20
}

/// Where a word of the calling thread's block is.
fn place(offset: usize) -> usize {
    thread_pointer().wrapping_add(block_distance()).wrapping_add(offset)
}

/// A word of the calling thread's block.
fn word(offset: usize) -> &'static AtomicU32 {
    // SAFETY: `offset` is one of those above, so the word lies in the calling thread's block, is aligned, and is
    // accessed by atomics alone. No reference outlives the thread: callers use it at once.
    unsafe { &*(place(offset) as *const AtomicU32) }
}

/// The heap profile's words of the calling thread.
pub fn sampling() -> Sampling {
    // SAFETY: the word lies in the calling thread's block, which is aligned to 32 bytes. It is accessed by atomics, or
    // by single instructions of this thread. No reference outlives the thread: callers use it at once.
    let countdown = unsafe { &*(place(COUNTDOWN) as *const AtomicI64) };
    // SAFETY: the same; `offset` is one of the three below.
    let long = |offset: usize| unsafe { &*(place(offset) as *const AtomicU64) };
    Sampling { countdown, random: long(RANDOM), mean: long(MEAN), sampled: long(SAMPLED), is_inside: word(IN_SAMPLE) }
}

/// Marks a thread that is about to start as Weir's own, which registers its area itself.
///
/// # Safety
/// `pointer` is the new thread's thread pointer; the block at its distance is mapped, writable and unused.
pub unsafe fn mark_own(pointer: usize) {
    for (word, value) in [(OWN, 1), (REGISTRATION, Registration::TRIED)] {
        let at = pointer.wrapping_add(block_distance()).wrapping_add(word) as *mut u32;
        // SAFETY: the caller says that the block is there; the word is aligned, as the block is to 32 bytes.
        unsafe { at.write(value) };
    }
}

/// The calling thread enters the callback for a limit that is reached; `false`: it is there already.
pub fn enter_limit() -> bool {
    word(IN_LIMIT).swap(1, core::sync::atomic::Ordering::Relaxed) == 0
}

/// Undoes [`enter_limit`].
pub fn leave_limit() {
    word(IN_LIMIT).store(0, core::sync::atomic::Ordering::Relaxed);
}

/// Whether the calling thread is one of Weir's own: made by `clone`, unknown to libc, with a descriptor table of its
/// own.
pub fn is_own_thread() -> bool {
    word(OWN).load(core::sync::atomic::Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_program_is_not_marked_and_has_its_own_ranks() {
        assert!(!is_own_thread());
        let other = std::thread::spawn(|| core::ptr::from_ref(ranks()) as usize).join().unwrap();
        assert_ne!(other, core::ptr::from_ref(ranks()) as usize);
    }
}
