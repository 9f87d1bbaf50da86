//! What the duel of a cache's settings sees, and when it is made.

use core::sync::atomic::Ordering::Relaxed;
use weir_core::evict::duel::Held;

use super::header::Content;
use super::shared::Shared;

/// The fewest entries for which a duel of 80 KiB is made.
const FEWEST: usize = 32;
/// It is made when the cache holds this part of what it may.
const FILLED: usize = 8;

impl<C: Content> Shared<C> {
    /// Makes a duel when the cache is an eighth as full as it may get: its shadows begin empty, and are to have seen about what
    /// the cache has seen, as a loop may keep what was held first for good. Shadows that began with the half had none of the dead
    /// entries that the cache had, and the duel kept the setting by which it hit 27.5 % in place of 37.8 (the trace lirs-ps).
    #[inline]
    pub fn adapt_if_due(&self) {
        if !self.adapt.has_duel() {
            let (bytes, entries) = (self.room.bytes.load(Relaxed), self.room.entries.load(Relaxed));
            let is_due = bytes >= self.room.max.load(Relaxed) / FILLED || self.room.has_replaced.load(Relaxed);
            if entries >= FEWEST && is_due {
                self.adapt.start();
            }
        }
    }

    /// Notes a use of a key that the duel samples.
    #[cold]
    pub fn note_sampled(&self, hash: u64, weight: usize) {
        let (entries, bytes) = (self.room.entries.load(Relaxed), self.room.bytes.load(Relaxed));
        self.adapt.see(hash, weight, Held { entries, weight: bytes, target: self.room.target.load(Relaxed) });
    }
}
