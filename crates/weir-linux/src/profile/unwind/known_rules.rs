//! Rules of frames that were found before, by code address. They are a cache without a lock ([`super::rule_slot`]),
//! which forgets the older of two rules that want one slot.
//!
//! A tag is a hash of all that the rule follows from ([`super::table::Entry::tag`]): the address, and the bytes of the
//! function's entry. So an object that is closed, and another one that is loaded in its place, need not be told of.
//! Where the entry has other bytes, the tag is another.

use super::rule_slot::RuleSlot;

/// Slots: some frames a stack and some hundred stacks, 64 KiB, of which a process that takes no sample touches nothing.
const SLOTS: usize = 1 << 12;
/// 2^64 over the golden ratio: its product spreads an address over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

static KNOWN: [RuleSlot; SLOTS] = [const { RuleSlot::new() }; SLOTS];

fn slot(pc: usize) -> &'static RuleSlot {
    &KNOWN[((pc as u64).wrapping_mul(SPREAD) >> 48) as usize % SLOTS]
}

/// Contents of the slot of an address: the rule of any address, or none; and the tag that it was kept with.
pub(super) fn find(pc: usize) -> (u64, u64) {
    slot(pc).get()
}

/// Keeps the rule of an address.
pub(super) fn keep(pc: usize, rule: u64, tag: u64) {
    slot(pc).set(rule, tag);
}
