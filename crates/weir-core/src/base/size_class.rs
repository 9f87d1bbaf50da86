//! Size classes: eight to a doubling, so that no object wastes more than 12.5 %. From 512 bytes to 8 KiB each power of two has one
//! more behind it, a 32nd larger. Values and pages with a header in front are of such sizes, and would else waste the most: redis with
//! values of 512 bytes was a tenth larger than on glibc.
//!
//! Class 0 means "none"; classes 1 to [`COUNT`] are the sizes of [`SIZE`].

use core::alloc::Layout;

use crate::base::units::{Class, PAGE};

/// Number of classes.
pub const COUNT: usize = 77;
/// Largest size that a class serves, bytes.
pub const MAX_SIZE: usize = 32 << 10;
/// Alignment of every object, bytes.
pub const MIN_ALIGN: usize = 16;
/// Below it a class is [`MIN_ALIGN`] larger than the one before.
const FIRST_DOUBLING: usize = 128;
/// From here on a power of two has a class for itself and a header behind it.
const FIRST_HEADED: usize = 512;
/// And up to here: of larger ones a slab holds as many with an eighth more.
const LAST_HEADED: usize = 8 << 10;
/// That header, as a part of the power of two.
const HEADER_PART: usize = 32;

/// Object size by class.
pub const SIZE: [u32; COUNT + 1] = sizes();
/// Class by `(size + 15) / 16`.
pub static CLASS: [Class; MAX_SIZE / MIN_ALIGN + 1] = classes();

const fn sizes() -> [u32; COUNT + 1] {
    let mut out = [0; COUNT + 1];
    let (mut class, mut size) = (1, MIN_ALIGN);
    while size <= MAX_SIZE {
        out[class] = size as u32;
        class += 1;
        let doubling = if size < FIRST_DOUBLING { FIRST_DOUBLING } else { 1 << size.ilog2() };
        if size == doubling && size >= FIRST_HEADED && size <= LAST_HEADED {
            out[class] = (size + size / HEADER_PART) as u32;
            class += 1;
        }
        size += doubling / 8;
    }
    out
}

const fn classes() -> [Class; MAX_SIZE / MIN_ALIGN + 1] {
    let mut out = [Class(1); MAX_SIZE / MIN_ALIGN + 1];
    let (mut i, mut class) = (1, 1);
    while i < out.len() {
        if i * MIN_ALIGN > SIZE[class] as usize {
            class += 1;
        }
        out[i] = Class(class as u8);
        i += 1;
    }
    out
}

/// The class for `size` bytes (at most [`MAX_SIZE`]).
#[inline]
pub fn class_of(size: usize) -> Class {
    CLASS[size.div_ceil(MIN_ALIGN)]
}

/// Bytes of an object of `class`, a size class.
#[inline]
pub const fn size_of(class: Class) -> usize {
    SIZE[class.index()] as usize
}

/// A request for `size` bytes, aligned as every object is; `None`: more than half of all addresses.
#[inline]
pub const fn layout_of(size: usize) -> Option<Layout> {
    match Layout::from_size_align(size, MIN_ALIGN) {
        Ok(layout) => Some(layout),
        Err(_) => None,
    }
}

/// The smallest class for a request whose objects are all aligned to what it asks for, up to a page.
pub fn class_aligned(layout: Layout) -> Option<Class> {
    let (size, align) = (layout.size(), layout.align());
    if size > MAX_SIZE || align > PAGE {
        return None;
    }
    (class_of(size).0..=COUNT as u8).map(Class).find(|&class| size_of(class).is_multiple_of(align))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_and_wastes_at_most_an_eighth() {
        for size in 1..=MAX_SIZE {
            let class = class_of(size);
            assert!(size_of(class) >= size && (class == Class(1) || size_of(Class(class.0 - 1)) < size), "{size}");
            let waste = size_of(class) - size;
            assert!(waste < 16 || waste * 8 <= size_of(class), "{size} wastes {waste}");
        }
        assert_eq!(class_of(0), Class(1));
        assert_eq!(class_of(MAX_SIZE), Class(COUNT as u8));
    }

    #[test]
    fn aligned_classes_are_aligned() {
        for shift in 4..=12 {
            for size in [1, 100, 1000, 5000, 20_000, 32_768] {
                let class = class_aligned(Layout::from_size_align(size, 1 << shift).unwrap()).unwrap();
                assert_eq!(size_of(class) % (1 << shift), 0);
                assert!(size_of(class) >= size);
            }
        }
        assert_eq!(class_aligned(layout_of(MAX_SIZE + 1).unwrap()), None);
    }
}
