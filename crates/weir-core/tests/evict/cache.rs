//! A cache of keys alone over the policy, as an owner would build one shard.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64};
use weir_core::evict::mix;
use weir_core::evict::replacement::duel::{Duel, DuelStorage, Held};
use weir_core::evict::replacement::favour::Favour;
use weir_core::evict::replacement::setting::Setting;
use weir_core::evict::replacement::slot::Slot;
use weir_core::evict::replacement::{Policy, Sightings};

/// A policy for `entries` entries; its storage is never freed.
pub fn policy(entries: usize) -> (&'static Sightings<'static>, Policy<'static>) {
    let slots: &[Slot] = Vec::leak((0..entries).map(|_| Slot::default()).collect());
    let hits: &[AtomicU8] = Vec::leak((0..entries).map(|_| AtomicU8::new(0)).collect());
    let sketch: &[AtomicU64] = Vec::leak((0..4 * entries.max(2)).map(|_| AtomicU64::new(0)).collect());
    let sightings: &Sightings = Box::leak(Box::new(Sightings::new(slots, hits, sketch)));
    (sightings, Policy::new(sightings, Vec::leak(vec![0; 2 * entries.max(4)])))
}

/// The mixed hash of a key: every bit depends on every bit, unlike the keys of the traces.
pub fn hash(key: u64) -> u32 {
    mix(key, 11)
}

/// Another one, by which the duel samples.
fn hash_for_duel(key: u64) -> u32 {
    mix(key, 12)
}

/// A cache of keys, with a weight of 1 each unless a test says otherwise.
pub struct Cache {
    sightings: &'static Sightings<'static>,
    pub policy: Policy<'static>,
    duel: Option<Duel<'static>>,
    entries: HashMap<u64, u32>,
    keys: Vec<u64>,
    free: Vec<u32>,
    /// How often the setting changed.
    pub changes: usize,
    /// Keys that were put in again not long after their eviction.
    pub returned: u64,
}

impl Cache {
    /// One of `target` entries that runs by one setting for good.
    pub fn fixed(target: usize, setting: Setting) -> Self {
        let (sightings, mut policy) = policy(target + 1);
        policy.set_target(target);
        policy.set_setting(setting);
        let free = (0..target as u32 + 1).rev().collect();
        Self {
            sightings,
            policy,
            duel: None,
            entries: HashMap::new(),
            keys: vec![0; target + 1],
            free,
            changes: 0,
            returned: 0,
        }
    }

    /// One of `target` entries; a duel chooses its setting.
    pub fn adaptive(target: usize) -> Self {
        let storage = Box::leak(Box::new(DuelStorage::empty()));
        Self { duel: Some(Duel::new(storage, Favour::Entries)), ..Self::fixed(target, Setting::Balanced) }
    }

    /// Uses a key: true if it was here.
    pub fn access(&mut self, key: u64) -> bool {
        let held = Held { entries: self.policy.len(), weight: self.policy.weight(), target: self.policy.target() };
        if let Some(duel) = &mut self.duel
            && duel.access(hash_for_duel(key), 1, held)
        {
            self.changes += 1;
            self.policy.set_setting(duel.setting());
        }
        if self.hit(key) {
            return true;
        }
        self.insert(key, 1);
        self.evict();
        false
    }

    /// Uses a key of such a weight, 1 at least, as a cache does that may refuse it and makes room before it comes: true if it was
    /// here. The duel does not see it.
    pub fn access_of(&mut self, key: u64, weight: usize) -> bool {
        if self.hit(key) {
            return true;
        }
        let is_full = self.policy.weight() + weight > self.policy.target();
        if !is_full || !self.policy.refuses(hash(key), weight) {
            self.evict_for(weight);
            self.insert(key, weight);
        }
        false
    }

    fn hit(&mut self, key: u64) -> bool {
        let entry = self.entries.get(&key).copied();
        entry.into_iter().for_each(|entry| self.sightings.hit(entry, hash(key)));
        entry.is_some()
    }

    fn insert(&mut self, key: u64, weight: usize) {
        let entry = self.free.pop().expect("a cache evicts down to its target with each insertion");
        self.entries.insert(key, entry);
        self.keys[entry as usize] = key;
        self.returned += u64::from(self.policy.insert(entry, hash(key), weight));
    }

    /// Evicts down to the target.
    pub fn evict(&mut self) {
        self.evict_for(0);
    }

    fn evict_for(&mut self, weight: usize) {
        while let Some(victim) = self.policy.evict_for(weight, |_| false) {
            self.entries.remove(&self.keys[victim as usize]);
            self.free.push(victim);
        }
    }

    /// True if the key is here; no use of it.
    pub fn holds(&self, key: u64) -> bool {
        self.entries.contains_key(&key)
    }

    /// The share of the accesses that hit.
    pub fn hit_rate(&mut self, trace: impl IntoIterator<Item = u64>) -> f64 {
        let (mut hits, mut all) = (0, 0);
        for key in trace {
            hits += u32::from(self.access(key));
            all += 1;
        }
        f64::from(hits) / f64::from(all)
    }
}
