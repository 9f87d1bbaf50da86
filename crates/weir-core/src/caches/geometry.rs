//! The geometry of a cache: how its objects lie in slabs, and how many of them move at a time. And the numbers of
//! caches.
//!
//! malloc's size classes have theirs at compile time ([`MALLOC`]); a user cache gets its own when it is made.
//!
//! # Numbers and classes
//!
//! The class map has a [`Class`] a page, and a CPU's slab a bucket for each class. Numbers below [`BUCKETED`] are classes
//! themselves. Those of malloc are 1 to 77, the run classes 78 to 133 ([`crate::base::run_class`]), which have buckets and no
//! slabs. The user caches that were made first follow. Any further user cache has a number from [`UNBUCKETED`] on and no per-CPU
//! buckets. All these caches share two classes, [`SLAB_HEAD`] and [`SLAB_TAIL`], and the bucket of either is empty and full at
//! once. So the fast path of a free needs no check of its own: it fails to push. The slow path then reads the number in the
//! header of the slab. The two classes say which page that header belongs to.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::run_class;
use crate::base::size_class::{self, COUNT, MAX_SIZE};
use crate::base::units::{Class, PAGE, Pages};
use crate::pages::window::DESC_WORDS;

/// Number of the first user cache.
pub const FIRST_USER: usize = run_class::LAST.index() + 1;
/// Numbers below this have per-CPU buckets; number 0 is no cache.
pub const BUCKETED: usize = 253;
/// Class of the pages, but for the first, of a slab of a cache without buckets.
pub const SLAB_TAIL: Class = Class(253);
/// Class of the first page of such a slab.
pub const SLAB_HEAD: Class = Class(254);
/// The first number of a cache without buckets: no class is a number of these.
pub const UNBUCKETED: usize = 256;
/// Word of a slab's header that holds the number of its cache, if that is one without buckets.
pub const NUMBER_WORD: usize = HEADER_WORDS;
/// Largest object of a cache, bytes: one to a slab.
pub const MAX_OBJECT: usize = MAX_PAGES * PAGE;
/// Smallest object, bytes: smaller ones are rounded up, as a slab's bitmap has room for no more of them.
pub const MIN_OBJECT: usize = 16;
/// Words of a slab's header, before its bitmap; a cache without buckets has one more, for its number.
const HEADER_WORDS: usize = 4;
/// Objects moved at a time at most.
pub const MAX_BATCH: usize = 64;
/// Objects that one CPU holds of a user cache, at most.
pub const MAX_USER_BUCKET: usize = 128;

/// Pages of a slab at most.
pub(crate) const MAX_PAGES: usize = 32;
/// Objects that one CPU holds of a size class of malloc's at most (UMA's largest bucket holds 254).
const MAX_MALLOC_BUCKET: usize = 256;
/// Bytes that one CPU holds of a cache at most, if that is more than a few objects.
const MAX_CPU_BYTES: usize = 64 << 10;
/// Bytes that one CPU holds of a class of short runs at most: arenas of 64 KiB come and go by dozens.
const MAX_SHORT_RUN_BYTES: usize = 2 << 20;
/// The longest short run. With as many bytes of longer ones, two threads with runs of 128 to 500 KiB took a tenth more time: few
/// lengths had all the room.
const SHORT_RUN: usize = 128 << 10;
/// Bytes that one CPU holds of any other run class at most, if that is more than one run.
const MAX_CPU_RUN_BYTES: usize = 512 << 10;
/// Objects that one CPU may hold of any cache.
const FEW: usize = 4;
/// How much smaller than its largest a bucket is at the start.
const START_SHARE: usize = 4;
/// How much smaller than its largest a bucket may become.
const MIN_SHARE: usize = 16;

/// How the objects of a cache lie in slabs, and how many move at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Number of the cache.
    pub number: u32,
    /// Pages of a slab.
    pub pages: u8,
    /// Objects moved at a time at most.
    pub batch: u8,
    /// Objects of a slab.
    pub objects: u16,
    /// Objects that a CPU's bucket may hold: at least, at the start, and at most.
    pub bucket: [u16; 3],
    /// Object size, bytes.
    pub size: u32,
    /// `ceil(2^40 / size)`.
    reciprocal: u64,
}

/// malloc's size classes.
pub const MALLOC: [Geometry; COUNT + 1] = {
    let mut out = [Geometry::NONE; COUNT + 1];
    let mut class = 1;
    while class <= COUNT {
        out[class] = Geometry::new(class, size_class::size_of(Class(class as u8)));
        class += 1;
    }
    out
};

