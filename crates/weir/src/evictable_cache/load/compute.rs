//! Values that are computed by who misses them, once for all who want them.

use super::flight::Flight;
use super::fresh::Fresh;
use super::landing::{Landing, wait};
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::shard::state::Found;
use crate::evictable_cache::shared::Shared;

impl<C: Content> Shared<C> {
    /// The entry of `fresh`'s key, or `fresh` with what `compute` puts in as its value, whether the cache keeps it or not. Who
    /// wants the same key meanwhile waits.
    ///
    /// # Panics
    /// If the closure wants the key itself.
    pub fn get_or_compute<'a, E>(
        &'a self,
        mut fresh: Fresh<'a, C>,
        compute: impl FnOnce(&mut Fresh<'a, C>) -> Result<(), E>,
    ) -> Result<Hold<'a, C>, E> {
        let hash = fresh.hash();
        let shard = &self.shards()[self.home(hash)];
        let flight = Flight::new(hash, fresh.entry);
        loop {
            let now = self.time();
            let mut state = shard.lock();
            match state.look_up::<C>(hash, |key| C::is_same(key, fresh.key()), now) {
                // SAFETY: in the index, under the lock.
                Found::Entry(entry) => return Ok(unsafe { self.pin(entry) }),
                Found::Over(place) => {
                    let over = self.take_over(&mut state, place);
                    drop(state);
                    over.tell_and_drop();
                    continue;
                }
                Found::Nothing => {}
            }
            let Some(other) = state.flights.find::<C>(hash, |key| C::is_same(key, fresh.key())) else {
                // SAFETY: the flight and `fresh` with its key stay until `landing` is dropped, or has landed.
                unsafe { state.flights.link(&flight) };
                break;
            };
            other.is_awaited.set(true);
            let runner = other.thread;
            wait(shard, state, runner);
        }
        // Declared after `fresh`, so dropped before it: the key outlives the flight.
        let landing = Landing::new(shard, &flight);
        compute(&mut fresh)?;
        fresh.has_value = true;
        Ok(fresh.put_or_hold(landing))
    }
}
