//! The figures of a cache for its program.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::api::stats::EvictableStats;
use super::entry::header::{Content, Header};
use super::shard::state::Counts;
use super::shared::Shared;

impl<C: Content> Shared<C> {
    /// Whether entries are held by guards, values are being filled, or a call of the program's is in the listener. O(entries).
    pub fn is_in_use(&self) -> bool {
        self.stats().pinned > 0 || self.outside.load(Relaxed) > 0 || self.calls.are_there()
    }

    /// The figures. Takes each shard's lock in turn, and looks at each entry: O(entries).
    pub fn stats(&self) -> EvictableStats {
        let (mut all, mut pinned) = (Counts::default(), 0);
        let mut metadata_bytes = size_of::<Self>() + size_of_val(self.shards()) + self.choice.bytes();
        for shard in self.shards() {
            let state = shard.lock();
            all.add(&state.counts);
            metadata_bytes += state.flights.bytes() + state.waiters.bytes();
            if let Some(storage) = &state.storage {
                metadata_bytes += storage.bytes();
                // SAFETY: in the storage, under the lock.
                let is_pinned = |entry: &NonNull<Header>| unsafe { !entry.as_ref().pins.is_held_once() };
                pinned += storage.entries().filter(is_pinned).count();
            }
        }
        EvictableStats {
            hits: all.hits,
            misses: all.misses,
            insertions: all.insertions,
            evicted_for_room: all.for_room,
            evicted_for_pressure: all.for_pressure,
            removed: all.removed,
            expired: all.expired,
            replaced: all.replaced,
            rejected: self.rejected.load(Relaxed),
            bytes: self.room.bytes.load(Relaxed),
            entries: self.room.entries.load(Relaxed),
            target_bytes: self.room.goal(),
            max_bytes: self.room.most(),
            pinned,
            metadata_bytes,
        }
    }
}
