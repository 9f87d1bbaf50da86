//! A miniature cache without values: it shows how often one setting would hit.
//!
//! A shadow holds a sample of the keys, chosen by hash, in the same share of the cache's memory. Its hit rate is then close to
//! the whole cache's (Waldspurger and others, "Cache Modeling and Optimization using Miniature Simulations", 2017).

use super::favour::Favour;
use super::queues::Queues;
use super::setting::Setting;
use super::sketch::Sketch;
use super::slot::{Hits, NONE, Slot};
use core::sync::atomic::AtomicU8;

/// Entries of a shadow. On the traces of the hit rate experiment 256 to 1024 give the same mean.
pub const SHADOW_ENTRIES: usize = 512;
/// Places of the index: twice the entries, so that a look-up takes 1.5 steps.
const INDEX: usize = 2 * SHADOW_ENTRIES;

/// A shadow's memory. All zeros is empty.
#[derive(Debug)]
pub struct ShadowStorage {
    slots: [Slot; SHADOW_ENTRIES],
    hits: [AtomicU8; SHADOW_ENTRIES],
    ghost: [u32; SHADOW_ENTRIES],
    /// Entry numbers plus one by the hash of their keys; 0: none.
    index: [u16; INDEX],
}

impl ShadowStorage {
    /// Empty.
    pub const fn empty() -> Self {
        Self {
            slots: [const { Slot::new() }; SHADOW_ENTRIES],
            hits: [const { AtomicU8::new(0) }; SHADOW_ENTRIES],
            ghost: [0; SHADOW_ENTRIES],
            index: [0; INDEX],
        }
    }
}

/// The miniature cache.
#[derive(Debug)]
pub struct Shadow<'a> {
    queues: Queues<'a>,
    index: &'a mut [u16; INDEX],
    /// Entry numbers not in use, linked by their slots.
    free: u32,
}

impl<'a> Shadow<'a> {
    /// An empty one that runs by `setting`.
    pub fn new(storage: &'a mut ShadowStorage, setting: Setting, favour: Favour) -> Self {
        let ShadowStorage { slots, hits, ghost, index } = storage;
        let slots: &'a [Slot] = slots;
        for (entry, slot) in (1..).zip(slots) {
            slot.set_next(if entry < SHADOW_ENTRIES as u32 { entry } else { NONE });
        }
        let mut queues = Queues::new(slots, Hits::new(hits), ghost);
        queues.set_setting(setting);
        queues.set_favour(favour);
        Self { queues, index, free: 0 }
    }

    /// Uses the key of `hash`: true if it was here. If not it is inserted, and others are evicted for it.
    pub fn access(&mut self, hash: u32, weight: usize, sketch: &Sketch) -> bool {
        if let Some(place) = self.find(hash) {
            let entry = u32::from(self.index[place]) - 1;
            self.queues.hits().hit(entry);
            self.queues.set_weight(entry, weight);
            return true;
        }
        let is_full = self.queues.weight().saturating_add(weight) > self.queues.target();
        if is_full && self.queues.refuses(hash, weight, sketch) {
            return false;
        }
        if self.free == NONE {
            self.evict(sketch);
        }
        let entry = self.free;
        self.free = self.queues.slots()[entry as usize].next();
        self.queues.insert(entry, hash, weight);
        let place = self.empty_place(hash);
        self.index[place] = entry as u16 + 1;
        while self.queues.weight() > self.queues.target() && self.queues.len() > 1 {
            self.evict(sketch);
        }
        false
    }

    /// The weight to keep to, bytes.
    pub fn set_target(&mut self, target: usize) {
        self.queues.set_target(target);
    }

    /// The number of entries.
    pub const fn entries(&self) -> usize {
        self.queues.len()
    }

    /// Drops the entries for which `is_kept` does not hold of the hash.
    pub fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        for entry in 0..SHADOW_ENTRIES as u32 {
            let hash = self.queues.slots()[entry as usize].hash();
            if !is_kept(hash) && self.queues.remove(entry) {
                self.release(entry);
            }
        }
    }

    fn evict(&mut self, sketch: &Sketch) {
        if let Some(entry) = self.queues.evict(sketch, 0, |_| false) {
            self.release(entry);
        }
    }

    /// Forgets the key of an entry that is in no queue any more.
    fn release(&mut self, entry: u32) {
        let slot = &self.queues.slots()[entry as usize];
        if let Some(place) = self.find(slot.hash()) {
            self.clear(place);
        }
        slot.set_next(self.free);
        self.free = entry;
    }

    fn find(&self, hash: u32) -> Option<usize> {
        let slots = self.queues.slots();
        let places = (0..INDEX).map(|step| (hash as usize + step) % INDEX);
        places
            .take_while(|&place| self.index[place] != 0)
            .find(|&place| slots[self.index[place] as usize - 1].hash() == hash)
    }

    fn empty_place(&self, hash: u32) -> usize {
        let places = (0..INDEX).map(|step| (hash as usize + step) % INDEX);
        places.into_iter().find(|&place| self.index[place] == 0).unwrap_or(0)
    }

    /// Empties a place of the index, and moves those behind it up, so that no look-up stops early.
    fn clear(&mut self, mut hole: usize) {
        let slots = self.queues.slots();
        let mut at = hole;
        loop {
            at = (at + 1) % INDEX;
            let Some(entry) = self.index[at].checked_sub(1) else { break };
            let home = slots[entry as usize].hash() as usize % INDEX;
            // It may move up unless its home lies between the hole and where it is.
            if (at + INDEX - home) % INDEX >= (at + INDEX - hole) % INDEX {
                self.index[hole] = entry + 1;
                hole = at;
            }
        }
        self.index[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::mix;

    #[test]
    fn finds_what_it_holds_and_keeps_to_its_target() {
        let mut storage = Box::new(ShadowStorage::empty());
        let sketch = Sketch::new(&[]);
        let mut shadow = Shadow::new(&mut storage, Setting::Balanced, Favour::Entries);
        shadow.set_target(1000);
        for key in 0..10_000u64 {
            shadow.access(mix(key * key, 5), 1 + (key % 7) as usize, &sketch);
            assert!(shadow.queues.weight() <= 1000 && shadow.entries() <= SHADOW_ENTRIES);
        }
        // The index and the queues agree.
        assert_eq!(shadow.index.iter().filter(|place| **place != 0).count(), shadow.entries());
        for entry in shadow.queues.iter() {
            let hash = shadow.queues.slots()[entry as usize].hash();
            assert_eq!(shadow.find(hash).map(|place| u32::from(shadow.index[place]) - 1), Some(entry));
        }
        shadow.retain(|hash| hash.is_multiple_of(2));
        assert!(shadow.entries() > 0);
        assert!(shadow.queues.iter().all(|entry| shadow.queues.slots()[entry as usize].hash().is_multiple_of(2)));
        shadow.retain(|_| false);
        assert_eq!((shadow.entries(), shadow.index.iter().all(|place| *place == 0)), (0, true));
    }

    #[test]
    fn more_light_entries_than_slots_are_evicted_by_number() {
        let mut storage = Box::new(ShadowStorage::empty());
        let sketch = Sketch::new(&[]);
        let mut shadow = Shadow::new(&mut storage, Setting::Recent, Favour::Entries);
        shadow.set_target(usize::MAX);
        (0..3000).for_each(|key| assert!(!shadow.access(mix(key, 5), 1, &sketch)));
        assert_eq!(shadow.entries(), SHADOW_ENTRIES);
        assert!(shadow.access(mix(2999, 5), 1, &sketch));
    }
}
