//! The background thread out of the way of what a program does to itself as a whole.
//!
//! The kernel refuses some changes to a process of several threads (`unshare(CLONE_NEWUSER)`, `setns` into a user or mount
//! namespace), and others bind the calling thread alone, or those that libc knows (`chroot` after `unshare(CLONE_FS)`,
//! `setuid`). Who makes such a change has the background thread end first, or after it, and starts another.
//!
//! Protocol: who changes something counts [`HOLDS`] up, then [`CHANGES`], and then looks for a thread. Who starts a thread
//! marks it as starting, then reads `HOLDS` (none may be), then `CHANGES`, which the thread compares before it sleeps and
//! after. All of it in one order for all (`SeqCst`), so one of the two sees the other: without that order a starter could
//! read `HOLDS` as 0 while the changer finds no thread, and there would be one during the change.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::background;
use crate::os::process::monotonic_ns;

/// For how long a change waits for the thread's end. The thread may be releasing memory, which takes it some 100 ms for a
/// GiB of small pages.
const END_NS: u64 = 1_000_000_000;

static HOLDS: AtomicU32 = AtomicU32::new(0);
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Makes a call while there is no background thread.
///
/// In a child of `vfork`, which has its parent's memory and nothing else of it, the thread is left alone.
///
/// ```
/// assert_eq!(weir::aside::without_thread(|| 2 + 2), 4);
/// ```
pub fn without_thread<R>(call: impl FnOnce() -> R) -> R {
    if !background::is_settled() {
        return call();
    }
    HOLDS.fetch_add(1, SeqCst);
    let was_there = end_thread();
    let result = call();
    // A child that was forked meanwhile has none.
    let _ = HOLDS.fetch_update(SeqCst, SeqCst, |holds| holds.checked_sub(1));
    if was_there {
        background::start_again();
    }
    result
}

/// After the process became something else: the background thread is gone when this returns, and another one there, which
/// the calling thread started.
pub fn changed() {
    if background::is_settled() && end_thread() {
        background::start_again();
    }
}

/// Whether there was one.
fn end_thread() -> bool {
    CHANGES.fetch_add(1, SeqCst);
    background::end_before(monotonic_ns() + END_NS)
}

/// In a forked child: the calls that were under way are its parent's.
pub(crate) fn forget() {
    HOLDS.store(0, SeqCst);
}

/// Whether a call is under way that wants no thread.
pub(crate) fn is_held() -> bool {
    HOLDS.load(SeqCst) != 0
}

/// How often something changed.
pub(crate) fn changes() -> u32 {
    CHANGES.load(SeqCst)
}
