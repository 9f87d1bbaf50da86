//! A model of weights and pins that the policy is held against.

use std::collections::{BTreeMap, BTreeSet};
use weir_core::evict::replacement::Policy;

/// Entries with their weights, and those pinned, as the owner sees them.
#[derive(Default)]
pub struct Model {
    pub held: BTreeMap<u32, usize>,
    pub pinned: BTreeSet<u32>,
}

impl Model {
    /// Evicts one entry, and holds it against the model.
    pub fn evict(&mut self, policy: &mut Policy) -> bool {
        let is_above = policy.weight() > policy.target();
        let victim = policy.evict(|entry| self.pinned.contains(&entry));
        match victim {
            Some(victim) => {
                assert!(is_above, "evicts only above the target");
                assert!(!self.pinned.contains(&victim), "{victim} is pinned");
                assert!(self.held.remove(&victim).is_some(), "{victim} is not held");
            }
            None => {
                let all_pinned = self.held.keys().all(|entry| self.pinned.contains(entry));
                assert!(!is_above || all_pinned, "above the target with entries that could go");
            }
        }
        victim.is_some()
    }

    pub fn check(&self, policy: &Policy) {
        assert_eq!(policy.weight(), self.held.values().sum::<usize>(), "the weights add up");
        assert_eq!(policy.len(), self.held.len());
        let mut listed: Vec<u32> = policy.iter().collect();
        listed.sort_unstable();
        assert!(listed.iter().eq(self.held.keys()), "each entry is in one queue, once");
    }
}