impl Geometry {
    /// No cache.
    pub const NONE: Self = Self { number: 0, pages: 0, batch: 0, objects: 0, bucket: [0; 3], size: 0, reciprocal: 0 };

    /// That of cache `number`, with objects of `size` bytes ([`MIN_OBJECT`] to [`MAX_OBJECT`]).
    pub const fn new(number: usize, size: usize) -> Self {
        // Of small objects a slab has many: short ones would come and go too often.
        Self::of_slabs(number, size, if size <= 1024 { 4 } else { 1 })
    }

    /// That of a cache with initialised objects. As all objects of a slab are made for the first allocation, slabs are short.
    pub(crate) const fn of_initialised(number: usize, size: usize) -> Self {
        Self::of_slabs(number, size, 1)
    }

    /// With slabs of `shortest` pages at least.
    const fn of_slabs(number: usize, size: usize, shortest: usize) -> Self {
        let pages = slab_pages(size, header_words(number), shortest);
        let most = clamp(MAX_CPU_BYTES / size, FEW, if number <= COUNT { MAX_MALLOC_BUCKET } else { MAX_USER_BUCKET });
        let least = clamp(most / MIN_SHARE, 2, most);
        let start = clamp(most / START_SHARE, least, most);
        Self {
            number: number as u32,
            pages: pages as u8,
            batch: clamp(most / 2, 2, MAX_BATCH) as u8,
            objects: (pages * PAGE / size) as u16,
            bucket: [least as u16, start as u16, most as u16],
            size: size as u32,
            reciprocal: (1u64 << 40).div_ceil(size as u64),
        }
    }

    /// That of run class `class`. What a CPU's bucket may hold of it is decided CPU by CPU, not by the cache's ceiling.
    pub(crate) const fn of_runs(class: Class) -> Self {
        let size = run_class::size_of_class(class);
        let bytes = if size <= SHORT_RUN { MAX_SHORT_RUN_BYTES } else { MAX_CPU_RUN_BYTES };
        let most = if bytes > size { bytes / size } else { 1 };
        Self { number: class.0 as u32, bucket: [0, 0, most as u16], batch: 1, size: size as u32, ..Self::NONE }
    }

    /// Pages of a slab, as what zones are asked for.
    #[inline]
    pub(crate) const fn slab_pages(&self) -> Pages {
        Pages(self.pages as usize)
    }

    /// Whether it is of runs, which have no slabs.
    #[inline]
    pub(crate) const fn is_of_runs(&self) -> bool {
        run_class::contains(self.class())
    }

    /// Class of the first page of its slabs.
    #[inline]
    pub const fn class(&self) -> Class {
        class_of_number(self.number as usize)
    }

    /// Whether its slabs have their cache's number in their headers.
    #[inline]
    pub const fn is_numbered(&self) -> bool {
        self.number as usize >= UNBUCKETED
    }

    /// Words of a slab's header: the bitmap begins after them.
    #[inline]
    pub(crate) const fn header_words(&self) -> usize {
        header_words(self.number as usize)
    }

    /// Whether pages of its slabs can be merged ([`crate::merge`]): a page has parts of at most 64 objects, and several.
    #[inline]
    pub(crate) const fn may_merge(&self) -> bool {
        self.size as usize >= PAGE / 64 && (self.size as usize) < PAGE
    }

    /// Word of a slab's descriptors with the mask of its merged pages, behind the bitmap. A word for each page follows: which
    /// page is next in its ring. Only where [`Geometry::may_merge`] says so.
    #[inline]
    pub(crate) const fn merged_word(&self) -> usize {
        self.pages as usize * (DESC_WORDS - 1) - 1
    }

    /// Objects that have bytes on page `i` of a slab.
    pub(crate) fn objects_on(&self, i: usize) -> Range<usize> {
        let (first, last) = (self.object_at(i * PAGE).0, self.object_at(i * PAGE + PAGE - 1).0);
        first.min(self.objects.into())..(last + 1).min(self.objects.into())
    }

    /// The bytes of object `object` that lie on page `i` of its slab, which has some, from the page's first on.
    pub(crate) fn bytes_on(&self, object: usize, i: usize) -> Range<usize> {
        let (begin, end) = (object * self.size as usize, (object + 1) * self.size as usize);
        begin.max(i * PAGE) - i * PAGE..end.min((i + 1) * PAGE) - i * PAGE
    }

    /// Pages with the same number have their objects at the same places. `i` is the page's place in its slab.
    pub(crate) const fn phase_of(&self, i: usize) -> usize {
        if PAGE.is_multiple_of(self.size as usize) { 0 } else { i }
    }

