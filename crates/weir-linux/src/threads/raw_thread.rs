//! A thread that libc has no record of: no TLS of its own, no allocation, no stack guard of libc's.
//!
//! `pthread_create` allocates and takes libc's locks, and Weir starts its thread from inside `malloc`. So the thread is
//! made by `clone`. It has a block of zeros where its thread pointer points, and all its signals are blocked. It runs
//! Weir's code alone, and callbacks of a program that uses Weir's API. These may allocate: the thread has a
//! restartable-sequence area like any other. There is at most one at a time in each [`RawThread`].

use crate::arch::thread;
use crate::os::clock::monotonic_ns;
use crate::os::futex::{futex_wait_shared, pause};
use crate::os::mman::{self, PROT_NONE};
use crate::os::page;
use crate::os::process::getpid;
use crate::os::signals::{set_signal_mask, tgkill};
use crate::platform::fast_path::rseq;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use linux_raw_sys::general as sys;

/// Bytes of stack: the deepest path holds a few arrays of 2 to 8 KiB (a report's runs, the status file of another
/// thread).
const STACK: usize = 64 << 10;
/// Bytes below and above the thread pointer at least: static TLS lies below, libc's thread header above.
const TLS: usize = 32 << 10;

/// The function that a thread runs: its two arguments are those of [`RawThread::spawn`].
pub type Body = extern "C" fn(usize, usize) -> !;

/// Claimed, and not yet mapped.
const CLAIMED: usize = 1;

/// Room for one thread: its memory and whether it is there. A static, as the kernel writes to it when the thread ends.
pub struct RawThread {
    /// Address of stack and thread-local memory; 0 while there is no thread.
    memory: AtomicUsize,
    length: AtomicUsize,
    /// The thread's id. The kernel sets it to 0, and wakes who waits, when the thread ends for whatever reason
    /// (`CLONE_CHILD_CLEARTID`). A thread that has left still does that: the next one is started after it only.
    alive: AtomicU32,
    /// The id of the thread that was started last.
    id: AtomicU32,
    /// The kernel may write to the thread's restartable-sequence area.
    is_registered: AtomicBool,
}

impl RawThread {
    /// No thread.
    pub const fn new() -> Self {
        Self {
            memory: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            alive: AtomicU32::new(0),
            id: AtomicU32::new(0),
            is_registered: AtomicBool::new(false),
        }
    }

    /// Starts `body`, which is given `owner` and `number`, on a new thread; its id. `None`: memory or the thread was
    /// refused, or there is one that has not ended.
    pub fn spawn(&self, body: Body, owner: usize, number: usize) -> Option<u32> {
        self.memory.compare_exchange(0, CLAIMED, AcqRel, Acquire).ok()?;
        if self.is_alive() {
            self.memory.store(0, Release);
            return None;
        }
        let Ok(mask) = set_signal_mask(u64::MAX) else {
            self.memory.store(0, Release);
            return None;
        };
        let flags = sys::CLONE_VM
            | sys::CLONE_FS
            | sys::CLONE_FILES
            | sys::CLONE_SIGHAND
            | sys::CLONE_THREAD
            | sys::CLONE_SYSVSEM
            | sys::CLONE_SETTLS
            | sys::CLONE_PARENT_SETTID
            | sys::CLONE_CHILD_CLEARTID;
        let started = self.lay_out().and_then(|(top, pointer)| {
            // SAFETY: the child runs on its own stack and never returns from `body`; the parent goes on as if nothing
            // was. The kernel writes the id to a word that stays: a `RawThread` is a static.
            let thread =
                unsafe { thread::clone(flags as usize, top, self.alive.as_ptr(), pointer, body, owner, number) };
            u32::try_from(thread).ok()
        });
        let _ = set_signal_mask(mask);
        self.id.store(started.unwrap_or(0), Relaxed);
        if started.is_none() {
            // SAFETY: the thread was refused.
            unsafe { self.forget() };
        }
        started
    }

    /// Maps the memory; the upper end of its stack, and where its thread pointer points.
    fn lay_out(&self) -> Option<(usize, usize)> {
        // A program may have so much static TLS that the library's share of it lies far below the thread pointer.
        let (below, above) = rseq::reach();
        // A page at either end may not be touched. The upper one keeps the kernel from merging the memory with a block's
        // above: then all of the block would pass for a stack.
        let guard = page::bytes();
        let below = below.max(TLS).next_multiple_of(guard);
        let length = guard + STACK + below + above.max(TLS).next_multiple_of(guard) + guard;
        let memory = mman::mmap_anonymous(length, 0).ok()?;
        let top = memory as usize + guard + STACK;
        let pointer = top + below;
        // SAFETY: fresh memory of this function's.
        unsafe {
            for end in [memory, memory.add(length - guard)] {
                let _ = mman::mprotect(end, guard, PROT_NONE);
            }
            thread::lay_out_header(pointer);
            rseq::lay_out(pointer);
        }
        self.length.store(length, Relaxed);
        self.memory.store(memory as usize, Release);
        Some((top, pointer))
    }

