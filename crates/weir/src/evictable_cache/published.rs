//! The figures of a cache as other processes read them: what can be had without a wait.

use core::sync::atomic::Ordering::Relaxed;
use weir_linux::process::evictable_caches::EvictableRow;

use super::header::Content;
use super::shared::Shared;

/// How often a shard's lock is tried, about 10 us: a look-up holds it for less than one. Whoever holds it for longer may
/// wait for the thread that reads.
const TRIES: usize = 1000;

impl<C: Content> Shared<C> {
    /// The figures; `None`: a shard's lock stays held. O(shards).
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
