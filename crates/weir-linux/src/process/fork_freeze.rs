//! The heap while a `fork` holds its locks, and the way out where that `fork` waits for a thread that waits for the
//! heap.
//!
//! `prepare` freezes the heap, and libc goes on: it calls the handlers that were registered before ours, and takes
//! locks of its own. If another thread holds one of those and allocates under it, the two wait for each other. Which
//! locks those are depends on libc and the program (`fork.rs` lists the known ones), so no order of locks keeps all
//! such threads out. Instead, a thread that has waited for a lock of the heap for
//! [`crate::process::heap::LONG_WAIT_NS`] looks at the thread that forks. If that sleeps in a `futex` call of libc's,
//! it can not be copying the process. Then the waiting thread opens the heap in its place. The forking thread goes on
//! when it gets its lock, and finds that there is nothing to open.
//!
//! The price is the child's: its copy of the heap is one that other threads were changing. The locks that they held
//! stay held there. POSIX lets such a child do little else than execute a program, which needs no heap. A child that
//! waits for a lock of a thread that it does not have ends with a message.
//!
//! [`FORK`] is 0, or the forking thread's word of lock ranks (an address, which is the same in the child) and a state.
//! Only the forking thread takes `FROZEN` back to 0. One waiting thread takes it to `LOOKING`, from there back or to
//! `OPENING`, and to `OPENED` at last. The forking thread waits for the end of that. Two interleavings are excluded by
//! this. Both open the heap, the second a lock that a third thread has taken since. And the look is at one fork, the
//! opening at the next.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::messages;
use crate::os::process::gettid;
use crate::os::sync::{AtomicBool, AtomicU32, AtomicUsize, shared};
use crate::os::tasks;
use crate::os::tasks::sched_yield;
use crate::os::thread_block::ranks;
use crate::platform::linux::Engine;

const LOOKING: usize = 0;
const FROZEN: usize = 1;
const OPENING: usize = 2;
const OPENED: usize = 3;
const STATE: usize = 3;

shared! {
    static FORK: AtomicUsize = AtomicUsize::new(0);
    /// The forking thread; meant where `FORK` is not 0.
    static THREAD: AtomicU32 = AtomicU32::new(0);
    /// In a child whose parent's heap was opened while it was copied.
    static TORN: AtomicBool = AtomicBool::new(false);
}

fn this_thread() -> usize {
    core::ptr::from_ref(ranks()) as usize
}

/// Takes all locks of the heap, unless a signal handler that interrupted the heap forks. With `may_look` another thread
/// may open it, which reads a file first.
pub(crate) fn freeze(heap: &Engine, may_look: bool) {
    let is_nested = ranks().load(Relaxed) != 0;
    heap.fork().freeze();
    // A fork that found the heap opened has perhaps not ended: then this one is not recorded, and no thread opens it.
    if may_look && !is_nested && !heap.fork().is_alone() && FORK.load(Relaxed) == 0 {
        THREAD.store(gettid(), Relaxed);
        FORK.store(this_thread() | FROZEN, Release);
    }
}

/// Undoes [`freeze`], in the parent.
///
/// # Safety
/// Follows [`freeze`] on the same thread.
pub(crate) unsafe fn thaw(heap: &Engine) {
    if heap.fork().is_nested() || !was_opened(this_thread()) {
        // SAFETY: this thread froze the heap, and no other thread has opened it.
        let _ = unsafe { heap.fork().thaw() };
    } else {
        ranks().store(0, Relaxed);
    }
}

/// Undoes [`freeze`], in the child.
///
/// # Safety
/// Follows [`freeze`] on the same thread, whose copy is the child's only thread.
pub(crate) unsafe fn thaw_child(heap: &Engine) {
    if heap.fork().is_nested() {
        // SAFETY: this is the child of a fork in a signal handler, whose `freeze` on this thread took no lock.
        return unsafe { heap.fork().thaw_child() };
    }
    let fork = FORK.swap(0, Relaxed);
    if fork & !STATE == this_thread() && matches!(fork & STATE, OPENING | OPENED) {
        TORN.store(true, Relaxed);
        ranks().store(0, Relaxed);
    } else {
        // SAFETY: the parent's copy of this thread froze the heap, and no other thread has opened it.
        unsafe { heap.fork().thaw_child() };
    }
}

/// Ends the record of this thread's fork; whether another thread has opened the heap.
fn was_opened(me: usize) -> bool {
    loop {
        let fork = FORK.load(Acquire);
        if fork & !STATE != me {
            return false;
        }
        match fork & STATE {
            FROZEN if FORK.compare_exchange(fork, 0, AcqRel, Relaxed).is_ok() => return false,
            OPENED => break,
            _ => sched_yield(),
        }
    }
    FORK.store(0, Release);
    true
}

/// The calling thread has waited for a lock of the heap for [`crate::process::heap::LONG_WAIT_NS`].
#[cold]
pub(crate) fn waited_long(heap: &Engine) {
    if TORN.load(Relaxed) {
        messages::torn_by_fork();
    }
    let fork = FORK.load(Acquire);
    let me = fork & !STATE;
    if fork != me | FROZEN || FORK.compare_exchange(fork, me | LOOKING, AcqRel, Relaxed).is_err() {
        return;
    }
    if !tasks::sleeps_in_futex(THREAD.load(Relaxed)) {
        return FORK.store(me | FROZEN, Release);
    }
    FORK.store(me | OPENING, Release);
    // What this thread waits for is noted in its word, which opening clears. Until then it is not 0, so that a fork in
    // a signal handler takes nothing.
    let held = ranks();
    let waiting_for = held.swap(1, Relaxed);
    // SAFETY: the forking thread holds all locks and, since the exchange, leaves it to this one to open them.
    unsafe { heap.fork().thaw() };
    held.store(waiting_for, Relaxed);
    FORK.store(me | OPENED, Release);
}
