//! A slot of the cache of rules: two words, written one after the other without an order. They are the rule, and its tag xored
//! with the rule.
//!
//! Any thread writes and reads at any time, also a signal handler in the midst of a write. The bad interleaving is a reader that
//! has the rule of one writer and the tag of another. It would step over a frame by the rule of another function. It sees
//! `check ^ rule`, which is then the one's tag xored with both rules. That is the tag that it expects only if the two rules are
//! equal, and so the right one, or by a chance of 2^-64. That holds for words seen in any order, so both are `Relaxed`.

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
