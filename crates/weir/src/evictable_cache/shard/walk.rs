//! All entries of a cache, one after the other, while others use it.
//!
//! Entries are held in batches, under one shard's lock at a time, in the order of their numbers. Numbers change only where a
//! shard's storage becomes smaller, which waits until nobody walks in it: so what is there all the time comes once.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::shard::storage::Storage;
use crate::evictable_cache::shared::Shared;

/// Entries that are held at a time.
const BATCH: usize = 16;
/// Entries that are looked at under the lock at a time, where the time of many is over.
const LOOKS: usize = 64;

/// A walk through a cache.
pub struct Walk<'a, C: Content> {
    shared: &'a Shared<C>,
    held: [Option<Hold<'a, C>>; BATCH],
    /// So many of the held ones were given out.
    given: usize,
    home: usize,
    /// The number that comes next in that shard.
    at: u32,
    /// The shard counts this walk.
    is_in: bool,
}

impl<C: Content> Shared<C> {
    /// All entries, in no particular order; that counts as no use of them.
    pub fn walk(&self) -> Walk<'_, C> {
        Walk { shared: self, held: [const { None }; BATCH], given: BATCH, home: 0, at: 0, is_in: false }
    }

    /// Takes out the entries for which `is_kept` does not hold.
    pub fn retain(&self, mut is_kept: impl FnMut(&C::Key, &C::Value) -> bool) {
        // What lands from here on is not kept: the walk may be past its place by then.
        for shard in self.shards() {
            shard.lock().outdate_loads::<C>();
        }
        for hold in self.walk() {
            if !is_kept(hold.key(), hold.value()) {
                self.remove_held(&hold);
            }
        }
    }
}

impl<C: Content> Shared<C> {
    /// Returns what `take` takes of the keys of the `count` entries by which the cache gains most, those first by which it gains
    /// most. Up to 16 entries are held at a time.
    pub fn hottest<T>(&self, count: usize, mut take: impl FnMut(&C::Key) -> T) -> Vec<T> {
        let mut hot = Vec::new();
        let cut = |hot: &mut Vec<((u64, u8), T)>| {
            hot.sort_by_key(|&(worth, _)| Reverse(worth));
            hot.truncate(count);
        };
        // That of the last one, once there are enough.
        let mut least = None;
        for hold in self.walk().take_while(|_| count > 0) {
            let state = self.shards()[self.home(hold.header().hash)].lock();
            let worth = state.storage.as_ref().and_then(|storage| storage.worth(hold.header()));
            drop(state);
            let Some(worth) = worth.filter(|&worth| least.is_none_or(|least| worth > least)) else { continue };
            hot.push((worth, take(hold.key())));
            if hot.len() >= count.saturating_mul(2) {
                cut(&mut hot);
                least = hot.last().map(|&(worth, _)| worth);
            }
        }
        cut(&mut hot);
        hot.into_iter().map(|(_, taken)| taken).collect()
    }
}

impl<C: Content> Walk<'_, C> {
    /// Holds the next entries of this shard; whether there may be more.
    fn fill(&mut self) -> bool {
        let now = self.shared.time();
        let mut state = self.shared.shards()[self.home].lock();
        if !self.is_in {
            state.walks += 1;
            self.is_in = true;
        }
        let (mut count, mut looks) = (0, 0);
        while count < BATCH
            && looks < LOOKS
            && let Some(storage) = &state.storage
            && let Some(entry) = storage.next_in_use(&mut self.at)
        {
            looks += 1;
            // SAFETY: in the storage, under the lock: the cache holds it.
            if now.is_some_and(|now| storage.is_over(unsafe { entry.as_ref() }, now)) {
                continue;
            }
            // SAFETY: in the storage, under the lock.
            self.held[BATCH - 1 - count] = Some(unsafe { self.shared.pin(entry) });
            count += 1;
        }
        self.given = BATCH - count;
        count > 0 || looks == LOOKS
    }

    /// Goes out of the shard.
    fn leave(&mut self) {
        if core::mem::take(&mut self.is_in) {
            let mut state = self.shared.shards()[self.home].lock();
            // A forked child counts none.
            state.walks = state.walks.saturating_sub(1);
            let is_outgrown = state.is_outgrown();
            drop(state);
            // What went during the walk left the storage as it was.
            if is_outgrown {
                self.shared.fit_shard(self.home, Storage::is_outgrown);
            }
        }
    }
}

impl<'a, C: Content> Iterator for Walk<'a, C> {
    type Item = Hold<'a, C>;
    fn next(&mut self) -> Option<Hold<'a, C>> {
        while self.given == BATCH {
            if self.home == self.shared.shards().len() {
                return None;
            }
            if !self.fill() {
                self.leave();
                (self.home, self.at) = (self.home + 1, 0);
            }
        }
        self.given += 1;
        self.held[self.given - 1].take()
    }
}

impl<C: Content> Drop for Walk<'_, C> {
    fn drop(&mut self) {
        self.leave();
    }
}
