//! Run classes: lengths of page runs that CPUs' buckets hold, eight to a doubling above the size classes.
//!
//! Up to 64 KiB a class is one length; above that its runs differ by 12.5 % at most. Those are as long as was asked for, in
//! whole pages: a class is where to look for one, no length that is rounded to.

use super::size_class::{COUNT, MAX_SIZE};
use super::units::PAGE;

/// Number of run classes.
pub const RUN_CLASSES: usize = 56;
/// The first run class: the numbers of caches go on behind malloc's size classes.
pub const FIRST: usize = COUNT + 1;
/// The last run class.
pub const LAST: usize = COUNT + RUN_CLASSES;
/// All run classes.
pub const ALL: core::ops::RangeInclusive<usize> = FIRST..=LAST;
/// Largest size that a run class serves, bytes (4 MiB).
pub const MAX_CLASS_RUN: usize = MAX_SIZE << (RUN_CLASSES / PER_DOUBLING);
/// Classes from a power of two to the next.
const PER_DOUBLING: usize = 8;
const _: () = assert!(MAX_SIZE == PER_DOUBLING * PAGE && RUN_CLASSES.is_multiple_of(PER_DOUBLING));

/// Whether cache `number` is a run class.
#[inline]
pub const fn contains(number: usize) -> bool {
    number >= FIRST && number <= LAST
}

/// Bytes of the longest run of `class`, one from [`FIRST`] to [`LAST`].
pub const fn size_of_class(class: usize) -> usize {
    let (doubling, step) = ((class - FIRST) / PER_DOUBLING, (class - FIRST) % PER_DOUBLING + 1);
    (MAX_SIZE << doubling) + (PAGE << doubling) * step
}

/// The class of runs for `size` bytes; `None`: none does, or a size class serves it.
#[inline]
pub(crate) fn class_of_run(size: usize) -> Option<usize> {
    if size <= MAX_SIZE || size > MAX_CLASS_RUN {
        return None;
    }
    let doubling = ((size - 1) / MAX_SIZE).ilog2() as usize;
    let step = (size - 1 - (MAX_SIZE << doubling)) / (PAGE << doubling);
    Some(FIRST + doubling * PER_DOUBLING + step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_shortest_class_and_wastes_less_than_an_eighth() {
        for size in (MAX_SIZE + 1..=MAX_CLASS_RUN).step_by(61).chain([MAX_SIZE + 1, MAX_CLASS_RUN]) {
            let class = class_of_run(size).expect("a class serves it");
            let of_class = size_of_class(class);
            assert!(contains(class) && of_class >= size && of_class.is_multiple_of(PAGE), "{size}");
            let before = if class == FIRST { MAX_SIZE } else { size_of_class(class - 1) };
            assert!(before < size, "{size} is served by {before}");
            let pages = size.next_multiple_of(PAGE);
            assert!(if size <= 2 * MAX_SIZE { of_class == pages } else { (of_class - pages) * 8 < size }, "{size}");
        }
        assert_eq!((class_of_run(MAX_SIZE), class_of_run(MAX_CLASS_RUN)), (None, Some(LAST)));
        assert_eq!((class_of_run(MAX_CLASS_RUN + 1), size_of_class(LAST)), (None, MAX_CLASS_RUN));
    }
}
