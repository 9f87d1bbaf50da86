//! Checks of a batch of freed objects as it leaves a CPU's bucket for the depot. Each has to be an object, from its
//! beginning, and no two may be the same.
//!
//! A push compares an object with the bucket's top alone, and a slab's bitmap tells only what came back to the slab. An
//! object freed a second time, after others, would be handed out from the depot, and so would a pointer into an object.
//! Then one block has two owners. The fast path pays nothing for this check, and finds what has left the bucket: blocks
//! that were popped again at once never came here. That each object of a batch is one is always checked. Two batches
//! are not compared with each other, and of a cache with much traffic only some are searched for objects that are there
//! twice.

use crate::base::invalid_free::InvalidFree;
use crate::caches::geometry::{Geometry, MAX_BATCH};

/// Bits of the filter, of which a batch sets 64 at most. If its objects lie at random, about two of them find theirs
/// set by another, and are compared with all before them. Objects in a row find none.
const MARKS: usize = 1024;
/// Objects are told apart by the upper bits of a product (the golden ratio times 2^64, odd: Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Batches of a cache that are all checked; of those after them one in [`SAMPLE`] is. A program that sends each object
/// through the depot pays 1.5 to 2.5 ns an object for the check (10 ns without). A busy cache is spared that.
const ALL: u32 = 512;
/// See [`ALL`].
const SAMPLE: u32 = 8;

/// Whether each of `objects` is a whole number of objects behind the beginning of a slab, that is, no pointer into an object.
/// Five instructions each: what lies behind a slab's last object is left to [`check`], and to the slab.
///
/// Not inlined: it has the registers to itself.
#[inline(never)]
pub(crate) fn all_begin(g: &Geometry, objects: &[*mut u8]) -> bool {
    let (mask, step) = g.remainders();
    let is_inside = |object: *mut u8| u64::from((object as u64 & mask).wrapping_mul(step) >= step);
    objects.iter().map(|&object| is_inside(object)).sum::<u64>() == 0
}

/// Whether the batch after `before` others of its cache is to be checked.
#[inline]
pub(crate) fn is_due(before: u32) -> bool {
    before < ALL || before.is_multiple_of(SAMPLE)
}

/// Keeps of a batch what may go to the depot, in its order, and calls `wrong` for each of the rest; returns how many
/// stay.
///
/// Not inlined: its stack is given back before the depot's turn.
#[inline(never)]
pub(crate) fn check(g: &Geometry, objects: &mut [*mut u8], mut wrong: impl FnMut(InvalidFree, *mut u8)) -> usize {
    debug_assert!(objects.len() <= MAX_BATCH);
    let mut seen = [0u64; MARKS / 64];
    let mut kept = 0;
    for i in 0..objects.len() {
        let object = objects[i];
        let mark = (object as u64).wrapping_mul(GOLDEN) >> (64 - MARKS.ilog2());
        let (word, bit) = (&mut seen[(mark / 64) as usize], 1 << (mark % 64));
        let is_marked = *word & bit != 0;
        *word |= bit;
        let what = if !g.begins_object(object as usize) {
            InvalidFree::InteriorPointer
        } else if is_marked && objects[..kept].contains(&object) {
            InvalidFree::DoubleFree
        } else {
            objects[kept] = object;
            kept += 1;
            continue;
        };
        wrong(what, object);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_cache_is_sampled() {
        assert!((0..ALL).all(is_due));
        let due = (ALL..ALL + 1000 * SAMPLE).filter(|&before| is_due(before)).count();
        assert_eq!(due, 1000);
        assert!(is_due(u32::MAX - u32::MAX % SAMPLE));
    }
}
