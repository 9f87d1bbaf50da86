//! What a batch of freed objects is checked for as it leaves a CPU's bucket for the depot: that each is an object, from
//! its beginning, and that no two are the same.
//!
//! A push compares an object with the bucket's top alone, and a slab's bitmap tells only what came back to the slab. What
//! was freed, after others, a second time, or a pointer into an object, would be handed out from the depot: one block to
//! two owners. The fast path pays nothing for this check, and finds what has left the bucket: blocks that were popped
//! again at once never came here. Two batches are not compared with each other.

use crate::geometry::{Geometry, MAX_BATCH};
use crate::platform::Misuse;

/// Marks of the filter, of which a batch sets 64 at most: about four of its objects find theirs set by another, if they
/// lie at random, and are compared with all before them; objects in a row find none.
const MARKS: usize = 512;
/// Objects are told apart by the upper bits of a product (the golden ratio times 2^64, odd: Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keeps of a batch what may go to the depot, in its order, and calls `wrong` for each of the rest; returns how many stay.
///
/// Not inlined: its half a KiB of stack is given back before the depot's turn.
#[inline(never)]
pub(crate) fn check(g: &Geometry, objects: &mut [*mut u8], mut wrong: impl FnMut(Misuse, *mut u8)) -> usize {
    debug_assert!(objects.len() <= MAX_BATCH);
    let mut seen = [false; MARKS];
    let mut kept = 0;
    for i in 0..objects.len() {
        let object = objects[i];
        let mark = &mut seen[((object as u64).wrapping_mul(GOLDEN) >> (64 - MARKS.ilog2())) as usize];
        let what = if !g.begins_object(object as usize) {
            Misuse::InteriorPointer
        } else if core::mem::replace(mark, true) && objects[..kept].contains(&object) {
            Misuse::DoubleFree
        } else {
            objects[kept] = object;
            kept += 1;
            continue;
        };
        wrong(what, object);
    }
    kept
}
