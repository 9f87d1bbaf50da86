//! Entries taken out: one, all, and those whose time is over.

use crate::evictable_cache::api::stats::RemovalCause;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::load::landing::Landing;
use crate::evictable_cache::parts::Part;
use crate::evictable_cache::shard::state::{Shard, State};
use crate::evictable_cache::shard::storage::Storage;
use crate::evictable_cache::shared::Shared;
use weir_core::base::time::Time;

/// Entries at which each insertion looks for their time: all of a shard, in as many insertions as it has an eighth of entries.
const SWEPT: u32 = 8;
/// Entries at which each eviction for pressure looks: some microseconds.
const SWEPT_FOR_PRESSURE: u32 = 1024;

/// Entries of a shard are taken out, each of which is looked at: counted as a walk, so that they keep their numbers, until this is
/// dropped, also where code of the program's panics.
struct Inside<'a> {
    shard: &'a Shard,
    /// The numbers that were given before.
    bound: u32,
}

impl<'a> Inside<'a> {
    fn begin(shard: &'a Shard, state: &mut State) -> Self {
        state.walks += 1;
        Self { shard, bound: state.storage.as_ref().map_or(0, Storage::numbers) }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        // A forked child counts none.
        state.walks = state.walks.saturating_sub(1);
    }
}

impl<C: Content> Shared<C> {
    /// Takes a key's entry out; whether there was one whose time was not over.
    pub fn remove(&self, hash: u32, is_it: impl FnMut(&C::Key) -> bool) -> bool {
        self.remove_for(RemovalCause::Removed, hash, is_it)
    }

    /// Takes a key's entry out that another value was to replace, which was refused: it is out of date.
    pub fn displace(&self, hash: u32, is_it: impl FnMut(&C::Key) -> bool) {
        self.remove_for(RemovalCause::Replaced, hash, is_it);
    }

    /// Takes a key's entry out for a cause; false where its time was over, or there is none.
    fn remove_for(&self, why: RemovalCause, hash: u32, mut is_it: impl FnMut(&C::Key) -> bool) -> bool {
        let now = self.time();
        let cause = self.remove_if(self.home(hash), |state| {
            state.flights.outdate::<C>(hash, &mut is_it);
            let (place, storage) = (state.find::<C>(hash, is_it)?, state.storage.as_ref()?);
            // SAFETY: in the index, under the lock: the cache holds it.
            let is_over = now.is_some_and(|now| storage.is_over(unsafe { storage.at(place).as_ref() }, now));
            Some((place, if is_over { RemovalCause::Expired } else { why }))
        });
        cause == Some(why)
    }

    /// Ends the flight of an entry that the cache does not keep. The value that an update was made of leaves with it, under one lock:
    /// who updates next must not find it.
    pub fn land_unkept(&self, mut landing: Landing<'_>, hash: u32, is_it: impl FnMut(&C::Key) -> bool) {
        let mut victims = Victims::new(self, RemovalCause::Replaced);
        if landing.is_update {
            let mut state = self.shards()[self.home(hash)].lock();
            // What came meanwhile is not what the update was made of.
            let former = if landing.is_outdated() { None } else { state.find::<C>(hash, is_it) };
            landing.land(&mut state);
            former.into_iter().for_each(|place| self.take(&mut state, place, &mut victims));
        }
        drop(landing);
        victims.tell_and_drop();
    }

    /// Takes an entry out that is held, if it is in the cache still.
    pub fn remove_held(&self, hold: &Hold<'_, C>) {
        let header = hold.header();
        self.remove_if(self.home(header.hash), |state| {
            let place = state.storage.as_ref()?.place_of(header)?;
            state.flights.outdate::<C>(header.hash, |key| C::is_same(key, hold.key()));
            Some((place, RemovalCause::Removed))
        });
    }

    /// Takes out what is `found` in a shard, for the cause that is found with it.
    fn remove_if(
        &self,
        home: usize,
        found: impl FnOnce(&State) -> Option<(usize, RemovalCause)>,
    ) -> Option<RemovalCause> {
        let mut state = self.shards()[home].lock();
        let (place, cause) = found(&state)?;
        let mut victims = Victims::new(self, cause);
        self.take(&mut state, place, &mut victims);
        let is_outgrown = state.is_outgrown();
        drop(state);
        victims.tell_and_drop();
        if is_outgrown {
            self.fit_shard(home, Storage::is_outgrown);
        }
        Some(cause)
    }

    /// Takes the entry at a place of the index out, for the victims' cause: removed, to be replaced, or its time is over.
    fn take(&self, state: &mut State, place: usize, victims: &mut Victims<'_, C>) {
        let Some(storage) = &mut state.storage else { return };
        let weight = victims.push(storage.take(place));
        match victims.cause() {
            RemovalCause::Expired => state.counts.expired += 1,
            RemovalCause::Replaced => state.counts.replaced += 1,
            _ => state.counts.removed += 1,
        }
        self.count_out(1, weight);
    }

