//! Tasks that wait for a value that another task, or a thread, computes.
//!
//! Each flight has a node. Nodes are linked into rings, under the shard's lock. A ring has one head, whose task or thread acts
//! next; the others wait, in the order in which they came. Its head is one of these:
//! - A flight that is linked in the shard, or whose landing is not dropped yet. The tasks behind it wait for its end.
//! - A task that was woken to look again, and has not done so yet.
//!
//! A task that sees a flight joins its ring in the same section under the lock. A flight whose value came into the cache wakes
//! all of its ring, under no lock. Any other end wakes the oldest alone, which becomes the head of the others. So loads of a key
//! that fail cost the same each, however many wait. A head that looks again does one of these:
//! - It computes. Its flight is the head of the others from then on.
//! - It sees another's flight. It joins that ring, and the others with it.
//! - It finds the value, or its future is dropped. It wakes the next, which becomes the head.
//!
//! The protocol excludes these interleavings:
//! - A flight ends between a task's look and its joining, and the task is not woken. Look and joining are one section, and the
//!   flight was linked in it. Whoever ends it looks at its ring in a later section.
//! - A task is woken to compute, is dropped before it does, and the others sleep on. They are behind it, and its drop wakes one.
//! - The value comes in by another flight while the head has not looked yet. The others of the ring wait until it looks: each
//!   finds the value, and wakes the next.
//! - A task of the ring is polled for no reason, and computes, as it finds no flight. It leaves the ring, and its flight is the
//!   head of a new one. The head that it leaves behind keeps the others.
//! - A task is woken whose future is gone. The drop of a future takes its node off under the lock, and a waker that was taken
//!   before is valid by itself.

use core::cell::Cell;
use core::ptr::NonNull;
use core::task::Waker;

/// Wakers that are taken under the lock at a time.
const BATCH: usize = 16;

/// A flight's place in a ring. All is used under the shard's lock.
pub struct Node {
    /// `None`: it is alone, as where this is itself.
    next: Cell<Option<NonNull<Self>>>,
    previous: Cell<Option<NonNull<Self>>>,
    /// The head as it joined: another may have the ring by now.
    behind: Cell<Option<NonNull<Self>>>,
    /// There while it waits behind a head.
    waker: Cell<Option<Waker>>,
    /// It is a head since its task was woken, which has not looked again yet.
    is_woken: Cell<bool>,
    /// The forks of the process as it was used last: a child has none of the rings of before.
    forks: Cell<u32>,
}

impl Node {
    /// Alone.
    pub const fn new() -> Self {
        let (next, previous, behind) = (Cell::new(None), Cell::new(None), Cell::new(None));
        Self { next, previous, behind, waker: Cell::new(None), is_woken: Cell::new(false), forks: Cell::new(0) }
    }

    fn next(&self) -> NonNull<Self> {
        self.next.get().unwrap_or(NonNull::from(self))
    }

    fn previous(&self) -> NonNull<Self> {
        self.previous.get().unwrap_or(NonNull::from(self))
    }

    /// Whether no other is in its ring.
    pub fn is_alone(&self) -> bool {
        self.next() == NonNull::from(self)
    }

    /// Makes two nodes neighbours, which are in rings or about to be, under the lock.
    fn connect(first: NonNull<Self>, second: NonNull<Self>) {
        // SAFETY: a node in a ring stays where it is until it left, which needs the lock.
        let nodes = unsafe { (first.as_ref(), second.as_ref()) };
        nodes.0.next.set(Some(second));
        nodes.1.previous.set(Some(first));
    }

    /// Forgets a ring of before a fork, whose other nodes may lie on the stacks of the parent's threads. Their tasks never run.
    fn renew(&self, forks: u32) {
        if self.forks.replace(forks) != forks {
            self.next.set(None);
            self.previous.set(None);
            self.is_woken.set(false);
        }
    }

    /// Leaves its ring.
    fn leave(&self) {
        Self::connect(self.previous(), self.next());
        self.next.set(None);
        self.previous.set(None);
    }

    /// Joins the end of another head's ring, with all of its own.
    fn append_to(&self, head: &Self) {
        let (last, own_last) = (head.previous(), self.previous());
        Self::connect(last, NonNull::from(self));
        Self::connect(own_last, NonNull::from(head));
    }

    /// Waits behind a head with this waker, at its former place if it waits there already; after so many forks. The waker that it
    /// had is to be dropped under no lock.
    ///
    /// # Safety
    /// Both stay where they are until they left the ring.
    pub unsafe fn join(&self, head: &Self, waker: Waker, forks: u32) -> Option<Waker> {
        self.renew(forks);
        head.renew(forks);
        let is_head = self.is_woken.replace(false);
        if is_head || self.is_alone() || self.behind.get() != Some(NonNull::from(head)) {
            // The head of others takes them along.
            if !is_head {
                self.leave();
            }
            self.append_to(head);
            self.behind.set(Some(NonNull::from(head)));
        }
        self.waker.replace(Some(waker))
    }

    /// Its task computes: it is the head of those behind it, or of none.
    pub fn lead(&self, forks: u32) {
        self.renew(forks);
        if !self.is_woken.replace(false) {
            self.leave();
        }
    }

    /// The oldest behind this head leaves.
    fn pop(&self) -> Option<&Self> {
        // SAFETY: in a ring, and the lock is held.
        let next = (!self.is_alone()).then(|| unsafe { self.next().as_ref() })?;
        next.leave();
        Some(next)
    }

    /// This head leaves, and the oldest behind it is the head, whose task is to be woken under no lock.
    fn hand_on(&self) -> Option<Waker> {
        let next = self.pop()?;
        next.append_to(self);
        self.leave();
        next.is_woken.set(true);
        next.waker.take()
    }

    /// Its task waits no longer, and does not compute. Who is to be woken for it, under no lock.
    pub fn give_up(&self, forks: u32) -> Option<Waker> {
        self.renew(forks);
        if self.is_woken.replace(false) {
            return self.hand_on();
        }
        self.leave();
        None
    }

    /// The waker that it has still, to be dropped under no lock.
    pub fn take_waker(&self) -> Option<Waker> {
        self.waker.take()
    }

    /// Takes off those who are to be woken now: all behind this head, or as many as a batch has room for. Otherwise the oldest,
    /// which is the head of the others.
    pub fn take(&self, are_all: bool, forks: u32) -> Wakers {
        self.renew(forks);
        let mut wakers = [const { None }; BATCH];
        if are_all {
            wakers.fill_with(|| self.pop()?.waker.take());
        } else {
            wakers[0] = self.hand_on();
        }
        Wakers(wakers)
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
