//! Tasks that wait for a value that another task, or a thread, computes.
//!
//! A task that waits is a node in its future, which is pinned. It is linked into its shard, with the task's waker, in the
//! same section under the lock in which the flight was seen. The end of a flight unlinks it under the lock. Afterwards the
//! nodes that wait for it are taken off, and their tasks woken under no lock. Each of them looks again: one becomes the next
//! to compute, where there is no value, and the others wait for it. A flight stays where it is until all are woken, so its
//! address tells it from the next one of the key. A task that waits again is therefore not woken again.
//!
//! The protocol excludes three interleavings:
//! - A flight ends between a task's look and its link, and the task is not woken. Look and link are one section, and nodes
//!   are searched after the flight was unlinked.
//! - One task is woken to compute, is dropped before it does, and the others sleep on. Therefore all are woken.
//! - A task is woken whose future is gone. The drop of a future takes its node off under the lock, and a waker that was taken
//!   before is valid by itself.

use core::cell::Cell;
use core::ptr::NonNull;
use core::task::Waker;
use weir_core::evict::mix;

use super::table::{Linked, Links, Table};

/// Wakers that are taken under the lock at a time.
const BATCH: usize = 16;

/// A task that waits, in a table of its shard. All is used under the shard's lock.
pub struct Node {
    /// The address of the flight that it waits for; it changes while the node is not linked.
    flight: Cell<usize>,
    /// There while the node is linked.
    waker: Cell<Option<Waker>>,
    links: Links<Self>,
}

impl Node {
    /// Not linked.
    pub fn new() -> Self {
        Self { flight: Cell::new(0), waker: Cell::new(None), links: Links::new() }
    }
}

impl Linked for Node {
    fn links(&self) -> &Links<Self> {
        &self.links
    }

    fn hash(&self) -> u32 {
        hash_of(self.flight.get())
    }
}

/// The hash of a flight's address. Flights lie at regular distances.
fn hash_of(flight: usize) -> u32 {
    mix(flight as u64, 0)
}

/// The tasks that wait in a shard.
pub type Waiters = Table<Node>;

impl Waiters {
    /// Links a node, if it is not, for a flight and with this waker; the waker that it had, to be dropped under no lock.
    ///
    /// # Safety
    /// The node stays where it is until [`Table::unlink`].
    pub unsafe fn add(&mut self, node: &Node, flight: usize, waker: Waker) -> Option<Waker> {
        self.unlink(node);
        node.flight.set(flight);
        // SAFETY: the caller's promise.
        unsafe { self.link(node) };
        node.waker.replace(Some(waker))
    }

    /// Takes tasks off that wait for a flight: all, or as many as a batch has room for.
    pub fn take(&mut self, flight: usize) -> Wakers {
        let mut wakers = [const { None }; BATCH];
        for place in &mut wakers {
            let node = self.of(hash_of(flight)).find(|node| node.flight.get() == flight).map(NonNull::from);
            let Some(node) = node else { break };
            // SAFETY: it is linked, and the lock is held.
            let node = unsafe { node.as_ref() };
            self.unlink(node);
            *place = node.waker.take();
        }
        Wakers(wakers)
    }

    /// Takes all off: in a forked child, where the tasks of other threads never run.
    pub fn inherit(&mut self) {
        self.retain(|_| false);
    }
}

/// Tasks to be woken, under no lock; where waking one panics the others are woken all the same.
pub struct Wakers([Option<Waker>; BATCH]);

impl Wakers {
    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Wakes them.
    pub fn wake(&mut self) {
        while let Some(waker) = self.0.iter_mut().find_map(Option::take) {
            waker.wake();
        }
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.wake();
    }
}
