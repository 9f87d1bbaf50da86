//! The beginning of every entry, and the contract by which the parts of a cache know its contents.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;
use weir_core::evict::pins::Pins;
use weir_core::evict::weight::{BITS, Weight};

/// The number of an entry that no cache keeps: its block is of the program's allocator.
const SPARE: u32 = u32::MAX;
/// Beside an entry's weight: its memory lies in a zone.
const IN_ZONE: u32 = 1 << BITS;

/// The beginning of an entry's block, 16 bytes. The cell is read and written under the lock of the entry's shard.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// The key's hash, spread.
    pub hash: u32,
    /// The weight's bits, and [`IN_ZONE`].
    weight: u32,
    /// Who holds the entry.
    pub pins: Pins,
    /// The entry's number in the shard's policy.
    pub number: Cell<u32>,
}

const _: () = assert!(size_of::<Header>() == 16);

impl Header {
    /// The header of an entry that is to be put in: the cache will hold it, and the guard that its maker gets.
    pub const fn new(hash: u32) -> Self {
        Self { hash, weight: 0, pins: Pins::new(2), number: Cell::new(0) }
    }

    /// The header of an entry for which the cache's place had no block.
    pub const fn spare(hash: u32) -> Self {
        Self { number: Cell::new(SPARE), ..Self::new(hash) }
    }

    /// The weight that the entry counts in the cache's bytes.
    #[inline]
    pub const fn weight(&self) -> usize {
        Weight::from_bits(self.weight).bytes()
    }

    /// Whether the entry's memory lies in the zone of its cache.
    #[inline]
    pub const fn is_in_zone(&self) -> bool {
        self.weight & IN_ZONE != 0
    }

    /// Sets both, before the entry is shared; returns the weight, as it may be a little less than what is given.
    pub const fn set_weight(&mut self, bytes: usize, is_in_zone: bool) -> usize {
        self.weight = Weight::of(bytes).to_bits() | if is_in_zone { IN_ZONE } else { 0 };
        self.weight()
    }

    /// Whether the block is of the program's allocator.
    pub fn is_spare(&self) -> bool {
        self.number.get() == SPARE
    }
}

/// The contents of a cache's entries: keys and values of two types, or bytes.
///
/// # Safety
/// `layout` is that which the entry's block was allocated with; `key` and `value` lie in the block.
pub unsafe trait Content: 'static + Sized {
    /// The type that entries are found by.
    type Key: ?Sized;
    /// The type of what entries hold.
    type Value: ?Sized;

    /// Whether a key or a value may own memory beside the block.
    const OWNS_MEMORY: bool;

    /// Whether two keys are the same.
    fn is_same(a: &Self::Key, b: &Self::Key) -> bool;

    /// The block's layout.
    ///
    /// # Safety
    /// The entry is valid.
    unsafe fn layout(entry: NonNull<Header>) -> Layout;

    /// The key.
    ///
    /// # Safety
    /// The entry is valid and has its key as long as the reference lives.
    unsafe fn key<'a>(entry: NonNull<Header>) -> &'a Self::Key;

    /// The value.
    ///
    /// # Safety
    /// The entry is valid and has its value as long as the reference lives.
    unsafe fn value<'a>(entry: NonNull<Header>) -> &'a Self::Value;

    /// Drops the value, where the entry has one, and the key; where the first drop panics, the second is made all the same.
    ///
    /// # Safety
    /// The entry has its key, and its value as is said; neither is used afterwards.
    unsafe fn drop_content(entry: NonNull<Header>, has_value: bool);
}
