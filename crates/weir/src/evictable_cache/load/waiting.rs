//! A task's waiting for a value, and the end of it.

use core::task::Waker;

use super::flight::Flight;
use crate::evictable_cache::shard::state::{Shard, ShardGuard};

/// Has a task's flight leave its ring, where it waits, when this is dropped.
pub struct Waiting<'a> {
    shard: &'a Shard,
    flight: &'a Flight,
    /// It was in a ring at some time.
    has_waited: bool,
}

impl<'a> Waiting<'a> {
    /// It does not wait yet.
    pub fn new(shard: &'a Shard, flight: &'a Flight) -> Self {
        Self { shard, flight, has_waited: false }
    }

    /// Has the task woken for the end of another's flight, which was found under the lock that is given. Gives the lock back.
    ///
    /// # Safety
    /// The task's flight stays where it is until this was dropped. The other is linked.
    pub unsafe fn wait(&mut self, state: ShardGuard<'_>, other: *const Flight, waker: Waker) {
        self.has_waited = true;
        // SAFETY: the caller's promise. The drop of this takes the node off, and the end of the other's landing its own.
        let before = unsafe { self.flight.node.join(&(*other).node, waker, state.forks) };
        drop(state);
        drop(before);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.has_waited {
            return;
        }
        let state = self.shard.lock();
        // A task that computes has those who wait behind it until its landing.
        let node = &self.flight.node;
        let next = if self.flight.is_linked() { None } else { node.give_up(state.forks) };
        let own = node.take_waker();
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
        drop(own);
    }
}

/// Wakes all tasks that wait for a flight, which was unlinked, or the oldest of them; no lock is held.
#[cold]
pub fn wake(shard: &Shard, flight: &Flight, are_all: bool) {
    /// Goes on where waking one panics.
    struct Rest<'a>(&'a Shard, &'a Flight, bool);
    impl Drop for Rest<'_> {
        fn drop(&mut self) {
            wake(self.0, self.1, self.2);
        }
    }
    loop {
        let state = shard.lock();
        let mut wakers = flight.node.take(are_all, state.forks);
        drop(state);
        if wakers.is_empty() {
            return;
        }
        let rest = Rest(shard, flight, are_all);
        wakers.wake();
        core::mem::forget(rest);
        if !are_all {
            return;
        }
    }
}
