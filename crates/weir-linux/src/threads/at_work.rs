//! Weir's own threads at work in the heap, for a `fork` of a program that has one thread. That thread holds no lock of the heap's,
//! and the only others that may are Weir's. A `fork` that holds these up needs to take no lock, so that it writes to none of the
//! pages that locks lie in: parent and child would copy each.
//!
//! A thread of Weir's calls [`AtWork::begin`] before it uses the heap, and [`AtWork::end`] before it waits for something to do. A
//! `fork` calls [`AtWork::hold_up`], which fails while any is at work. Then the `fork` takes the locks, as one of a program of
//! several threads does.
//!
//! The interleaving this excludes: the `fork` finds that none is at work, one begins and takes a lock, and the process is copied.
//! In the child the lock is held by a thread that is not there. One word holds the number at work and whether they are held up.
//! Both change by an exchange of the whole word: who begins finds the mark, or the `fork` finds the number.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::os::futex::{futex_wait, futex_wake};
use crate::os::sync::{AtomicU32, constructor};

/// The process' own.
#[cfg(not(loom))]
pub static AT_WORK: AtWork = AtWork::new();

/// Who begins waits for the end of a `fork`.
const HELD_UP: u32 = 1 << 31;
/// One waits.
const AWAITED: u32 = 1 << 30;

/// See the module.
pub struct AtWork {
    /// Threads at work, or the marks.
    word: AtomicU32,
}

#[allow(clippy::new_without_default, reason = "a model checker's have no constant constructor")]
impl AtWork {
    constructor! {
        /// None is at work.
        pub fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    /// The calling thread, one of Weir's, begins to use the heap. It waits while a `fork` holds it up.
    pub fn begin(&self) {
        let mut word = self.word.load(Relaxed);
        loop {
            let next = if word & HELD_UP == 0 { word + 1 } else { word | AWAITED };
            match self.word.compare_exchange(word, next, Acquire, Relaxed) {
                Ok(_) if word & HELD_UP == 0 => return,
                Ok(_) => {
                    let _ = futex_wait(&self.word, next, None);
                    word = self.word.load(Relaxed);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Undoes [`AtWork::begin`], on the same thread.
    pub fn end(&self) {
        self.word.fetch_sub(1, Release);
    }

    /// Has threads of Weir's wait before they begin, until [`AtWork::go_on`]; `false` if one is at work.
    pub fn hold_up(&self) -> bool {
        self.word.compare_exchange(0, HELD_UP, Acquire, Relaxed).is_ok()
    }

    /// Undoes [`AtWork::hold_up`], in the parent.
    pub fn go_on(&self) {
        if self.word.swap(0, Release) & AWAITED != 0 {
            let _ = futex_wake(&self.word, i32::MAX as u32);
        }
    }

    /// In a forked child, which has no thread of Weir's. A signal handler's `fork` may have interrupted another, which goes on in
    /// both: what holds threads up stays until its end.
    pub fn forget(&self) {
        self.word.store(self.word.load(Relaxed) & HELD_UP, Relaxed);
    }
}
