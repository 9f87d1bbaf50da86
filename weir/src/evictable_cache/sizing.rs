//! The size of shards' storage follows the number of their entries.

use core::sync::atomic::Ordering::Relaxed;

use super::header::Content;
use super::shard::State;
use super::shared::Shared;
use super::storage::Storage;

/// A shard's storage is made smaller when less than this part of it is in use.
const SPARE: usize = 4;

impl<C: Content> Shared<C> {
    /// Makes room for one entry more in a shard; `false`: there is no memory.
    pub fn enlarge_storage(&self, home: usize) -> bool {
        let shard = &self.shards()[home];
        let capacity = shard.lock().storage.as_ref().map_or(0, Storage::capacity);
        let size = capacity.max(16) * 72;
        let Some(larger) = self.with_memory(home, size, || Storage::new(capacity + 1, self.seed)) else { return false };
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

    /// The same of one shard.
    pub fn fit_shard(&self, at: usize) {
        let shard = &self.shards()[at];
        let state = shard.lock();
        let (len, capacity) = state.storage.as_ref().map_or((0, 0), |now| (now.len(), now.capacity()));
        drop(state);
        if len > capacity / SPARE || capacity == 0 {
            return;
        }
        let smaller = if len == 0 { None } else { Storage::new(2 * len, self.seed) };
        if len > 0 && smaller.as_ref().is_none_or(|smaller| smaller.capacity() >= capacity) {
            return;
        }
        let mut state = shard.lock();
        let now = state.storage.as_ref().map_or(0, Storage::len);
        let old = match smaller {
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
