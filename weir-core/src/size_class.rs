//! Size classes: eight to a doubling, so that no object wastes more than 12.5 % (DESIGN-NOTES 2).
//!
//! Class 0 means "none"; classes 1 to [`COUNT`] are the sizes of [`SIZE`].

use crate::page::{DESC_WORDS, PAGE};

/// Number of classes.
pub const COUNT: usize = 72;
/// Largest size that a class serves, bytes.
pub const MAX_SIZE: usize = 32 << 10;
/// Alignment of every object, bytes.
pub const MIN_ALIGN: usize = 16;
/// Words of a slab's header, before its bitmap.
pub const HEADER_WORDS: usize = 4;
/// Objects in a bucket at most.
pub const MAX_BATCH: usize = 64;
/// Objects that one CPU keeps of a class at most (UMA's largest bucket holds 254).
const MAX_CPU: usize = 256;
/// Bytes that one CPU keeps of a class at most, if that is more than a few objects.
const MAX_CPU_BYTES: usize = 64 << 10;

/// Object size by class.
pub const SIZE: [u32; COUNT + 1] = sizes();
/// Class by `(size + 15) / 16`.
pub static CLASS: [u8; MAX_SIZE / MIN_ALIGN + 1] = classes();
/// Pages of a slab by class.
pub const PAGES: [u8; COUNT + 1] = pages();
/// Objects of a slab by class.
pub const OBJECTS: [u16; COUNT + 1] = objects();
/// Objects moved at a time by class.
pub const BATCH: [u8; COUNT + 1] = batches();

const fn sizes() -> [u32; COUNT + 1] {
    let mut out = [0; COUNT + 1];
    let mut class = 1;
    while class <= COUNT {
        out[class] = if class <= 8 {
            16 * class as u32
        } else {
            let (doubling, step) = ((class - 9) / 8, (class - 9) % 8 + 1);
            (128 << doubling) + (16 << doubling) * step as u32
        };
        class += 1;
    }
    out
}

const fn classes() -> [u8; MAX_SIZE / MIN_ALIGN + 1] {
    let mut out = [1; MAX_SIZE / MIN_ALIGN + 1];
    let (mut i, mut class) = (1, 1);
    while i < out.len() {
        if i * MIN_ALIGN > SIZE[class] as usize {
            class += 1;
        }
        out[i] = class as u8;
        i += 1;
    }
    out
}

const fn slab_pages(size: usize) -> u8 {
    let least = if size <= 1024 { 4 } else { 1 };
    let objects_wanted = if size <= 4096 { 8 } else { (PAGE * 8) / size };
    let mut pages = least;
    let mut best = least;
    let mut best_waste = usize::MAX;
    while pages <= 32 {
        let bits = (pages * DESC_WORDS - HEADER_WORDS) * 32;
        let objects = pages * PAGE / size;
        if objects >= objects_wanted && objects >= 1 && objects <= bits {
            let waste = (pages * PAGE - objects * size) * 1024 / (pages * PAGE);
            if waste <= 1024 / 16 {
                return pages as u8;
            }
            if waste < best_waste {
                (best, best_waste) = (pages, waste);
            }
        }
        pages += 1;
    }
    best as u8
}

const fn pages() -> [u8; COUNT + 1] {
    let mut out = [0; COUNT + 1];
    let mut class = 1;
    while class <= COUNT {
        out[class] = slab_pages(SIZE[class] as usize);
        class += 1;
    }
    out
}

const fn objects() -> [u16; COUNT + 1] {
    let mut out = [0; COUNT + 1];
    let mut class = 1;
    while class <= COUNT {
        out[class] = (PAGES[class] as usize * PAGE / SIZE[class] as usize) as u16;
        class += 1;
    }
    out
}

const fn clamp(value: usize, min: usize, max: usize) -> usize {
    if value < min {
        min
    } else if value > max {
        max
    } else {
        value
    }
}

const fn batches() -> [u8; COUNT + 1] {
    let mut out = [0; COUNT + 1];
    let mut class = 1;
    while class <= COUNT {
        out[class] = clamp(cpu_objects(class) / 2, 2, MAX_BATCH) as u8;
        class += 1;
    }
    out
}

/// Objects of `class` that one CPU keeps at most.
pub const fn cpu_objects(class: usize) -> usize {
    clamp(MAX_CPU_BYTES / SIZE[class] as usize, 4, MAX_CPU)
}

/// The class for `size` bytes (at most [`MAX_SIZE`]).
#[inline]
pub fn class_of(size: usize) -> usize {
    CLASS[size.div_ceil(MIN_ALIGN)] as usize
}

/// The smallest class for `size` bytes whose objects are all aligned to `align`, a power of two up to a page.
pub fn class_aligned(size: usize, align: usize) -> Option<usize> {
    if size > MAX_SIZE || align > PAGE {
        return None;
    }
    (class_of(size)..=COUNT).find(|&c| (SIZE[c] as usize).is_multiple_of(align))
}

/// Which object of its slab the byte at `offset` belongs to, and how far into it.
#[inline]
pub fn object_at(class: usize, offset: usize) -> (usize, usize) {
    // A slab is at most 32 pages, so offsets stay below 2^17 and this reciprocal is exact.
    const RECIPROCAL: [u64; COUNT + 1] = {
        let mut out = [0; COUNT + 1];
        let mut class = 1;
        while class <= COUNT {
            out[class] = (1u64 << 32).div_ceil(SIZE[class] as u64);
            class += 1;
        }
        out
    };
    let index = ((offset as u64 * RECIPROCAL[class]) >> 32) as usize;
    (index, offset - index * SIZE[class] as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_and_wastes_at_most_an_eighth() {
        for size in 1..=MAX_SIZE {
            let class = class_of(size);
            assert!(SIZE[class] as usize >= size && (class == 1 || (SIZE[class - 1] as usize) < size), "{size}");
            let waste = SIZE[class] as usize - size;
            assert!(waste < 16 || waste * 8 <= SIZE[class] as usize, "{size} wastes {waste}");
        }
        assert_eq!(class_of(0), 1);
        assert_eq!(SIZE[COUNT] as usize, MAX_SIZE);
    }

    #[test]
    fn slabs_waste_little_and_their_bitmaps_fit() {
        for class in 1..=COUNT {
            let (pages, objects) = (PAGES[class] as usize, OBJECTS[class] as usize);
            assert!(pages <= 32 && objects <= (pages * DESC_WORDS - HEADER_WORDS) * 32, "class {class}");
            let waste = pages * PAGE - objects * SIZE[class] as usize;
            assert!(waste * 16 <= pages * PAGE, "class {class} ({}) wastes {waste} of {pages} pages", SIZE[class]);
        }
    }

    #[test]
    fn object_at_divides_exactly() {
        for class in 1..=COUNT {
            for offset in 0..PAGES[class] as usize * PAGE {
                let (index, rest) = object_at(class, offset);
                assert_eq!((index, rest), (offset / SIZE[class] as usize, offset % SIZE[class] as usize));
            }
        }
    }

    #[test]
    fn aligned_classes_are_aligned() {
        for shift in 4..=12 {
            for size in [1, 100, 1000, 5000, 20_000, 32_768] {
                let class = class_aligned(size, 1 << shift).unwrap();
                assert_eq!(SIZE[class] as usize % (1 << shift), 0);
                assert!(SIZE[class] as usize >= size);
            }
        }
        assert_eq!(class_aligned(MAX_SIZE + 1, 16), None);
    }
}
