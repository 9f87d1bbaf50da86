//! The background thread out of the way of what a program does to itself as a whole.
//!
//! The kernel refuses some changes to a process of several threads (`unshare(CLONE_NEWUSER)`, `setns` into a user or mount
//! namespace), and others bind the calling thread alone, or those that libc knows (`chroot` after `unshare(CLONE_FS)`,
//! `setuid`). Who makes such a change has the background thread end first, or after it, and starts another.
//!
//! Protocol: who changes something counts `HOLDS` up, then `CHANGES`, and then looks for a thread. Who starts a thread
//! marks it as starting, then reads `CHANGES`, which the thread compares before it sleeps and after, then `HOLDS`: none may
//! be. All of it in one order for all (`SeqCst`), so one of the two sees the other. The interleavings that this excludes:
//! - without that order a starter could read `HOLDS` as 0 while the changer finds no thread, and there would be one during
//!   the change;
//! - if `HOLDS` were read first, the changer could count both up between the reads, and would wait for a thread that knows
//!   of the change already, and stays.
//!
//! A thread that ends because of a change, or is not started, notes that (`OWED`) before it is gone, and whoever counts
//! `HOLDS` down to 0 looks at the note after. If the changer took note instead, it could find no thread where one has just
//! ended because of its count; and of two changes the first, which ended the thread, could find the second under way.

use core::sync::atomic::Ordering::SeqCst;

use crate::os::process::monotonic_ns;
use crate::os::sync::{AtomicU32, shared};
use crate::threads::background;

/// For how long a change waits for the thread's end. The thread may be releasing memory, which takes it some 100 ms for a
/// GiB of small pages.
const END_NS: u64 = 1_000_000_000;

shared! {
    static HOLDS: AtomicU32 = AtomicU32::new(0);
    static CHANGES: AtomicU32 = AtomicU32::new(0);
    /// 1: a thread was made end, or not started, because of a change, and none was started since.
    static OWED: AtomicU32 = AtomicU32::new(0);
}

/// Makes a call while there is no background thread.
///
/// In a child of `vfork`, which has its parent's memory and nothing else of it, the thread is left alone.
///
/// ```
/// assert_eq!(weir_linux::threads::aside::without_thread(|| 2 + 2), 4);
/// ```
pub fn without_thread<R>(call: impl FnOnce() -> R) -> R {
    if !background::is_settled() {
        return call();
    }
    HOLDS.fetch_add(1, SeqCst);
    CHANGES.fetch_add(1, SeqCst);
    background::end_before(monotonic_ns() + END_NS);
    let result = call();
    // A child that was forked meanwhile has none.
    let _ = HOLDS.fetch_update(SeqCst, SeqCst, |holds| holds.checked_sub(1));
    // A start that another change refuses meanwhile is owed again.
    while !is_held() && OWED.swap(0, SeqCst) != 0 {
        background::start_again();
    }
    result
}

/// After the process became something else: the background thread is gone when this returns, and another one there, which
/// the calling thread started.
pub fn changed() {
    without_thread(|| ());
}

/// A thread is to be started after the change that is under way.
pub(crate) fn owe() {
    OWED.store(1, SeqCst);
}

/// In a forked child: the calls that were under way are its parent's.
pub(crate) fn forget() {
    HOLDS.store(0, SeqCst);
    OWED.store(0, SeqCst);
}

/// Whether a call is under way that wants no thread.
pub(crate) fn is_held() -> bool {
    HOLDS.load(SeqCst) != 0
}

/// How often something changed.
pub(crate) fn changes() -> u32 {
    CHANGES.load(SeqCst)
}