    /// Which object of its slab the byte at `offset` belongs to, and how far into it.
    #[inline]
    pub(crate) fn object_at(&self, offset: usize) -> (usize, usize) {
        // A slab is at most 32 pages, so offsets stay below 2^17, and 2^17 / 2^40 below 1 / size: exact.
        let index = ((offset as u64 * self.reciprocal) >> 40) as usize;
        (index, offset - index * self.size as usize)
    }

    /// A mask and a factor. An address is masked and multiplied (modulo 2^64). If the product is below the factor, the address is
    /// a whole number of objects behind the beginning of its slab. The product is the fraction of [`Geometry::begins_object`],
    /// without what is above it.
    #[inline]
    pub(crate) fn remainders(&self) -> (u64, u64) {
        ((usize::from(self.pages).next_power_of_two() * PAGE - 1) as u64, self.reciprocal << 24)
    }

    /// Whether an object of a slab of this geometry begins at `addr`: no load, no division. Slabs begin at a multiple
    /// of the power of two above their length.
    #[inline]
    pub(crate) fn begins_object(&self, addr: usize) -> bool {
        let offset = addr & (usize::from(self.pages).next_power_of_two() * PAGE - 1);
        // The quotient, and 40 bits of fraction: less than one step of the reciprocal where nothing is left over
        // (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019).
        let product = offset as u64 * self.reciprocal;
        product & ((1 << 40) - 1) < self.reciprocal && product >> 40 < u64::from(self.objects)
    }
}

/// Objects of `class` that a CPU's slab has slots for.
pub(crate) const fn slots(class: Class) -> usize {
    if class.index() <= COUNT {
        MALLOC[class.index()].bucket[2] as usize
    } else if run_class::contains(class) {
        Geometry::of_runs(class).bucket[2] as usize
    } else {
        MAX_USER_BUCKET
    }
}

/// Class of the first page of the slabs of cache `number`.
#[inline]
pub(crate) const fn class_of_number(number: usize) -> Class {
    if number < UNBUCKETED { Class(number as u8) } else { SLAB_HEAD }
}

const fn header_words(number: usize) -> usize {
    if number < BUCKETED { HEADER_WORDS } else { NUMBER_WORD + 1 }
}

