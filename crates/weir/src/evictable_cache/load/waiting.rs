//! A task's waiting for a value, and the end of it.

use core::cell::Cell;
use core::task::Waker;

use super::waiters::Node;
use crate::evictable_cache::shard::state::{Shard, ShardGuard};

/// A task's place in the table: in a future that waits, taken off when this is dropped.
pub struct Waiting<'a> {
    shard: &'a Shard,
    node: Node,
    /// The node was linked at some time.
    has_waited: Cell<bool>,
}

// SAFETY: the node is used under the shard's lock, and the rest by who has the future exclusively.
unsafe impl Send for Waiting<'_> {}
// SAFETY: as above.
unsafe impl Sync for Waiting<'_> {}

impl<'a> Waiting<'a> {
    /// Not in the table yet.
    pub fn new(shard: &'a Shard) -> Self {
        Self { shard, node: Node::new(), has_waited: Cell::new(false) }
    }

    /// Has the task woken when the flight at an address ends, which was found under the lock that is given. Gives the lock back.
    ///
    /// # Safety
    /// This stays where it is until it is dropped.
    pub unsafe fn wait(&self, mut state: ShardGuard<'_>, flight: usize, waker: Waker) {
        self.has_waited.set(true);
        // SAFETY: the caller's promise, and the drop of this takes the node off.
        let before = unsafe { state.waiters.add(&self.node, flight, waker) };
        let due = state.waiters.due();
        drop(state);
        if let Some(count) = due {
            self.shard.spread(count, |state| &mut state.waiters);
        }
        drop(before);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.has_waited.get() {
            self.shard.lock().waiters.unlink(&self.node);
        }
    }
}

/// Wakes all tasks that wait for the flight at an address, which was unlinked and is still there; no lock is held.
#[cold]
pub fn wake_all(shard: &Shard, flight: usize) {
    /// Goes on where waking one panics.
    struct Rest<'a>(&'a Shard, usize);
    impl Drop for Rest<'_> {
        fn drop(&mut self) {
            wake_all(self.0, self.1);
        }
    }
    loop {
        let mut wakers = shard.lock().waiters.take(flight);
        if wakers.is_empty() {
            return;
        }
        let rest = Rest(shard, flight);
        wakers.wake();
        core::mem::forget(rest);
    }
}
