//! An entry that is not in its cache yet.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::time::Time;
use weir_core::evict::lifetime::Times;

use super::landing::Landing;
use crate::evictable_cache::api::errors::Refusal;
use crate::evictable_cache::api::stats::RemovalCause;
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::entry::hold::{self, Hold};
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::entry::typed::Typed;
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::shared::Shared;

/// A block with a key, and perhaps a value. Dropping it drops them and frees the block.
pub struct Fresh<'a, C: Content> {
    pub shared: &'a Shared<C>,
    pub entry: NonNull<Header>,
    /// Whether the value is there.
    pub has_value: bool,
    /// Bytes that are counted for it, at most its weight.
    reserved: usize,
    /// Until when it lives, and what time it was when that was asked.
    times: Option<(Times, Time)>,
}

// SAFETY: it owns a block with a key and a value, which may be used and dropped on any thread.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Send for Fresh<'_, C> {}
// SAFETY: a shared reference gives out shared references to the key alone.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Sync for Fresh<'_, C> {}

impl<'a, C: Content> Fresh<'a, C> {
    /// A block for an entry, in which the header is; the key is put in by the caller at once.
    pub fn alloc(shared: &'a Shared<C>, hash: u32, layout: Layout) -> Option<NonNull<Header>> {
        let alloc = || shared.place.alloc(layout);
        let block = shared.with_memory(shared.home(hash), layout.size(), alloc)?.cast::<Header>();
        // SAFETY: a fresh block, which is larger than a header and aligned for one.
        unsafe { block.write(Header::new(hash)) };
        Some(block)
    }

    /// [`Fresh::alloc`] where the cache's place has no memory: a block of the program's allocator.
    #[cold]
    pub fn alloc_spare(hash: u32, layout: Layout) -> Option<NonNull<Header>> {
        let block = Place::Program.alloc(layout)?.cast::<Header>();
        // SAFETY: a fresh block, which is larger than a header and aligned for one.
        unsafe { block.write(Header::spare(hash)) };
        Some(block)
    }

    /// A block that has its key.
    ///
    /// # Safety
    /// The entry is from [`Fresh::alloc`] or [`Fresh::alloc_spare`], its key was written, and nothing else has it.
    pub unsafe fn new(shared: &'a Shared<C>, entry: NonNull<Header>) -> Self {
        Self { shared, entry, has_value: false, reserved: 0, times: None }
    }

    /// The hash of its key.
    pub fn hash(&self) -> u32 {
        // SAFETY: the block has a header.
        unsafe { self.entry.as_ref() }.hash
    }

    /// The key.
    pub fn key(&self) -> &C::Key {
        // SAFETY: the block has its key as long as this lives.
        unsafe { C::key(self.entry) }
    }

    /// Whether the block is the parent's: the process forked inside a call that has this, and is the child.
    fn is_foreign(&self) -> bool {
        self.shared.place.is_foreign(self.entry.cast())
    }

    /// # Panics
    /// If the block is the parent's, which may free it at any time: its child may not write there.
    pub fn assert_own(&self) {
        assert!(!self.is_foreign(), "the process forked inside this load or insertion, whose entry is the parent's");
    }

