//! Look-up of keys.

use core::ptr::NonNull;
use weir_core::base::time::Time;

use super::state::{Found, State};
use super::storage::Storage;
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::shared::Shared;

impl<C: Content> Shared<C> {
    /// A key's entry, held; that counts as a use.
    #[inline]
    pub fn get(&self, hash: u32, is_it: impl FnMut(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        // SAFETY: in the index, under the lock.
        self.look_up(hash, is_it, |entry| unsafe { self.pin(entry) })
    }

    /// [`Shared::get`]; or whether another computes the key's value just now.
    pub fn get_or_see(&self, hash: u32, is_it: impl Fn(&C::Key) -> bool) -> Result<Hold<'_, C>, bool> {
        let is_computed = |state: &State| state.flights.find::<C>(hash, &is_it).is_some();
        // SAFETY: in the index, under the lock.
        self.look_up_at(hash, &is_it, |entry| unsafe { self.pin(entry) }, self.time(), is_computed)
    }

    /// Holds an entry.
    ///
    /// # Safety
    /// The entry is in the cache, and the caller has its shard's lock.
    #[inline]
    pub unsafe fn pin(&self, entry: NonNull<Header>) -> Hold<'_, C> {
        // SAFETY: the cache holds the entry, as the caller promises, and this hold is counted.
        unsafe {
            entry.as_ref().pins.pin();
            Hold::new(self, entry)
        }
    }

    /// The value that `take` takes of a key's entry under the shard's lock; that counts as a use.
    #[inline]
    pub fn look_up<T>(
        &self,
        hash: u32,
        is_it: impl FnMut(&C::Key) -> bool,
        take: impl FnOnce(NonNull<Header>) -> T,
    ) -> Option<T> {
        if self.ages.is_some() {
            return self.look_up_in_time(hash, is_it, take);
        }
        self.look_up_at(hash, is_it, take, None, |_| ()).ok()
    }

    /// [`Shared::look_up`] where entries have an end: what is over is not there.
    #[inline(never)]
    fn look_up_in_time<T>(
        &self,
        hash: u32,
        is_it: impl FnMut(&C::Key) -> bool,
        take: impl FnOnce(NonNull<Header>) -> T,
    ) -> Option<T> {
        self.look_up_at(hash, is_it, take, self.time(), |_| ()).ok()
    }

    /// What `take` takes of a key's entry under the shard's lock, or what `miss` takes of the shard.
    #[inline(always)]
    fn look_up_at<T, M>(
        &self,
        hash: u32,
        is_it: impl FnMut(&C::Key) -> bool,
        take: impl FnOnce(NonNull<Header>) -> T,
        now: Option<Time>,
        miss: impl FnOnce(&State) -> M,
    ) -> Result<T, M> {
        let mut state = self.shards()[self.home(hash)].lock();
        let over = match state.look_up::<C>(hash, is_it, now) {
            Found::Entry(entry) => {
                let taken = take(entry);
                state.counts.hits += 1;
                // SAFETY: in the index, under the lock: the cache holds it.
                let seen = self.choice.is_sampled(hash).then(|| unsafe { entry.as_ref() }.weight());
                drop(state);
                if let Some(weight) = seen {
                    self.choice.see(hash, weight, &self.room);
                }
                return Ok(taken);
            }
            Found::Over(place) => Some(self.take_over(&mut state, place)),
            Found::Nothing => None,
        };
        state.counts.misses += 1;
        let missed = miss(&state);
        drop(state);
        if let Some(over) = over {
            Victims::tell_and_drop(over);
            self.fit_shard(self.home(hash), Storage::is_outgrown);
        }
        Err(missed)
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains(&self, hash: u32, is_it: impl FnMut(&C::Key) -> bool) -> bool {
        let now = self.time();
        let state = self.shards()[self.home(hash)].lock();
        let place = state.find::<C>(hash, is_it);
        place.zip(state.storage.as_ref()).is_some_and(|(place, storage)| {
            // SAFETY: in the index, under the lock: the cache holds it.
            let header = unsafe { storage.at(place).as_ref() };
            now.is_none_or(|now| !storage.is_over(header, now))
        })
    }
}