    /// Whether there is a thread that uses the memory or its place.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Acquire) != 0
    }

    /// The id of the thread; 0 if there is none.
    pub fn id(&self) -> u32 {
        self.alive.load(Acquire)
    }

    /// The word that the kernel sets to 0 when the thread ends.
    pub fn word(&self) -> &AtomicU32 {
        &self.alive
    }

    /// Waits until the kernel has removed the thread, which is about to end; gives up at `deadline`, a time of the
    /// monotonic clock. The kernel clears `alive` before it drops the thread's root directory and before it takes the
    /// thread out of the process. So both are waited for.
    pub fn wait_gone(&self, deadline: u64) {
        loop {
            let (thread, now) = (self.alive.load(Acquire), monotonic_ns());
            if thread == 0 || now >= deadline {
                break;
            }
            let _ = futex_wait_shared(&self.alive, thread, deadline - now);
        }
        // A few microseconds, unless its CPU is taken from it, or a tracer does not reap it.
        let thread = self.id.load(Relaxed);
        let mut round = 0;
        while thread != 0 && tgkill(getpid(), thread, 0).is_ok() && monotonic_ns() < deadline {
            pause(round);
            round += 1;
        }
        // Its number may become another thread's.
        let _ = self.id.compare_exchange(thread, 0, Relaxed, Relaxed);
    }

    /// Unmaps the memory of a thread that is not there: it was refused, or is the parent's of a forked child.
    ///
    /// # Safety
    /// The thread is not there.
    pub unsafe fn forget(&self) {
        self.alive.store(0, Release);
        self.id.store(0, Relaxed);
        let memory = self.memory.swap(0, Acquire);
        if memory > CLAIMED {
            // SAFETY: mapped by `lay_out`, and no thread runs on it, as the caller promises.
            let _ = unsafe { mman::munmap(memory as *mut u8, self.length.load(Relaxed)) };
        }
    }

    /// Whether the caller is the thread.
    pub fn is_here(&self) -> bool {
        let (memory, here) = (self.memory.load(Relaxed), 0u8);
        memory > CLAIMED && (memory..memory + self.length.load(Relaxed)).contains(&(&raw const here as usize))
    }

    /// On the thread, before it uses the heap: has the kernel keep its restartable-sequence area. Where the kernel refuses, its
    /// sections all find the dummy.
    pub fn register(&self) {
        self.is_registered.store(rseq::register(true), Relaxed);
    }

    /// On the thread: from now on another one may be started.
    pub fn leave(&self) -> Exit {
        // These first: the next thread may set others as soon as the memory is given up.
        let (length, is_registered) = (self.length.load(Relaxed), self.is_registered.load(Relaxed));
        Exit { memory: self.memory.swap(0, AcqRel), length, is_registered }
    }
}

/// The end of the calling thread, which unmaps its own memory.
pub struct Exit {
    memory: usize,
    length: usize,
    is_registered: bool,
}

impl Exit {
    /// Ends the thread. If it is the process's last, the process ends with `status` (from Linux 5.17 on; with the main
    /// thread's before).
    pub fn end(self, status: i32) -> ! {
        if self.is_registered && !rseq::register(false) {
            // The kernel may still write to the area: then its memory stays.
            crate::os::process::exit(status);
        }
        // SAFETY: nothing of the memory is used any more, and all signals are blocked.
        unsafe { thread::unmap_and_exit(self.memory, self.length, status) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::futex::is_readable;
    use crate::os::thread_block::is_own_thread;

    static THREAD: RawThread = RawThread::new();
    /// Record of what the thread was given and saw: owner, number, and 1 if it is marked as Weir's own, on its own stack, and
    /// between two pages that may not be touched.
    static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    extern "C" fn body(owner: usize, number: usize) -> ! {
        THREAD.register();
        let memory = THREAD.memory.load(Relaxed);
        let (end, guard) = (memory + THREAD.length.load(Relaxed), page::bytes());
        let is_guarded =
            [memory, memory + guard, end - guard - 4, end - 4].map(is_readable) == [false, true, true, false];
        let is_own = is_own_thread() && THREAD.is_here() && is_guarded;
        for (seen, value) in SEEN.iter().zip([owner, number, usize::from(is_own)]) {
            seen.store(value, Relaxed);
        }
        THREAD.leave().end(0)
    }

    #[test]
    fn a_thread_gets_its_arguments_is_marked_and_is_waited_for() {
        for round in 1..=3 {
            assert!(THREAD.spawn(body, 7, round).is_some());
            THREAD.wait_gone(monotonic_ns() + 10_000_000_000);
            assert!(!THREAD.is_alive() && THREAD.id() == 0);
            assert_eq!(SEEN.each_ref().map(|seen| seen.load(Relaxed)), [7, round, 1]);
        }
        assert!(!is_own_thread() && !THREAD.is_here());
    }
}
