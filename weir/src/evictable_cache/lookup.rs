//! Look-up, and values that are computed by who misses them.

use core::ptr::NonNull;

use super::errors::Refusal;
use super::flight::Flight;
use super::flights;
use super::fresh::{Fresh, Landing};
use super::header::{Content, Header};
use super::hold::Hold;
use super::shard::State;
use super::shared::Shared;

/// An entry, or the one that was refused.
pub type Put<'a, C> = Result<Hold<'a, C>, (Fresh<'a, C>, Refusal)>;

impl<C: Content> Shared<C> {
    /// A key's entry, held; that counts as a use.
    #[inline]
    pub fn get(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        let mut state = self.shards()[self.home(hash)].lock();
        let Some(place) = state.find::<C>(hash, is_it) else {
            state.counts.misses += 1;
            return None;
        };
        let hold = self.hit(&mut state, place);
        drop(state);
        if hold.is_some() && self.adapt.is_sampled(hash) {
            self.note_sampled(hash, hold.as_ref().map_or(0, |hold| hold.header().weight));
        }
        hold
    }

    /// Holds the entry at a place, and counts a hit.
    ///
    /// The hit is counted under the lock: it is needed for the hold anyway, and the storage that counts may move.
    #[inline]
    fn hit(&self, state: &mut State, place: usize) -> Option<Hold<'_, C>> {
        state.counts.hits += 1;
        let storage = state.storage.as_ref()?;
        let entry = NonNull::new(storage.index.get(place) as *mut Header)?;
        // SAFETY: in the index, under the lock: the cache holds it.
        let header = unsafe { entry.as_ref() };
        header.pins.pin();
        storage.policy.hit(header.number.get());
        Some(Hold { shared: self, entry })
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> bool {
        self.shards()[self.home(hash)].lock().find::<C>(hash, is_it).is_some()
    }

    /// The entry of `fresh`'s key, or `fresh` with what `compute` puts in as its value. Who wants the same key meanwhile
    /// waits.
    ///
    /// # Panics
    /// If the closure wants the key itself.
    pub fn get_or_compute<'a, E>(
        &'a self,
        mut fresh: Fresh<'a, C>,
        compute: impl FnOnce(&mut Fresh<'a, C>) -> Result<(), E>,
    ) -> Result<Put<'a, C>, E> {
        let hash = fresh.hash();
        let shard = &self.shards()[self.home(hash)];
        let flight = Flight::new(hash, fresh.entry);
        loop {
            let mut state = shard.lock();
            if let Some(place) = state.find::<C>(hash, |key| C::is_same(key, fresh.key()))
                && let Some(hold) = self.hit(&mut state, place)
            {
                return Ok(Ok(hold));
            }
            let Some(other) = state.flight_of::<C>(hash, |key| C::is_same(key, fresh.key())) else {
                // SAFETY: the flight and `fresh` with its key stay until `landing` is dropped, or has landed.
                unsafe { state.take_off(&flight) };
                break;
            };
            // SAFETY: found under this lock.
            unsafe { flights::wait(shard, state, other) };
        }
        // Declared after `fresh`, so dropped before it: the key outlives the flight.
        let landing = Landing::new(shard, &flight);
        compute(&mut fresh)?;
        fresh.has_value = true;
        Ok(fresh.put(Some(landing)))
    }
}
