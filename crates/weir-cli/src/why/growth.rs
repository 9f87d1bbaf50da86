//! Growth between two looks.

use super::look::Look;
use super::parts::{Name, Parts};
use serde::Serialize;
use std::collections::BTreeMap;

/// See the module. Bytes are differences; what shrank is negative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    pub ns: u64,
    pub resident_bytes: i64,
    /// In use by the program: objects of Weir's, at their sizes, touched or not.
    pub live_bytes: i64,
    /// The program's mappings, `brk` heap and stacks.
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
        let both = first.weir.as_ref().zip(second.weir.as_ref());
        let live_bytes = both.map_or(0, |(first, second)| match (first.measured, second.measured) {
            (Some(before), Some(after)) => difference(before.live, after.live),
            // Pages and blocks are counted, if nothing else is.
            _ => difference(first.handed_out, second.handed_out),
        });
        // Without Weir the allocator's memory is among these. The stack of a thread that runs is not known as one. It
        // is a mapping of the program's own at one look, and a stack at the next.
        let own = |parts: &Parts| {
            let kinds = [Name::OwnMappings, Name::BrkHeap, Name::Stacks];
            kinds.into_iter().map(|name| parts.bytes(name)).sum()
        };
        // A table that was not there at the first look tells of no growth.
        let is_measured = both.is_some_and(|(first, _)| first.measured.is_some());
        // Several caches may have one name.
        let used = |look: &Look| {
            let mut used = BTreeMap::<String, u64>::new();
            for holder in look.weir.iter().filter(|_| is_measured).flat_map(|it| &it.holders) {
                let sum = used.entry(holder.name.clone()).or_default();
                *sum = sum.saturating_add(holder.used_bytes);
            }
            used
        };
        let old = used(first);
        let more = |(name, used): (String, u64)| {
            let more = difference(old.get(&name).copied().unwrap_or(0), used);
            (more > 0).then_some((name, more))
        };
        let mut grown: Vec<(String, i64)> = used(second).into_iter().filter_map(more).collect();
        grown.sort_by_key(|&(_, more)| std::cmp::Reverse(more));
        grown.truncate(NAMED);
        Self {
            ns: second.at_ns.saturating_sub(first.at_ns),
            resident_bytes: difference(before.resident_bytes(), after.resident_bytes()),
            live_bytes,
            own_mappings_bytes: difference(own(&before), own(&after)),
            holders: grown,
        }
    }

    /// Bytes that the program has more: growth that counts as a leak if it goes on.
    pub fn bytes(&self) -> u64 {
        self.live_bytes.max(0).saturating_add(self.own_mappings_bytes.max(0)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::memory::Measured;
    use crate::why::holders::Holder;
    use crate::why::look::OfWeir;

    fn look(live: Option<u64>, handed_out: u64, used_bytes: &[u64]) -> Look {
        let holder = |&used_bytes: &u64| Holder {
            name: "blocks".into(),
            object_bytes: 64,
            objects: 1,
            held_bytes: used_bytes,
            used_bytes,
            cached_bytes: 0,
            in_slabs_bytes: 0,
        };
        let measured = live.map(|live| Measured { live, ..Measured::default() });
        let holders = used_bytes.iter().map(holder).collect();
        Look { weir: Some(OfWeir { measured, handed_out, holders, ..OfWeir::default() }), ..Look::default() }
    }

    #[test]
    fn what_was_not_measured_at_first_did_not_grow_by_all_of_it() {
        let of = |first: &Look| Growth::between(first, &look(Some(900), 1000, &[800]));
        let grown = of(&look(Some(500), 700, &[300]));
        assert_eq!((grown.live_bytes, grown.bytes(), grown.holders), (400, 400, vec![("blocks".into(), 500)]));
        let grown = of(&look(None, 950, &[0]));
        assert_eq!((grown.live_bytes, grown.holders.len()), (50, 0));
        assert_eq!((of(&Look::default()).live_bytes, of(&look(Some(1000), 0, &[900])).bytes()), (0, 0));
    }

    #[test]
    fn caches_of_one_name_are_counted_together() {
        let look = |used: [u64; 2]| look(Some(900), 1000, &used);
        assert_eq!(Growth::between(&look([100, 10]), &look([100, 60])).holders, [("blocks".to_owned(), 50)]);
    }
}
