//! What grew between two looks.

use super::look::Look;
use super::parts::{Name, Parts};
use serde::Serialize;

/// See the module. Bytes are differences; what shrank is negative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    pub ns: u64,
    pub resident_bytes: i64,
    /// In use by the program: objects of Weir's, at their sizes, touched or not.
    pub live_bytes: i64,
    pub own_mappings_bytes: i64,
    /// The sizes of which most more is in use, bytes.
    pub holders: Vec<(String, i64)>,
}

/// How many sizes are named.
const NAMED: usize = 3;

impl Growth {
    /// From one look to a later one.
    pub fn between(first: &Look, second: &Look) -> Self {
        let of = |look: &Look| Parts::of(look);
        let (before, after) = (of(first), of(second));
        let difference = |before: u64, after: u64| (after as i64).wrapping_sub(before as i64);
        let live = |look: &Look| look.weir.as_ref().and_then(|weir| weir.measured).map_or(0, |measured| measured[0]);
        // Without Weir the allocator's memory is among these.
        let own = |parts: &Parts| parts.bytes(Name::OwnMappings) + parts.bytes(Name::BrkHeap);
        let holders = |look: &Look| look.weir.as_ref().map_or(Vec::new(), |weir| weir.holders.clone());
        let old = holders(first);
        let used = |name: &str| old.iter().find(|holder| holder.name == name).map_or(0, |holder| holder.used_bytes);
        let mut grown: Vec<(String, i64)> = holders(second)
            .into_iter()
            .map(|holder| (holder.name.clone(), difference(used(&holder.name), holder.used_bytes)))
            .filter(|&(_, more)| more > 0)
            .collect();
        grown.sort_by_key(|&(_, more)| std::cmp::Reverse(more));
        grown.truncate(NAMED);
        Self {
            ns: second.at_ns.saturating_sub(first.at_ns),
            resident_bytes: difference(before.resident_bytes(), after.resident_bytes()),
            live_bytes: difference(live(first), live(second)),
            own_mappings_bytes: difference(own(&before), own(&after)),
            holders: grown,
        }
    }

    /// What the program has more of, bytes: what counts as a leak if it goes on.
    pub fn bytes(&self) -> u64 {
        self.live_bytes.max(0).saturating_add(self.own_mappings_bytes.max(0)) as u64
    }
}
