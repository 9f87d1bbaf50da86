//! The size of shards' storage follows the number of their entries.

use core::sync::atomic::Ordering::Relaxed;

use super::header::Content;
use super::shard::State;
use super::shared::Shared;
use super::storage::Storage;

impl<C: Content> Shared<C> {
    /// Makes room for one entry more in a shard; `false`: there is no memory.
    pub fn enlarge_storage(&self, home: usize) -> bool {
        let shard = &self.shards()[home];
        let capacity = shard.lock().storage.as_ref().map_or(0, Storage::capacity);
        let is_timed = self.ages.is_some();
        let size = Storage::bytes_for(capacity + 1, is_timed);
        let Some(larger) = self.with_memory(home, size, || Storage::new(capacity + 1, is_timed)) else { return false };
        let mut state = shard.lock();
        let is_due = state.storage.as_ref().is_none_or(|now| now.len() == now.capacity());
        let old = if is_due && larger.capacity() > state.storage.as_ref().map_or(0, Storage::len) {
            exchange(&mut state, larger)
        } else {
            Some(larger)
        };
        drop(state);
        drop(old);
        true
    }

    /// Makes the storage of shards smaller that have few entries left.
    pub fn fit_storage(&self) {
        (0..self.shards().len()).for_each(|at| self.fit_shard(at));
        if self.room.entries.load(Relaxed) == 0 {
            self.adapt.stop();
        }
    }

    /// The same under pressure: where what is copied is little beside what that frees, or nothing. (More waits for relief: see
    /// [`Shared::relieved`].)
    pub fn fit_sparse_storage(&self) {
        for at in 0..self.shards().len() {
            let is_sparse = self.shards()[at].lock().storage.as_ref().is_some_and(Storage::is_sparse);
            if is_sparse {
                self.fit_shard(at);
            }
        }
        if self.room.entries.load(Relaxed) == 0 {
            self.adapt.stop();
        }
    }

    /// The same of one shard.
    pub fn fit_shard(&self, at: usize) {
        let shard = &self.shards()[at];
        let state = shard.lock();
        let Some((len, capacity)) = state
            .storage
            .as_ref()
            .filter(|now| now.is_roomy() && state.walks == 0)
            .map(|now| (now.len(), now.capacity()))
        else {
            return;
        };
        drop(state);
        let smaller = if len == 0 { None } else { Storage::new(2 * len, self.ages.is_some()) };
        if len > 0 && smaller.as_ref().is_none_or(|smaller| smaller.capacity() >= capacity) {
            return;
        }
        let mut state = shard.lock();
        let now = state.storage.as_ref().map_or(0, Storage::len);
        let old = match smaller {
            other if state.walks > 0 => other,
            None if now == 0 => state.storage.take(),
            Some(smaller) if now < smaller.capacity() => exchange(&mut state, smaller),
            other => other,
        };
        drop(state);
        drop(old);
    }
}

/// Moves a shard's entries to another storage; returns the former one.
fn exchange(state: &mut State, mut storage: Storage) -> Option<Storage> {
    if let Some(old) = &state.storage {
        storage.take_over(old);
    }
    state.storage.replace(storage)
}
