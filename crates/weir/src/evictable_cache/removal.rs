//! Entries taken out: one, all, and those whose time is over.

use core::ptr::NonNull;

use super::ages::Ages;
use super::header::{Content, Header};
use super::hold::{Hold, Victims};
use super::shard::State;
use super::shared::Shared;
use super::stats::Cause;
use super::storage::Storage;

/// Entries at which each insertion looks for their time: all of a shard, in as many insertions as it has an eighth of entries.
const SWEPT: u32 = 8;
/// Entries at which each eviction for pressure looks: some microseconds.
const SWEPT_FOR_PRESSURE: u32 = 1024;

impl<C: Content> Shared<C> {
    /// Takes a key's entry out. One that is dirty is written back first; false also where that fails.
    pub fn remove(&self, hash: u64, mut is_it: impl FnMut(&C::Key) -> bool, is_kept_if_dirty: bool) -> bool {
        let home = self.home(hash);
        // Held until it is taken out: what is clean is evicted as soon as nobody holds it, and a removal that finds nothing says
        // that nothing was there. It is given up after the lock.
        let mut written;
        loop {
            let mut guard = self.shards()[home].lock();
            let state = &mut *guard;
            let Some(entry) = state.find::<C>(hash, &mut is_it).and_then(|place| state.at(place)) else { return false };
            // SAFETY: in the index, under the lock.
            let header = unsafe { entry.as_ref() };
            if is_kept_if_dirty && (header.is_dirty() || header.is_writing()) {
                header.pins.pin();
                drop(guard);
                written = Hold { shared: self, entry };
                if !self.write_one_back(&written) {
                    return false;
                }
                continue;
            }
            let mut victims = Victims::new(self, Cause::Removed);
            // SAFETY: found in the index under this lock.
            unsafe { self.take(state, entry, &mut victims) };
            let is_roomy = state.storage.as_ref().is_some_and(Storage::is_roomy);
            drop(guard);
            victims.tell_and_drop();
            if is_roomy {
                self.fit_shard(home);
            }
            return true;
        }
    }

    /// Takes an entry out that is held, if it is in the cache still. One that is dirty is written back first, and stays where
    /// that fails.
    pub fn remove_held(&self, hold: &Hold<'_, C>) {
        let header = hold.header();
        let home = self.home(header.hash);
        loop {
            let mut state = self.shards()[home].lock();
            if header.is_out() {
                return;
            }
            if header.is_dirty() || header.is_writing() {
                drop(state);
                if !self.write_one_back(hold) {
                    return;
                }
                continue;
            }
            let mut victims = Victims::new(self, Cause::Removed);
            // SAFETY: not out, so in the index of its shard, whose lock is held.
            unsafe { self.take(&mut state, hold.entry, &mut victims) };
            drop(state);
            return victims.tell_and_drop();
        }
    }

    /// Takes an entry out, for the victims' cause: removed, or its time is over.
    ///
    /// # Safety
    /// The entry is in the index of the shard whose state this is.
    pub unsafe fn take(&self, state: &mut State, entry: NonNull<Header>, victims: &mut Victims<'_, C>) {
        // SAFETY: as the caller promises.
        unsafe { self.forget_dirt(state, entry) };
        if let Some(storage) = &mut state.storage {
            // SAFETY: the same.
            unsafe { storage.take(entry) };
        }
        match victims.cause() {
            Cause::Expired => state.counts.expired += 1,
            _ => state.counts.removed += 1,
        }
        let before = victims.weight();
        victims.push(entry);
        self.count_out(1, victims.weight() - before);
    }

    /// Writes back what is dirty, and takes all entries out.
    pub fn clear(&self) {
        let _ = self.flush();
        self.take_all(Victims::tell_and_drop);
        self.fit_storage();
    }

    /// Takes all entries out, and tells nobody.
    pub fn drop_all(&self) {
        self.take_all(drop);
    }

    fn take_all<'a>(&'a self, end: impl Fn(Victims<'a, C>)) {
        for shard in self.shards() {
            loop {
                let mut victims = Victims::new(self, Cause::Removed);
                let mut state = shard.lock();
                while let Some(storage) = &state.storage
                    && !victims.is_full()
                    && let Some(number) = storage.policy.iter().next()
                {
                    let entry = storage.entry(number);
                    // SAFETY: the policy has its number, so it is in the index too.
                    unsafe { self.take(&mut state, entry, &mut victims) };
                }
                drop(state);
                if victims.is_empty() {
                    break;
                }
                end(victims);
            }
        }
    }
}

impl<C: Content> Shared<C> {
    /// What time it is, where entries have an end.
    pub fn time(&self) -> Option<u64> {
        self.ages.as_ref().map(Ages::now)
    }

    /// Takes the entry at a place of the index out, if its time is over.
    pub fn take_if_over(&self, state: &mut State, place: usize, now: u64) -> Option<Victims<'_, C>> {
        let storage = state.storage.as_ref()?;
        let entry = storage.at(place);
        if !storage.is_over(entry, now) {
            return None;
        }
        let mut victims = Victims::new(self, Cause::Expired);
        // SAFETY: in the index, under the lock.
        unsafe { self.take(state, entry, &mut victims) };
        Some(victims)
    }

    /// Looks at a few entries of a shard, in turn, and takes those out whose time is over.
    pub fn sweep_some(&self, home: usize) {
        if let Some(now) = self.time() {
            self.sweep(home, now, SWEPT);
        }
    }

    /// The same of more entries, of any shard; what those weighed that left.
    pub fn sweep_for_pressure(&self) -> usize {
        self.time().map_or(0, |now| self.sweep(self.next_turn(), now, SWEPT_FOR_PRESSURE).1)
    }

    /// Takes all entries out whose time is over; how many there were.
    pub fn sweep_all(&self) -> usize {
        let Some(now) = self.time() else { return 0 };
        (0..self.shards().len()).map(|home| self.sweep(home, now, u32::MAX).0).sum()
    }

    /// Looks at so many entries of a shard; the number and weight of those that left.
    fn sweep(&self, home: usize, now: u64, mut left: u32) -> (usize, usize) {
        let (mut count, mut weight) = (0, 0);
        loop {
            let mut victims = Victims::new(self, Cause::Expired);
            let mut state = self.shards()[home].lock();
            while !victims.is_full()
                && let Some(storage) = &mut state.storage
                && let Some(entry) = storage.next_over(now, &mut left)
            {
                // SAFETY: in the storage, under the lock.
                unsafe { self.take(&mut state, entry, &mut victims) };
            }
            drop(state);
            let is_done = !victims.is_full();
            (count, weight) = (count + victims.len(), weight + victims.weight());
            victims.tell_and_drop();
            if is_done {
                return (count, weight);
            }
        }
    }
}