    /// Takes all entries out.
    pub fn clear(&self) {
        self.take_all(Victims::tell_and_drop);
        self.fit_storage(Storage::is_roomy);
    }

    /// Takes all entries out, and tells nobody.
    pub fn drop_all(&self) {
        self.take_all(drop);
    }

    /// Takes out what is there as a shard's turn comes. It looks once at each number that was given by then, so it comes to an end
    /// although a listener puts entries back.
    fn take_all<'a>(&'a self, end: impl Fn(Victims<'a, C>)) {
        for home in 0..self.shards().len() {
            let inside = self.go_in(home);
            let (mut at, bound) = (0, inside.bound);
            let mut next = |storage: &mut Storage| storage.next_number(&mut at, bound);
            while let victims = self.take_some(home, RemovalCause::Removed, &mut next)
                && !victims.is_empty()
            {
                end(victims);
            }
        }
    }

    /// Begins to take all out of a shard, whose entries keep their numbers until the end.
    fn go_in(&self, home: usize) -> Inside<'_> {
        let shard = &self.shards()[home];
        let mut state = shard.lock();
        // Before the first entry leaves: what lands from here on is not kept.
        state.flights.outdate_if(|_| true);
        Inside::begin(shard, &mut state)
    }

    /// Takes out what is `next` in a shard, as many as victims may be.
    fn take_some(
        &self,
        home: usize,
        cause: RemovalCause,
        mut next: impl FnMut(&mut Storage) -> Option<u32>,
    ) -> Victims<'_, C> {
        let mut victims = Victims::new(self, cause);
        let mut state = self.shards()[home].lock();
        while !victims.is_full()
            && let Some(storage) = &mut state.storage
            && let Some(number) = next(storage)
            && let Some(place) = storage.place_of_number(number)
        {
            self.take(&mut state, place, &mut victims);
        }
        victims
    }

    /// Takes the entry at a place of the index out, whose time is over.
    #[cold]
    pub fn take_over(&self, state: &mut State, place: usize) -> Victims<'_, C> {
        let mut victims = Victims::new(self, RemovalCause::Expired);
        self.take(state, place, &mut victims);
        victims
    }

    /// Looks at a few entries of a shard, in turn, and takes out those that are over.
    pub fn sweep_some(&self, home: usize) {
        if let Some(now) = self.time()
            && self.sweep_in_turn(home, now, SWEPT, Part::All, Victims::tell_and_drop).0 > 0
        {
            self.fit_shard(home, Storage::is_outgrown);
        }
    }

    /// Looks at more entries, of any shard; how much of a part became free.
    pub fn sweep_for_pressure<'a>(&'a self, part: Part, end: impl FnMut(Victims<'a, C>)) -> usize {
        self.time().map_or(0, |now| self.sweep_in_turn(self.next_turn(), now, SWEPT_FOR_PRESSURE, part, end).1)
    }

    /// Looks at so many entries of a shard, from where the last sweep ended.
    fn sweep_in_turn<'a>(
        &'a self,
        home: usize,
        now: Time,
        mut left: u32,
        part: Part,
        end: impl FnMut(Victims<'a, C>),
    ) -> (usize, usize) {
        self.sweep(home, part, |storage| storage.next_over(now, &mut left), end)
    }

    /// Takes all entries out whose time is over; how many there were. Each that is there from the beginning is looked at, whatever
    /// a listener does meanwhile.
    pub fn sweep_all(&self) -> usize {
        let Some(now) = self.time() else { return 0 };
        let mut count = 0;
        for (home, shard) in self.shards().iter().enumerate() {
            let inside = Inside::begin(shard, &mut shard.lock());
            let (mut at, bound) = (0, inside.bound);
            let next = |storage: &mut Storage| storage.next_over_below(now, &mut at, bound);
            count += self.sweep(home, Part::All, next, Victims::tell_and_drop).0;
        }
        self.fit_storage(Storage::is_roomy);
        count
    }

    /// Takes entries out whose time is over, those that are `next`; their number, and how much of a part becomes free.
    fn sweep<'a>(
        &'a self,
        home: usize,
        part: Part,
        mut next: impl FnMut(&mut Storage) -> Option<u32>,
        mut end: impl FnMut(Victims<'a, C>),
    ) -> (usize, usize) {
        let (mut count, mut freed) = (0, 0);
        loop {
            let victims = self.take_some(home, RemovalCause::Expired, &mut next);
            (count, freed) = (count + victims.len(), freed + victims.freed(part));
            let is_done = !victims.is_full();
            end(victims);
            if is_done {
                return (count, freed);
            }
        }
    }
}
