//! The figures of a cache: for the program, and as other processes read them.

use core::sync::atomic::Ordering::Relaxed;
use weir_linux::process::evictable_caches::EvictableRow;

use super::header::Content;
use super::shared::Shared;
use super::stats::EvictableStats;

/// How often a shard's lock is tried, about 10 us: a look-up holds it for less than one. Whoever holds it for longer may
/// wait for the thread that reads.
const TRIES: usize = 1000;

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

    /// The figures as far as they can be had without a wait; `None`: a shard's lock stays held. O(shards).
    pub fn published(&self) -> Option<EvictableRow> {
        let room = &self.room;
        let mut row = EvictableRow {
            name: self.name,
            bytes: room.bytes.load(Relaxed) as u64,
            entries: room.entries.load(Relaxed) as u64,
            target_bytes: room.target.load(Relaxed) as u64,
            max_bytes: room.max.load(Relaxed) as u64,
            dirty_bytes: self.write_back.bytes() as u64,
            ..EvictableRow::default()
        };
        for shard in self.shards() {
            let counts = (0..TRIES).find_map(|_| {
                let counts = shard.try_lock().map(|shard| shard.counts);
                counts.or_else(|| {
                    core::hint::spin_loop();
                    None
                })
            })?;
            row.hits += counts.hits;
            row.misses += counts.misses;
            row.insertions += counts.insertions;
            row.evicted_for_room += counts.for_room;
            row.evicted_for_pressure += counts.for_pressure;
        }
        Some(row)
    }
}
