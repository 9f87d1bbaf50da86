//! The size of shards' storage follows the number of their entries.

use core::sync::atomic::Ordering::Relaxed;

use super::storage::Storage;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::shared::Shared;

impl<C: Content> Shared<C> {
    /// Makes room for one entry more in a shard; `false`: there is no memory.
    pub fn enlarge_storage(&self, home: usize) -> bool {
        let shard = &self.shards()[home];
        let (is_timed, entries) = (self.ages.is_some(), 1 + shard.lock().storage.as_ref().map_or(0, Storage::capacity));
        let larger = self.with_memory(home, Storage::bytes_for(entries, is_timed), || Storage::new(entries, is_timed));
        let Some(mut larger) = larger else { return false };
        let mut state = shard.lock();
        // It ends with its scope, under no lock: `drop` would take it by value, whose references into the block would be good until
        // the call's end, beyond the block.
        let _old = match &state.storage {
            Some(now) if now.len() < now.capacity() || larger.capacity() <= now.len() => Some(larger),
            now => {
                if let Some(now) = now {
                    larger.take_over(now);
                }
                state.storage.replace(larger)
            }
        };
        drop(state);
        true
    }

    /// Makes the storage of those shards smaller for which it `is_due`. Most callers pass [`Storage::is_roomy`]: shards that
    /// have few entries left. Under pressure it is [`Storage::is_sparse`]: shards where the copy is little beside what it
    /// frees, or nothing. More waits for relief, see [`Shared::relieved`].
    pub fn fit_storage(&self, is_due: fn(&Storage) -> bool) {
        (0..self.shards().len()).for_each(|at| self.fit_shard(at, is_due));
        if self.room.entries.load(Relaxed) == 0 {
            self.choice.stop();
        }
    }

    /// [`Shared::fit_storage`] of one shard, which gives up what many loads at once had as well.
    pub fn fit_shard(&self, at: usize, is_due: fn(&Storage) -> bool) {
        let shard = &self.shards()[at];
        let mut state = shard.lock();
        let due = state.storage.as_ref().filter(|now| state.walks == 0 && is_due(now)).map(Storage::len);
        let spare = (state.flights.spare(), state.waiters.spare());
        drop(state);
        drop(spare);
        let Some(len) = due else { return };
        // Without entries none is needed; without memory for a smaller one the larger stays.
        let mut other = None;
        if len > 0 {
            other = Storage::new(2 * len, self.ages.is_some());
            if other.is_none() {
                return;
            }
        }
        let mut state = shard.lock();
        let capacity = other.as_ref().map_or(0, Storage::capacity);
        if state.walks == 0
            && let Some(now) = &state.storage
            && (now.len()..now.capacity()).contains(&capacity)
        {
            if let Some(other) = &mut other {
                other.take_over(now);
            }
            core::mem::swap(&mut state.storage, &mut other);
        }
        drop(state);
        // What is in `other` now ends with its scope, as above.
    }
}
