//! The threads that wait until a callback has returned, as a list: to see whether one more wait would close a circle.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::Relaxed;

use super::callback::{Entry, LATE, NAMED, RUNNING, SCANNING};

/// The threads that wait until an entry does not run. Read and written under the lock of the registry's list alone.
pub(super) struct Waits(*mut Waiting);

// SAFETY: what the pointers lead to is read and written under the lock alone, by whichever thread has it.
unsafe impl Send for Waits {}

/// A thread that waits. It lives on that thread's stack, and is taken off before its frame ends.
pub(super) struct Waiting {
    thread: usize,
    entry: NonNull<Entry>,
    next: *mut Self,
}

impl Waiting {
    /// Thread `thread` waits for `entry`.
    pub(super) fn new(thread: usize, entry: NonNull<Entry>) -> Self {
        Self { thread, entry, next: null_mut() }
    }
}

impl Waits {
    /// No thread waits.
    pub(super) const fn new() -> Self {
        Self(null_mut())
    }

    /// Whether `entry` runs on thread `me`, or on one that waits, directly or through others, for an entry that does. It
    /// ends, as no wait that closes a circle is ever added.
    pub(super) fn lead_to(&self, entry: &Entry, me: usize) -> bool {
        let mut entry = entry;
        while entry.is(RUNNING) {
            let runner = entry.runner.load(Relaxed);
            if runner == me {
                return true;
            }
            // SAFETY: a wait is taken off before its frame ends, under the lock that the caller has.
            let mut waits = core::iter::successors(unsafe { self.0.as_ref() }, |wait| unsafe { wait.next.as_ref() });
            let Some(wait) = waits.find(|wait| wait.thread == runner) else { return false };
            // SAFETY: the thread that waits for an entry disposes of it after it has taken its wait off.
            entry = unsafe { wait.entry.as_ref() };
        }
        false
    }

    /// In a forked child: of the waits only those of thread `me` are there, which forked in a signal handler. What they wait for
    /// does not run any more, unless on that thread.
    pub(super) fn inherit(&mut self, me: usize) {
        let mut link = &raw mut self.0;
        // SAFETY: `link` is the head, or the link of a wait. The frame of a wait is on this thread's stack, or on the copy of
        // another's, which is memory of this process still. The entry that a wait is for is disposed of after it.
        unsafe {
            while let Some(wait) = (*link).as_mut() {
                if wait.thread != me {
                    *link = wait.next;
                    continue;
                }
                let entry = wait.entry.as_ref();
                if entry.is(RUNNING) && entry.runner.load(Relaxed) != me {
                    entry.clear(RUNNING | SCANNING | LATE | NAMED);
                }
                link = &raw mut wait.next;
            }
        }
    }

    /// Adds a wait.
    ///
    /// # Safety
    /// The wait stays where it is until it is taken off.
    pub(super) unsafe fn add(&mut self, wait: *mut Waiting) {
        // SAFETY: the caller's, and on no list yet.
        unsafe { (*wait).next = self.0 };
        self.0 = wait;
    }

    /// Takes a wait off.
    ///
    /// # Safety
    /// The wait is on the list.
    pub(super) unsafe fn remove(&mut self, wait: *mut Waiting) {
        let mut link = &raw mut self.0;
        // SAFETY: `link` is the head, or the link of a wait on the list, so its frame has not ended. The search ends, as the wait
        // is on the list.
        unsafe {
            while *link != wait {
                link = &raw mut (**link).next;
            }
            *link = (*wait).next;
        }
    }
}
