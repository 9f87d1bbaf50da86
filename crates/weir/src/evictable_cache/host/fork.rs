//! `fork`, and the figures of a cache as other processes read them.

use core::sync::atomic::Ordering::Relaxed;
use weir_core::base::zone_class::ZoneClass;
use weir_core::platform::Clock;
use weir_core::platform::lock::RankTurn;
use weir_core::telemetry::tables::EvictableRow;
use weir_linux::platform::linux::Linux;
use weir_linux::process::evictable_list::Evictable;
use weir_linux::process::heap::HEAP;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::host;
use crate::evictable_cache::shard::state::{Counts, Shard};
use crate::evictable_cache::shared::Shared;

/// How often a shard's lock is tried, about 10 us: a look-up holds it for less than one. Whoever holds it for longer may
/// wait for the thread that reads.
const TRIES: usize = 1000;

// SAFETY: a cache has the same shards, and the one duel, as long as it lives.
unsafe impl<C: Content> Evictable for Shared<C> {
    fn freeze(&self, turn: &RankTurn<'_, Linux>) {
        self.shards().iter().for_each(|shard| shard.freeze(turn));
        self.choice.freeze(turn);
    }

    fn figures(&self) -> Option<EvictableRow> {
        self.published()
    }

    /// In a forked child: other threads' computations will never end, and what they were about to put in will never come.
    fn inherit(&self) {
        let (mut bytes, mut entries, mut is_whole, mut counts) = (0, 0, true, Counts::default());
        let is_parents = matches!(self.place, Place::Zone(zone) | Place::First(zone) if zone.is_foreign());
        if is_parents {
            // First, as it makes known that entries may be the parent's.
            self.zoned.forget();
        }
        for shard in self.shards() {
            // A fork that took no locks (in a signal handler that interrupted a holder of one) left this one held. The state
            // behind it is not consistent, and waiting for it would be for ever.
            let Some(mut state) = shard.try_lock() else {
                is_whole = false;
                continue;
            };
            state.flights.inherit(&self.place);
            // This thread may wait for one of them, if a signal handler of its forked. It looks again.
            shard.landings.landed(|_| ());
            state.waiters.inherit();
            state.walks = 0;
            counts.add(&state.counts);
            if is_parents {
                // The entries are not this process's to read or write, and may not be there at all.
                core::mem::forget(state.storage.take());
            }
            if let Some(storage) = &state.storage {
                bytes += storage.policy().weight();
                entries += storage.policy().len();
            }
        }
        if is_whole {
            self.room.bytes.store(bytes, Relaxed);
            self.room.entries.store(entries, Relaxed);
        }
        self.parents.iter().zip(counts.told()).for_each(|(to, count)| to.store(count, Relaxed));
        self.scans.inherit();
        self.calls.inherit();
        self.gathering.inherit();
        // The relief of the parent's pressure comes to the parent alone.
        self.room.is_pressed.store(false, Relaxed);
        self.room.forget_inserters();
        host::note_child();
    }
}

impl<C: Content> Shared<C> {
    /// The figures as far as they can be had without a wait; `None`: a shard's lock stays held. O(shards).
    pub fn published(&self) -> Option<EvictableRow> {
        let mut all = Counts::default();
        for shard in self.shards() {
            all.add(&counts_of(shard)?);
        }
        let [hit_rate, return_rate] = self.worth.rates(HEAP.platform().now(), all.hits, all.returned);
        let bytes = self.room.bytes.load(Relaxed);
        // The cache's own figures are of its whole life; what is told to others is of this process.
        let told = all.told();
        let [hits, misses, insertions, evicted_for_room, evicted_for_pressure] =
            core::array::from_fn(|i| told[i].saturating_sub(self.parents[i].load(Relaxed)));
        Some(EvictableRow {
            name: self.name,
            bytes: bytes as u64,
            entries: self.room.entries.load(Relaxed) as u64,
            target_bytes: self.room.goal() as u64,
            max_bytes: self.room.most() as u64,
            hits,
            misses,
            insertions,
            evicted_for_room,
            evicted_for_pressure,
            spare_bytes: self.spare(bytes) as u64,
            hit_rate,
            return_rate,
            miss_ns: self.worth.miss_ns(),
        })
    }

    /// What pressure on the heap may take of so many bytes. Entries in a zone of the program's are no memory of the heap.
    fn spare(&self, bytes: usize) -> usize {
        match self.place {
            Place::Zone(zone) if zone.class() != ZoneClass::Normal && !C::OWNS_MEMORY => 0,
            _ => {
                let least = self.room.least_at(|| HEAP.platform().now().0);
                bytes.saturating_sub(least.max(self.zoned.bytes()))
            }
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
