//! Look-up, and values that are computed by who misses them.

use core::ptr::NonNull;

use super::flight::Flight;
use super::flights;
use super::fresh::{Fresh, Landing};
use super::header::{Content, Header};
use super::hold::Hold;
use super::shard::State;
use super::shared::Shared;

impl<C: Content> Shared<C> {
    /// A key's entry, held; that counts as a use.
    #[inline]
    pub fn get(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        self.look_up(hash, is_it, |entry| {
            // SAFETY: in the index, under the lock: the cache holds it.
            unsafe { entry.as_ref() }.pins.pin();
            Hold { shared: self, entry }
        })
    }

    /// What `take` takes of a key's entry under the shard's lock; that counts as a use.
    #[inline]
    pub fn look_up<T>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&C::Key) -> bool,
        take: impl FnOnce(NonNull<Header>) -> T,
    ) -> Option<T> {
        if self.ages.is_some() {
            return self.look_up_in_time(hash, is_it, take);
        }
        let mut state = self.shards()[self.home(hash)].lock();
        let found = state.storage.as_ref().and_then(|storage| {
            storage.prefetch(hash);
            // SAFETY: what is in the index is an entry of the cache, with its key, as long as the lock is held.
            let place = storage.find(hash, |entry| is_it(unsafe { C::key(entry) }))?;
            let entry = storage.at(place);
            // SAFETY: in the index, under the lock: the cache holds it. The hit is counted under the lock: that is needed for
            // what is taken anyway, and the storage that counts may move.
            storage.hit(unsafe { entry.as_ref() });
            Some(entry)
        });
        let Some(entry) = found else {
            state.counts.misses += 1;
            return None;
        };
        state.counts.hits += 1;
        let taken = take(entry);
        // SAFETY: in the index, under the lock: the cache holds it.
        let weight = unsafe { entry.as_ref() }.weight;
        drop(state);
        if self.adapt.is_sampled(hash) {
            self.note_sampled(hash, weight);
        }
        Some(taken)
    }

    /// The same where entries have an end: what is over is not there.
    #[inline(never)]
    fn look_up_in_time<T>(
        &self,
        hash: u64,
        is_it: impl FnMut(&C::Key) -> bool,
        take: impl FnOnce(NonNull<Header>) -> T,
    ) -> Option<T> {
        let now = self.time();
        let mut state = self.shards()[self.home(hash)].lock();
        let Some(place) = state.find::<C>(hash, is_it) else {
            state.counts.misses += 1;
            return None;
        };
        if let Some(over) = now.and_then(|now| self.take_if_over(&mut state, place, now)) {
            state.counts.misses += 1;
            drop(state);
            over.tell_and_drop();
            return None;
        }
        let entry = Self::hit(&mut state, place, now)?;
        let taken = take(entry);
        // SAFETY: in the index, under the lock: the cache holds it.
        let weight = unsafe { entry.as_ref() }.weight;
        drop(state);
        if self.adapt.is_sampled(hash) {
            self.note_sampled(hash, weight);
        }
        Some(taken)
    }

    /// Counts a hit of the entry at a place.
    fn hit(state: &mut State, place: usize, now: Option<u64>) -> Option<NonNull<Header>> {
        state.counts.hits += 1;
        let storage = state.storage.as_mut()?;
        let entry = storage.at(place);
        // SAFETY: in the index, under the lock: the cache holds it.
        let header = unsafe { entry.as_ref() };
        storage.hit(header);
        if let Some(now) = now {
            storage.use_at(header, now);
        }
        Some(entry)
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> bool {
        let now = self.time();
        let state = self.shards()[self.home(hash)].lock();
        let is_over = |entry| now.zip(state.storage.as_ref()).is_some_and(|(now, storage)| storage.is_over(entry, now));
        state.find::<C>(hash, is_it).and_then(|place| state.at(place)).is_some_and(|entry| !is_over(entry))
    }

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
            let place = state.find::<C>(hash, |key| C::is_same(key, fresh.key()));
            let over = place.zip(now).and_then(|(place, now)| self.take_if_over(&mut state, place, now));
            if let Some(over) = over {
                drop(state);
                over.tell_and_drop();
                continue;
            }
            if let Some(place) = place
                && let Some(entry) = Self::hit(&mut state, place, now)
            {
                // SAFETY: in the index, under the lock: the cache holds it.
                unsafe { entry.as_ref() }.pins.pin();
                return Ok(Hold { shared: self, entry });
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
        Ok(fresh.put_or_hold(landing))
    }
}
