//! A slot of the cache of rules: two words, written one after the other without an order: the rule, and its tag xored with
//! the rule. A reader takes a rule only if the two give the tag that it expects, so words of two writers are no rule (but by a
//! chance of 2^-64), whatever the order that they are seen in.

use crate::os::sync::{AtomicUsize, constructor};
use core::sync::atomic::Ordering::Relaxed;

/// A rule and what it follows from.
pub(super) struct RuleSlot {
    rule: AtomicUsize,
    /// The tag, xored with the rule.
    check: AtomicUsize,
}

impl RuleSlot {
    constructor! {
        /// The rule 0, of tag 0.
        pub fn new() -> Self {
            Self { rule: AtomicUsize::new(0), check: AtomicUsize::new(0) }
        }
    }

    /// A rule, and the tag that it was kept with; of two writers' words a tag that is neither's.
    pub fn get(&self) -> (u64, u64) {
        let rule = self.rule.load(Relaxed) as u64;
        (rule, self.check.load(Relaxed) as u64 ^ rule)
    }

    /// Keeps a rule.
    pub fn set(&self, rule: u64, tag: u64) {
        self.rule.store(rule as usize, Relaxed);
        self.check.store((tag ^ rule) as usize, Relaxed);
    }
}
