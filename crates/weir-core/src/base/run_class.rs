//! Run classes: lengths of page runs that CPUs' buckets hold, eight to a doubling above the size classes.
//!
//! Up to 64 KiB a class is one length; above that its runs differ by 12.5 % at most. Those are as long as was asked for, in
//! whole pages: a class is where to look for one, no length that is rounded to.

use super::size_class::{COUNT, MAX_SIZE};
use super::units::{Class, PAGE};

/// Number of run classes.
pub const RUN_CLASSES: usize = 56;
/// The first run class: they go on behind malloc's size classes.
pub const FIRST: Class = nth(0);
/// The last run class.
pub(crate) const LAST: Class = nth(RUN_CLASSES - 1);
/// Largest size that a run class serves, bytes (4 MiB).
pub(crate) const MAX_CLASS_RUN: usize = MAX_SIZE << (RUN_CLASSES / PER_DOUBLING);
/// Classes from a power of two to the next.
const PER_DOUBLING: usize = 8;
const _: () = assert!(MAX_SIZE == PER_DOUBLING * PAGE && RUN_CLASSES.is_multiple_of(PER_DOUBLING));

/// How many classes longer than its own a request's run may be. It is three eighths longer at most than was asked for.
const LONGER: u8 = 2;

/// Run class `i`, below [`RUN_CLASSES`].
pub(crate) const fn nth(i: usize) -> Class {
    Class((COUNT + 1 + i) as u8)
}

/// Which of the run classes `class` is, from 0.
pub(crate) const fn place(class: Class) -> usize {
    class.index() - FIRST.index()
}

/// All run classes, ascending.
pub fn all() -> impl DoubleEndedIterator<Item = Class> {
    (0..RUN_CLASSES).map(nth)
}

/// Whether `class` is a run class.
#[inline]
pub(crate) const fn contains(class: Class) -> bool {
    class.0 >= FIRST.0 && class.0 <= LAST.0
}

/// Bytes of the longest run of `class`, a run class.
pub const fn size_of_class(class: Class) -> usize {
    let (doubling, step) = (place(class) / PER_DOUBLING, place(class) % PER_DOUBLING + 1);
    (MAX_SIZE << doubling) + (PAGE << doubling) * step
}

/// The class of runs for `size` bytes; `None`: none does, or a size class serves it.
#[inline]
pub(crate) fn class_of_run(size: usize) -> Option<Class> {
    if size <= MAX_SIZE || size > MAX_CLASS_RUN {
        return None;
    }
    let doubling = ((size - 1) / MAX_SIZE).ilog2() as usize;
    let step = (size - 1 - (MAX_SIZE << doubling)) / (PAGE << doubling);
    Some(nth(doubling * PER_DOUBLING + step))
}

/// The classes of runs that serve a request of run class `class`, its own first.
#[inline]
pub(crate) fn serving(class: Class) -> impl Iterator<Item = Class> {
    (class.0..=class.0.saturating_add(LONGER).min(LAST.0)).map(Class)
}

/// Whether a run of `class` serves requests of run class `wanted`.
pub(crate) fn serves(class: Class, wanted: Class) -> bool {
    (wanted.0..=wanted.0.saturating_add(LONGER)).contains(&class.0)
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
            let before = if class == FIRST { MAX_SIZE } else { size_of_class(nth(place(class) - 1)) };
            assert!(before < size, "{size} is served by {before}");
            let pages = size.next_multiple_of(PAGE);
            assert!(if size <= 2 * MAX_SIZE { of_class == pages } else { (of_class - pages) * 8 < size }, "{size}");
        }
        assert_eq!((class_of_run(MAX_SIZE), class_of_run(MAX_CLASS_RUN)), (None, Some(LAST)));
        assert_eq!((class_of_run(MAX_CLASS_RUN + 1), size_of_class(LAST)), (None, MAX_CLASS_RUN));
    }
}
