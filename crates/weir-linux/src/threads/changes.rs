//! Changes that a program makes to itself as a whole, and the background thread, which must not be there meanwhile.
//!
//! The kernel refuses some changes to a process of several threads (`unshare(CLONE_NEWUSER)`, `setns` into a user or
//! mount namespace). Others bind the calling thread alone, or those that libc has a record of (`chroot` after
//! `unshare(CLONE_FS)`, `setuid`). Whoever makes such a change ends the background thread before it, or after it, and
//! starts another.
//!
//! Protocol: the changer counts `holds` up, then `count`, and then looks for a thread. The starter marks the thread as
//! starting, then reads `count`, which the thread compares before it sleeps and after, then `holds`, which must be 0.
//! All of it in one order for all (`SeqCst`), so that one of the two sees the other. The interleavings that this
//! excludes:
//! - without that order a starter could read `holds` as 0 while the changer finds no thread, and there would be a
//!   thread during the change;
//! - if `holds` were read first, the changer could count both up between the two reads. It would wait for a thread that
//!   has read the new count, sees no change and stays.
//!
//! A thread that ends because of a change, or is not started, notes that in `owed` before it is gone. The thread that counts
//! `holds` down to 0 reads the note after. If the changer took the note instead, it could find no thread where one has
//! just ended because of its count. Of two changes the first, which ended the thread, could find the second under way.

use core::sync::atomic::Ordering::SeqCst;

use crate::os::clock::monotonic_ns;
use crate::os::sync::{AtomicU32, constructor};

/// How long a change waits for the thread's end. The thread may be releasing memory, which takes it some 100 ms for a
/// GiB of small pages.
const END_NS: u64 = 1_000_000_000;

/// The thread that may not be there during a change.
pub trait Suspend {
    /// Whether the calling process is the one that the thread belongs to, and not a child of `vfork`.
    fn is_of_this_process(&self) -> bool;
    /// Ends the thread and waits until it is gone, at most until `deadline` (ns of the monotonic clock).
    fn end_before(&self, deadline: u64);
    /// Starts a thread in place of one that a change ended.
    fn start_again(&self);
}

/// The changes under way and those that were.
#[derive(Debug, Default)]
pub struct Changes {
    /// Changes under way.
    holds: AtomicU32,
    /// Changes ever made.
    count: AtomicU32,
    /// 1: a thread was ended, or not started, because of a change, and none was started since.
    owed: AtomicU32,
}

impl Changes {
    constructor! {
        /// No change yet.
        pub fn new() -> Self {
            Self { holds: AtomicU32::new(0), count: AtomicU32::new(0), owed: AtomicU32::new(0) }
        }
    }

    /// Makes a call while `thread` is not there.
    ///
    /// In a child of `vfork`, which shares its parent's memory and nothing else of it, the thread is left alone.
    pub fn without_thread<R>(&self, thread: &impl Suspend, call: impl FnOnce() -> R) -> R {
        if !thread.is_of_this_process() {
            return call();
        }
        self.holds.fetch_add(1, SeqCst);
        self.count.fetch_add(1, SeqCst);
        thread.end_before(monotonic_ns() + END_NS);
        let result = call();
        // A child that was forked meanwhile has none.
        let _ = self.holds.fetch_update(SeqCst, SeqCst, |holds| holds.checked_sub(1));
        // A start that another change refuses meanwhile is owed again.
        while !self.are_under_way() && self.owed.swap(0, SeqCst) != 0 {
            thread.start_again();
        }
        result
    }

    /// A thread is to be started after the change that is under way.
    pub(crate) fn owe(&self) {
        self.owed.store(1, SeqCst);
    }

    /// In a forked child: the changes that were under way are its parent's.
    pub(crate) fn forget(&self) {
        self.holds.store(0, SeqCst);
        self.owed.store(0, SeqCst);
    }

    /// Whether a change is under way.
    pub(crate) fn are_under_way(&self) -> bool {
        self.holds.load(SeqCst) != 0
    }

    /// How many changes there were.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(SeqCst)
    }
}
