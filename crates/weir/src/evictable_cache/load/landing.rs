//! The end of a computation, and waiting for it.

use weir_linux::arch::thread::thread_pointer;
use weir_linux::os::futex::futex_wake;
use weir_linux::process::evictable_list::wait_for;
use weir_linux::process::heap::HEAP;

use super::flight::Flight;
use crate::evictable_cache::shard::state::{Shard, ShardGuard, State};

/// A flight of this thread's, ended when this is dropped: also where the closure panics.
pub struct Landing<'a> {
    shard: &'a Shard,
    flight: Option<&'a Flight>,
    is_awaited: bool,
}

impl<'a> Landing<'a> {
    /// The end of a flight that is linked in that shard.
    pub fn new(shard: &'a Shard, flight: &'a Flight) -> Self {
        Self { shard, flight: Some(flight), is_awaited: false }
    }

    /// Unlinks the flight, under the shard's lock; who waits is woken when this is dropped.
    pub fn land(&mut self, state: &mut State) {
        if let Some(flight) = self.flight.take() {
            state.flights.unlink(flight);
            self.is_awaited = flight.is_awaited.get();
        }
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if self.flight.is_some() {
            let shard = self.shard;
            self.land(&mut shard.lock());
        }
        if self.is_awaited {
            self.shard.landings.landed(|word| _ = futex_wake(word, u32::MAX));
        }
    }
}

/// Waits until a flight of the thread `runner` ends, which was found and noted as awaited under the lock that is given; or for
/// no reason. Gives the lock back.
///
/// # Panics
/// If the flight is the calling thread's, or that of one that waits for the calling thread: its closure wants the key that
/// it computes, directly or through others.
pub fn wait(shard: &Shard, state: ShardGuard<'_>, runner: usize) {
    let seen = shard.landings.seen();
    drop(state);
    assert!(runner != thread_pointer(), "a closure of get_or_insert_with asks for the key whose value it computes");
    let mut is_circle = false;
    shard.landings.wait(seen, |word, seen| is_circle = !wait_for(HEAP.platform(), word, seen, runner));
    assert!(!is_circle, "closures of get_or_insert_with ask for the keys whose values each other's threads compute");
}
