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

/// Wakers that are taken under the lock at a time.
const BATCH: usize = 16;

/// A task on the list of its shard. All is used under the shard's lock.
pub struct Node {
    /// The address of the flight that it waits for.
    flight: Cell<usize>,
    /// There while the node is linked.
    waker: Cell<Option<Waker>>,
    previous: Cell<Option<NonNull<Node>>>,
    next: Cell<Option<NonNull<Node>>>,
    is_linked: Cell<bool>,
}

impl Node {
    /// Not linked.
    pub fn new() -> Self {
        let (flight, waker, is_linked) = (Cell::new(0), Cell::new(None), Cell::new(false));
        Self { flight, waker, previous: Cell::new(None), next: Cell::new(None), is_linked }
    }
}

/// The tasks that wait in a shard.
pub struct Waiters(Option<NonNull<Node>>);

impl Waiters {
    /// None.
    pub const fn new() -> Self {
        Self(None)
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Links a node, if it is not, for a flight and with this waker; the waker that it had, to be dropped under no lock.
    ///
    /// # Safety
    /// The node stays where it is until [`Waiters::remove`].
    pub unsafe fn add(&mut self, node: &Node, flight: usize, waker: Waker) -> Option<Waker> {
        node.flight.set(flight);
        if !node.is_linked.replace(true) {
            node.previous.set(None);
            node.next.set(self.0);
            if let Some(next) = self.0.replace(NonNull::from(node)) {
                // SAFETY: it is linked, and the lock is held.
                unsafe { next.as_ref() }.previous.set(Some(NonNull::from(node)));
            }
        }
        node.waker.replace(Some(waker))
    }

    /// Takes a node off, if it is linked.
    pub fn remove(&mut self, node: &Node) {
        if !node.is_linked.replace(false) {
            return;
        }
        let (previous, next) = (node.previous.get(), node.next.get());
        // SAFETY: the neighbours of a linked node are linked, and the lock is held.
        unsafe {
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => self.0 = next,
            }
            if let Some(next) = next {
                next.as_ref().previous.set(previous);
            }
        }
    }

    /// Takes tasks off that wait for a flight: all, or as many as a batch has room for.
    pub fn take(&mut self, flight: usize) -> Wakers {
        let mut wakers = [const { None }; BATCH];
        let (mut at, mut places) = (self.0, wakers.iter_mut());
        while let Some(node) = at {
            // SAFETY: it is linked, and the lock is held.
            let node = unsafe { node.as_ref() };
            at = node.next.get();
            if node.flight.get() == flight {
                let Some(place) = places.next() else { break };
                self.remove(node);
                *place = node.waker.take();
            }
        }
        Wakers(wakers)
    }

    /// Takes all off: in a forked child, where the tasks of other threads never run.
    pub fn inherit(&mut self) {
        while let Some(node) = self.0 {
            // SAFETY: it is linked, and the lock is held.
            self.remove(unsafe { node.as_ref() });
        }
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
