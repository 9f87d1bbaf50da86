//! One shard of a cache on `weir_core::evict`: a hash map to entry numbers, values beside it, one lock around all.

use super::cache::{Cache, Hash, Work};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use weir_core::evict::duel::{Duel, DuelStorage, Held};
use weir_core::evict::policy::{Policy, Sightings};
use weir_core::evict::slot::Slot;

/// Any number; hit rates do not depend on which.
const SEED: u64 = 0x3e17;

/// What the lock guards.
struct Shard<'a> {
    policy: Policy<'a>,
    duel: Duel<'a>,
    entries: HashMap<u64, u32, Hash>,
    /// Key and value by entry number.
    values: Vec<(u64, u64)>,
    free: Vec<u32>,
}

/// The shard, and what hits write without the lock.
struct Locked<'a> {
    sightings: &'a Sightings<'a>,
    shard: Mutex<Shard<'a>>,
}

/// Runs `work` with a cache of at most `entries` entries.
pub fn with(entries: usize, work: &mut Work) {
    // One entry more: it is inserted before another is evicted for it.
    let slots: Vec<Slot> = (0..=entries).map(|_| Slot::new()).collect();
    let sketch: Vec<AtomicU64> = (0..4 * entries).map(|_| AtomicU64::new(0)).collect();
    let sightings = Sightings::new(&slots, &sketch, SEED);
    let mut ghost = vec![0; 2 * entries];
    let mut storage = Box::new(DuelStorage::empty());
    let mut policy = Policy::new(&sightings, &mut ghost);
    policy.set_target(entries);
    let shard = Shard {
        policy,
        duel: Duel::new(&mut storage, SEED),
        entries: HashMap::with_capacity_and_hasher(entries + 1, Hash::default()),
        values: vec![(0, 0); entries + 1],
        free: (0..=entries as u32).rev().collect(),
    };
    work(&mut Locked { sightings: &sightings, shard: Mutex::new(shard) });
}

impl Shard<'_> {
    /// Lets the duel see an access.
    fn see(&mut self, hash: u64) {
        let held = Held { entries: self.policy.len(), weight: self.policy.weight(), target: self.policy.target() };
        if self.duel.access(hash, 1, held) {
            self.policy.set_setting(self.duel.setting());
        }
    }
}

impl Cache for Locked<'_> {
    fn get(&mut self, key: u64) -> Option<u64> {
        let mut shard = self.shard.lock().ok()?;
        shard.see(hash(key));
        let entry = *shard.entries.get(&key)?;
        self.sightings.hit(entry);
        Some(shard.values[entry as usize].1)
    }

    fn insert(&mut self, key: u64, value: u64) {
        let Ok(mut guard) = self.shard.lock() else { return };
        let shard = &mut *guard;
        let Some(entry) = shard.free.pop() else { return };
        shard.values[entry as usize] = (key, value);
        shard.entries.insert(key, entry);
        shard.policy.insert(entry, hash(key), 1);
        while let Some(victim) = shard.policy.evict(|_| false) {
            shard.entries.remove(&shard.values[victim as usize].0);
            shard.free.push(victim);
        }
    }

    fn held(&mut self) -> usize {
        self.shard.lock().map_or(0, |shard| shard.entries.len())
    }
}

fn hash(key: u64) -> u64 {
    Hash::default().hash_one(key)
}