    /// Puts the entry, which has its value, into the cache. The cache may evict others for it. A landing that it is for ends.
    /// What is the parent's is refused without a look at it.
    ///
    /// The landing is the second parameter, so it is dropped before the entry where code of the program's panics. Other threads
    /// compare keys with the flight's key until the flight is unlinked, and that key is this entry's.
    pub fn put(mut self, landing: Option<Landing<'_>>) -> Result<Hold<'a, C>, (Self, Refusal)> {
        debug_assert!(self.has_value);
        let Some(weight) = self.weigh() else {
            drop(landing);
            return Err((self, Refusal::OutOfMemory));
        };
        if self.shared.reserve_free(weight) {
            self.reserved = weight;
        }
        self.publish(weight, landing)
    }

    /// [`Fresh::put`] of what a load found: what the cache does not take is held by the guard alone.
    ///
    /// # Panics
    /// As [`Fresh::assert_own`], where the program's code forked before the entry was in the cache.
    pub fn put_or_hold(self, landing: Landing<'_>) -> Hold<'a, C> {
        match self.put(Some(landing)) {
            Ok(hold) => hold,
            Err((refused, _)) => refused.hold_alone(),
        }
    }

    /// The entry is not in the cache: who has the guard holds it alone.
    #[cold]
    fn hold_alone(self) -> Hold<'a, C> {
        // The one hold is the parent's.
        self.assert_own();
        let this = ManuallyDrop::new(self);
        this.shared.outside.fetch_add(1, Relaxed);
        // SAFETY: the entry has key and value, and was made with a hold for the guard, which is this.
        let hold = unsafe { Hold::new(this.shared, this.entry) };
        let is_last = hold.header().pins.unpin();
        debug_assert!(!is_last, "the guard holds it");
        hold
    }

    /// The entry's weight, which is noted in it, with whether it lies in the zone; its times are noted here. `None`: it is the
    /// parent's.
    fn weigh(&mut self) -> Option<usize> {
        let own = |this: &Self| (!this.is_foreign()).then_some(());
        own(self)?;
        let shared = self.shared;
        // SAFETY: key and value are there.
        let (layout, key, value) = unsafe { (C::layout(self.entry), C::key(self.entry), C::value(self.entry)) };
        let weight = match &shared.weigher {
            Some(weigh) => weigh(key, value).max(1),
            None => shared.place.size(layout),
        };
        // The weigher and what follows are code of the program's, which may fork.
        own(self)?;
        self.times = shared.ages.as_ref().map(|ages| ages.times_of(key, value));
        own(self)?;
        // SAFETY: key and value are there.
        let is_in_zone = unsafe { shared.zoned.is_in_zone(self.entry) };
        own(self)?;
        // SAFETY: the header is this thread's alone until the entry is in its shard; others compare the key behind it at most.
        Some(unsafe { self.entry.as_mut() }.set_weight(weight, is_in_zone))
    }

    /// The flight it was for has landed: the caller may drop the entry.
    fn reject(mut self, why: Refusal) -> (Self, Refusal) {
        // Put in again, it is counted anew.
        self.shared.room.give(core::mem::take(&mut self.reserved));
        if !self.is_foreign() {
            // SAFETY: key and value are there until this is dropped.
            unsafe { self.shared.reject(C::key(self.entry), C::value(self.entry)) };
        }
        (self, why)
    }

    /// Adds the entry to its shard, or puts it in the place of the one of the same key.
    fn publish(mut self, weight: usize, mut landing: Option<Landing<'_>>) -> Result<Hold<'a, C>, (Self, Refusal)> {
        let (shared, hash) = (self.shared, self.hash());
        let home = shared.home(hash);
        // SAFETY: the block has a header.
        let mut obstacle = if unsafe { self.entry.as_ref() }.is_spare() { Err(Refusal::OutOfMemory) } else { Ok(()) };
        let hold = loop {
            if self.is_foreign() {
                drop(landing);
                return Err((self, Refusal::OutOfMemory));
            }
            if let Err(why) = obstacle {
                let is_it = |key: &C::Key| C::is_same(key, self.key());
                match landing {
                    Some(landing) => shared.land_unkept(landing, hash, is_it),
                    // The value that this one was to replace is not to be found any more.
                    None => shared.displace(hash, is_it),
                }
                return Err(self.reject(why));
            }
            let (lacks, victims) = self.try_publish(home, weight, &mut landing);
            if let Lacks::Nothing = lacks {
                // The cache has it. Code of the program's that panics from here on costs the caller the guard alone.
                // SAFETY: the entry has key and value, and was made with a hold for the guard, which is this.
                let hold = unsafe { Hold::new(shared, ManuallyDrop::new(self).entry) };
                // Who waits for it is woken before any code of the program's that may wait for them.
                drop(landing.take());
                victims.tell_and_drop();
                break hold;
            }
            // What was evicted for it is freed before more is.
            victims.tell_and_drop();
            obstacle = match lacks {
                Lacks::Nothing => Ok(()),
                Lacks::Worth | Lacks::Currency => {
                    drop(landing);
                    return Ok(self.reject(Refusal::Full).0.hold_alone());
                }
                Lacks::Room(missing) => shared.reserve(home, missing, weight).map(|()| self.reserved += missing),
                Lacks::Storage if shared.enlarge_storage(home) => Ok(()),
                Lacks::Storage => Err(Refusal::OutOfMemory),
            };
        };
        if shared.ages.is_some() {
            shared.sweep_some(home);
        }
        shared.choice.start_if_due(&shared.room);
        shared.choice.note_use(hash, weight, &shared.room);
        Ok(hold)
    }

    /// Does as [`Fresh::publish`] does, under the shard's lock, taken once. Room that is not reserved is made in the shard
    /// itself, as far as a few entries that leave are enough. Where the entry lacks nothing it becomes the cache's. The victims
    /// are out of the cache in any case.
    fn try_publish(
        &mut self,
        home: usize,
        weight: usize,
        landing: &mut Option<Landing<'_>>,
    ) -> (Lacks, Victims<'a, C>) {
        let (shared, hash, entry) = (self.shared, self.hash(), self.entry);
        let mut victims = Victims::new(shared, RemovalCause::Room);
        let mut guard = shared.shards()[home].lock();
        let state = &mut *guard;
        if let Some(storage) = &state.storage {
            storage.prefetch(hash);
        }
        match landing {
            Some(landing) if landing.is_outdated() => return (Lacks::Currency, victims),
            Some(_) => {}
            None => state.flights.outdate::<C>(hash, |key| C::is_same(key, self.key())),
        }
        let place = state.find::<C>(hash, |key| C::is_same(key, self.key()));
        let Some(storage) = &mut state.storage else { return (Lacks::Storage, victims) };
        if let Some(place) = place {
            // SAFETY: in the index, under the lock.
            let former = unsafe { storage.at(place).as_ref() };
            let counted = former.weight() + self.reserved;
            if !shared.room.exchange(counted, weight) {
                return (Lacks::Room(weight - counted), victims);
            }
            let (cause, count) = match self.times {
                Some((_, now)) if storage.is_over(former, now) => (RemovalCause::Expired, &mut state.counts.expired),
                _ => (RemovalCause::Replaced, &mut state.counts.replaced),
            };
            *count += 1;
            victims = Victims::new(shared, cause);
            // SAFETY: the entry has its key and value, and is the cache's from now on.
            victims.push(unsafe { storage.replace(place, entry) });
        } else {
            if self.reserved == weight {
                // There is room: the shard's queues fill up to its part.
                storage.tune(shared.fair_part(shared.room.goal()), shared.choice.setting());
            } else if !landing.as_ref().is_some_and(|landing| landing.is_awaited(&state.waiters))
                && storage.refuses(hash, weight)
            {
                // Whoever waits for it would compute it once more.
                return (Lacks::Worth, victims);
            } else {
                let missing = weight - self.reserved;
                shared.evict_at_home(storage, missing, &mut victims);
                state.counts.for_room += victims.len() as u64;
                if !shared.room.exchange(victims.weight(), missing) {
                    shared.count_out(victims.len(), victims.weight());
                    return (Lacks::Room(missing), victims);
                }
                self.reserved = weight;
                shared.room.note_inserter_if_pressed(weight);
            }
            if storage.len() == storage.capacity() {
                shared.room.entries.fetch_sub(victims.len(), Relaxed);
                return (Lacks::Storage, victims);
            }
            // SAFETY: the entry has its key and value, and is the cache's from now on.
            state.counts.returned += u64::from(unsafe { storage.add(entry) });
        }
        // SAFETY: it came into the cache just now, whose lock is held.
        shared.zoned.count_in(unsafe { entry.as_ref() });
        if let Some((times, _)) = self.times {
            // SAFETY: the cache's since now, whose lock is held.
            storage.set_times(unsafe { entry.as_ref() }, times);
        }
        // One more entry, less those that left for it.
        match victims.len() {
            0 => drop(shared.room.entries.fetch_add(1, Relaxed)),
            1 => {}
            more => drop(shared.room.entries.fetch_sub(more - 1, Relaxed)),
        }
        state.counts.insertions += 1;
        if let Some(landing) = landing {
            landing.land(state);
        }
        self.reserved = 0;
        (Lacks::Nothing, victims)
    }
}

impl<K: Eq + 'static, V: 'static> Fresh<'_, Typed<K, V>> {
    /// Writes the value, where there is none yet.
    ///
    /// # Panics
    /// As [`Fresh::assert_own`], where what made the value forked.
    pub fn write(&mut self, value: V) {
        self.assert_own();
        // SAFETY: the block is this one's and this process's alone, and has a place for the value.
        unsafe { Typed::<K, V>::value_at(self.entry).write(value) };
    }
}

/// The thing that an entry lacks before it can be put in.
enum Lacks {
    Nothing,
    /// So much of the weight is not counted yet.
    Room(usize),
    /// The shard has no number free.
    Storage,
    /// It is not worth what would have to go for it.
    Worth,
    /// Its key was removed, or got another value, while this one was computed.
    Currency,
}

impl<C: Content> Drop for Fresh<'_, C> {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.shared.room.give(self.reserved);
        }
        // SAFETY: an entry that is in no cache, of which this is the only owner, with its key.
        unsafe { hold::free(self.shared, self.entry, self.has_value) }
    }
}
