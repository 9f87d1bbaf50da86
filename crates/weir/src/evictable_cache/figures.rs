//! The figures of a cache: for the program, and as other processes read them.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::zone_class::ZoneClass;
use weir_core::platform::Clock;
use weir_core::telemetry::tables::EvictableRow;
use weir_linux::process::heap::HEAP;

use super::api::stats::EvictableStats;
use super::entry::header::{Content, Header};
use super::entry::place::Place;
use super::shard::state::{Counts, Shard};
use super::shared::Shared;

/// How often a shard's lock is tried, about 10 us: a look-up holds it for less than one. Whoever holds it for longer may
/// wait for the thread that reads.
const TRIES: usize = 1000;

impl<C: Content> Shared<C> {
    /// Whether entries are held by guards, or values are being filled. O(entries).
    pub fn is_in_use(&self) -> bool {
        self.stats().pinned > 0 || self.outside.load(Relaxed) > 0
    }

    /// The figures. Takes each shard's lock in turn, and looks at each entry: O(entries).
    pub fn stats(&self) -> EvictableStats {
        let (mut all, mut pinned) = (Counts::default(), 0);
        let mut metadata_bytes = size_of::<Self>() + size_of_val(self.shards()) + self.choice.bytes();
        for shard in self.shards() {
            let state = shard.lock();
            all.add(&state.counts);
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
            target_bytes: self.room.target.load(Relaxed),
            max_bytes: self.room.max.load(Relaxed),
            pinned,
            metadata_bytes,
        }
    }

    /// The figures as far as they can be had without a wait; `None`: a shard's lock stays held. O(shards).
    pub fn published(&self) -> Option<EvictableRow> {
        let mut all = Counts::default();
        for shard in self.shards() {
            all.add(&counts_of(shard)?);
        }
        let [hit_rate, return_rate] = self.worth.rates(HEAP.platform().now(), all.hits, all.returned);
        let bytes = self.room.bytes.load(Relaxed);
        Some(EvictableRow {
            name: self.name,
            bytes: bytes as u64,
            entries: self.room.entries.load(Relaxed) as u64,
            target_bytes: self.room.target.load(Relaxed) as u64,
            max_bytes: self.room.max.load(Relaxed) as u64,
            hits: all.hits,
            misses: all.misses,
            insertions: all.insertions,
            evicted_for_room: all.for_room,
            evicted_for_pressure: all.for_pressure,
            spare_bytes: self.spare(bytes) as u64,
            hit_rate,
            return_rate,
            miss_ns: self.worth.miss_ns(),
        })
    }

    /// What pressure on the heap may take of so many bytes. Entries in a zone of the program's are no memory of the heap.
    fn spare(&self, bytes: usize) -> usize {
        match self.place {
            Place::Zone(zone) if zone.class() != ZoneClass::Normal => 0,
            _ => bytes.saturating_sub(self.room.least().max(self.zoned.bytes())),
        }
    }
}

/// A shard's counts, if its lock is free for a moment.
fn counts_of(shard: &Shard) -> Option<Counts> {
    (0..TRIES).find_map(|_| {
        core::hint::spin_loop();
        shard.try_lock().map(|state| state.counts)
    })
}
