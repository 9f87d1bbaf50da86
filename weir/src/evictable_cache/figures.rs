//! The figures of a cache.

use core::sync::atomic::Ordering::Relaxed;

use super::header::Content;
use super::shared::Shared;
use super::stats::EvictableStats;

impl<C: Content> Shared<C> {
    /// Whether entries are held by guards, or values are being filled. What reclaim evicts or has written back meanwhile is
    /// no use of the program's. O(entries).
    pub fn is_in_use(&self) -> bool {
        self.stats().pinned > 0 || self.outside.load(Relaxed) > 0
    }

    /// The figures. Takes each shard's lock in turn, and looks at each entry: O(entries).
    pub fn stats(&self) -> EvictableStats {
        let room = &self.room;
        let mut stats = EvictableStats {
            rejected: self.rejected.load(Relaxed),
            bytes: room.bytes.load(Relaxed),
            entries: room.entries.load(Relaxed),
            target_bytes: room.target.load(Relaxed),
            max_bytes: room.max.load(Relaxed),
            metadata_bytes: size_of::<Self>() + size_of_val(self.shards()) + self.adapt.bytes(),
            ..EvictableStats::default()
        };
        self.write_back.count(&mut stats);
        for shard in self.shards() {
            let state = shard.lock();
            let counts = state.counts;
            stats.hits += counts.hits;
            stats.misses += counts.misses;
            stats.insertions += counts.insertions;
            stats.evicted_for_room += counts.for_room;
            stats.evicted_for_pressure += counts.for_pressure;
            stats.removed += counts.removed;
            stats.expired += counts.expired;
            stats.replaced += counts.replaced;
            if let Some(storage) = &state.storage {
                stats.metadata_bytes += storage.bytes();
                let is_pinned = |number: &u32| {
                    // SAFETY: in use, under the lock.
                    let header = unsafe { storage.entry(*number).as_ref() };
                    header.pins.is_held_more_than(1 + u32::from(header.is_dirty() || header.is_writing()))
                };
                stats.pinned += storage.policy.iter().filter(is_pinned).count();
            }
        }
        stats
    }
}