/// The pages of a slab, `shortest` at least.
///
/// A slab begins at a multiple of the power of two above its length, its *slot*. What is left of the slot counts as wasted: where a
/// heap consists of one class nothing else takes it, and huge pages have it resident. What is left over behind the last object is
/// resident in any case. The first length is taken that wastes little of both, else the one that wastes least.
const fn slab_pages(size: usize, header_words: usize, shortest: usize) -> usize {
    // A sixteenth of the slot and a 32nd of the slab; of large objects, of which a slab has few, an eighth and a 24th (choice).
    let (of_slot, of_slab) = if size <= 4096 { (16, 32) } else { (8, 24) };
    // Longer ones had a buffer that grows through all classes leave 0.8 MiB more behind.
    let most = if size <= MAX_SIZE { MAX_PAGES / 2 } else { MAX_PAGES };
    let objects_wanted = if size <= 4096 { 8 } else { (PAGE * 8) / size };
    let mut pages = shortest;
    let mut best = 0;
    let mut best_waste = usize::MAX;
    while pages <= most {
        let bits = (pages * DESC_WORDS - header_words) * 32;
        let objects = pages * PAGE / size;
        if objects >= objects_wanted && objects >= 1 && objects <= bits {
            let (slot, slab) = (pages.next_power_of_two() * PAGE, pages * PAGE);
            let (in_slot, in_slab) = (slot - objects * size, slab - objects * size);
            if in_slot * of_slot <= slot && in_slab * of_slab <= slab {
                return pages;
            }
            let waste = in_slot * 1024 / slot + in_slab * 1024 / slab;
            if waste < best_waste {
                (best, best_waste) = (pages, waste);
            }
        }
        pages += 1;
    }
    best
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

/// A geometry that is written when a cache is made and read at any time.
///
/// Words of it may be of two caches only for a reader that has no right to either: one with a wrong pointer.
pub struct Shape([AtomicU64; 3]);

impl Shape {
    /// Holds `geometry`.
    pub(crate) const fn new(geometry: Geometry) -> Self {
        let [a, b, c] = pack(geometry);
        Self([AtomicU64::new(a), AtomicU64::new(b), AtomicU64::new(c)])
    }

    /// Holds `geometry` from now on.
    pub(crate) fn set(&self, geometry: Geometry) {
        self.0.iter().zip(pack(geometry)).for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// The geometry that is set.
    #[inline]
    pub(crate) fn get(&self) -> Geometry {
        let [a, b, c] = [&self.0[0], &self.0[1], &self.0[2]].map(|word| word.load(Relaxed));
        Geometry {
            size: a as u32,
            number: (a >> 32) as u32,
            objects: b as u16,
            reciprocal: b >> 16,
            batch: c as u8,
            pages: (c >> 8) as u8,
            bucket: [(c >> 16) as u16, (c >> 32) as u16, (c >> 48) as u16],
        }
    }
}

const fn pack(g: Geometry) -> [u64; 3] {
    let [least, start, most] = g.bucket;
    [
        g.size as u64 | (g.number as u64) << 32,
        // The reciprocal of the least size has 37 bits.
        g.objects as u64 | g.reciprocal << 16,
        g.batch as u64 | (g.pages as u64) << 8 | (least as u64) << 16 | (start as u64) << 32 | (most as u64) << 48,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Geometry> {
        let sizes = (MIN_OBJECT..=4096).step_by(8).chain((4096..=MAX_OBJECT).step_by(1000)).chain([MAX_OBJECT]);
        let numbers = [FIRST_USER, UNBUCKETED, u32::MAX as usize];
        let user = sizes.flat_map(move |size| numbers.map(|number| Geometry::new(number, size)));
        MALLOC.into_iter().skip(1).chain(user)
    }

    #[test]
    fn slabs_hold_objects_and_their_bitmaps_fit() {
        for g in all() {
            let (pages, objects) = (g.pages as usize, g.objects as usize);
            assert!((1..=MAX_PAGES).contains(&pages) && objects >= 1, "{g:?}");
            assert!(objects <= (pages * DESC_WORDS - g.header_words()) * 32, "{g:?}");
            let waste = pages * PAGE - objects * g.size as usize;
            let allowed = if g.number as usize <= COUNT || g.size <= 4096 { 16 } else { 4 };
            assert!(waste * allowed <= pages * PAGE, "{g:?} wastes {waste}");
            if g.number as usize <= COUNT {
                let slot = pages.next_power_of_two() * PAGE;
                let least = if g.size <= 16 << 10 { 80 } else { 68 };
                assert!(objects * g.size as usize * 100 >= slot * least, "{g:?} fills little of {slot}");
            }
        }
    }

    #[test]
    fn pages_that_can_be_merged_have_room_for_their_rings_and_their_objects_cover_them() {
        for g in all().filter(Geometry::may_merge) {
            let bitmap_end = g.header_words() + usize::from(g.objects).div_ceil(32);
            assert!(bitmap_end <= g.merged_word(), "{g:?}");
            assert_eq!(g.merged_word() + 1 + usize::from(g.pages), usize::from(g.pages) * DESC_WORDS);
            for i in 0..usize::from(g.pages) {
                let (mut at, objects) = (0, g.objects_on(i));
                assert!(objects.len() <= 64, "{g:?}");
                for bytes in objects.map(|object| g.bytes_on(object, i)) {
                    assert_eq!(bytes.start, at, "{g:?}");
                    at = bytes.end;
                }
                // What is left over is the slab's tail.
                let tail = usize::from(g.pages) * PAGE - usize::from(g.objects) * g.size as usize;
                assert!(at <= PAGE && PAGE - at <= tail && at.is_multiple_of(8), "{g:?}");
                assert!(g.phase_of(i) == i || at == PAGE, "{g:?}");
            }
        }
    }

    #[test]
    fn object_at_divides_exactly() {
        for g in all() {
            for offset in 0..g.pages as usize * PAGE {
                let size = g.size as usize;
                assert_eq!(g.object_at(offset), (offset / size, offset % size));
                let begins = offset % size == 0 && offset / size < usize::from(g.objects);
                assert_eq!(g.begins_object((7 << 30) + offset), begins);
                let (mask, step) = g.remainders();
                let is_multiple = (((7 << 30) + offset) as u64 & mask).wrapping_mul(step) < step;
                assert_eq!(is_multiple, offset % size == 0);
            }
        }
    }

    #[test]
    fn buckets_are_ordered_and_fit_their_slots() {
        for g in all() {
            let [least, start, most] = g.bucket;
            assert!(2 <= least && least <= start && start <= most, "{g:?}");
            assert!(usize::from(most) <= slots(g.class()) && u16::from(g.batch) * 2 <= most.max(4), "{g:?}");
            assert_eq!(Shape::new(g).get(), g);
        }
    }
}
