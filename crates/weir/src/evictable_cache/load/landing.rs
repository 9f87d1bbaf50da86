//! The end of a computation, and a thread's waiting for it.

use weir_core::platform::Wait;

use super::flight::Flight;
use super::waiters::Waiters;
use super::waiting::wake_all;
use crate::evictable_cache::host::{system, wait_for};
use crate::evictable_cache::shard::state::{Shard, ShardGuard, State};

/// A flight, ended when this is dropped: also where the closure or the future panics, and where the future is dropped.
pub struct Landing<'a> {
    shard: &'a Shard,
    flight: Option<&'a Flight>,
    /// Threads waited for it when it landed.
    was_awaited: bool,
    /// The flight's address, if tasks may wait for it.
    awaited: Option<usize>,
    /// The value is made of the one that is in the cache.
    pub is_update: bool,
}

impl<'a> Landing<'a> {
    /// The end of a flight that is linked in that shard.
    pub fn new(shard: &'a Shard, flight: &'a Flight, is_update: bool) -> Self {
        Self { shard, flight: Some(flight), was_awaited: false, awaited: None, is_update }
    }

    /// Whether threads wait for the value, or tasks may; they are the shard's, whose lock is held.
    pub fn is_awaited(&self, waiters: &Waiters) -> bool {
        self.flight.is_some_and(|flight| flight.is_awaited.get()) || !waiters.is_empty()
    }

    /// Whether the key was removed, or another value was put in, since the flight was linked; the shard's lock is held.
    pub fn is_outdated(&self) -> bool {
        self.flight.is_some_and(|flight| flight.is_outdated.get())
    }

    /// Unlinks the flight, under the shard's lock; who waits is woken when this is dropped.
    pub fn land(&mut self, state: &mut State) {
        if let Some(flight) = self.flight.take() {
            state.flights.unlink(flight);
            self.was_awaited = flight.is_awaited.get();
            self.awaited = (!state.waiters.is_empty()).then_some(flight.address());
        }
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if self.flight.is_some() {
            let shard = self.shard;
            self.land(&mut shard.lock());
        }
        if self.was_awaited {
            self.shard.landings.landed(|word| system().wake_all(word));
        }
        if let Some(flight) = self.awaited {
            wake_all(self.shard, flight);
        }
    }
}

/// Waits until a flight of the thread `runner` ends, or for no reason. The flight was found and noted as awaited under the lock
/// that is given. Gives the lock back.
///
/// # Panics
/// If the flight is the calling thread's (`is_own`), or that of one that waits for the calling thread. Its closure then wants the
/// key that it computes, directly or through others.
pub fn wait(shard: &Shard, state: ShardGuard<'_>, runner: usize, is_own: bool) {
    let seen = shard.landings.seen();
    drop(state);
    assert!(!is_own, "a closure of get_or_insert_with asks for the key whose value it computes");
    let mut is_circle = false;
    shard.landings.wait(seen, |word, seen| is_circle = !wait_for(word, seen, runner));
    assert!(!is_circle, "closures of get_or_insert_with ask for the keys whose values each other's threads compute");
}
