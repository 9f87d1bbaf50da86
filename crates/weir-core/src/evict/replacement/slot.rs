//! One entry of a cache: its links, weight and hash; and how often it was hit lately.
//!
//! Every field is a relaxed atomic, so that a slot can be read while its queue is written; all are written under the owner's
//! lock. On x86-64 and arm64 a relaxed load or store is an ordinary one.

use crate::evict::weight::{self, Weight};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// No entry.
pub const NONE: u32 = u32::MAX;

/// The queue that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// In none: the number is not in use.
    Nowhere = 0,
    /// In the small queue.
    Small = 1,
    /// In the main queue.
    Main = 2,
}

/// One entry. A slot of zeros is in no queue.
#[derive(Debug, Default)]
pub struct Slot {
    /// The queue in the low bits, and the weight above them.
    place_and_weight: AtomicU32,
    previous: AtomicU32,
    next: AtomicU32,
    hash: AtomicU32,
}

const PLACE_BITS: u32 = 2;
const _: () = assert!(PLACE_BITS + weight::BITS == u32::BITS && size_of::<Slot>() == 16);

impl Slot {
    /// In no queue.
    pub(crate) const fn new() -> Self {
        Self {
            place_and_weight: AtomicU32::new(0),
            previous: AtomicU32::new(0),
            next: AtomicU32::new(0),
            hash: AtomicU32::new(0),
        }
    }

    /// An entry's weight in bytes.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        Weight::from_bits(self.place_and_weight.load(Relaxed) >> PLACE_BITS).bytes()
    }

    /// The mixed hash of its key.
    pub(crate) fn hash(&self) -> u32 {
        self.hash.load(Relaxed)
    }

    /// The queue that it is in.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        match self.place_and_weight.load(Relaxed) & ((1 << PLACE_BITS) - 1) {
            1 => Place::Small,
            2 => Place::Main,
            _ => Place::Nowhere,
        }
    }

    pub(super) fn set_weight(&self, weight: usize) {
        self.set(self.place(), Weight::of(weight));
    }

    pub(super) fn begin(&self, hash: u32, weight: usize) {
        self.hash.store(hash, Relaxed);
        self.set(Place::Nowhere, Weight::of(weight));
    }

    pub(super) fn copy(&self, other: &Self) {
        let word = |from: &AtomicU32, to: &AtomicU32| to.store(from.load(Relaxed), Relaxed);
        word(&other.place_and_weight, &self.place_and_weight);
        word(&other.previous, &self.previous);
        word(&other.next, &self.next);
        word(&other.hash, &self.hash);
    }

    pub(super) fn set_place(&self, place: Place) {
        self.set(place, Weight::from_bits(self.place_and_weight.load(Relaxed) >> PLACE_BITS));
    }

    fn set(&self, place: Place, weight: Weight) {
        self.place_and_weight.store(weight.to_bits() << PLACE_BITS | place as u32, Relaxed);
    }

    pub(super) fn next(&self) -> u32 {
        self.next.load(Relaxed)
    }

    pub(super) fn set_next(&self, entry: u32) {
        self.next.store(entry, Relaxed);
    }

    pub(super) fn previous(&self) -> u32 {
        self.previous.load(Relaxed)
    }

    pub(super) fn set_previous(&self, entry: u32) {
        self.previous.store(entry, Relaxed);
    }
}

/// The highest count. Two bits are enough: S3-FIFO (SOSP 2023) found no gain in more.
pub const MOST_HITS: u8 = 3;

/// How often entries were hit lately: two bits each, in a byte by the entry's number.
///
/// The counts lie apart from the slots, 64 to a cache line, as they are all that a hit writes of the policy. Hits need no lock:
/// a count is loaded and stored, and of two hits at once one may be lost.
#[derive(Clone, Copy, Debug)]
pub struct Hits<'a>(&'a [AtomicU8]);

impl<'a> Hits<'a> {
    /// Counts for each entry number, all zeros.
    pub(crate) const fn new(counts: &'a [AtomicU8]) -> Self {
        Self(counts)
    }

    /// How often an entry was hit lately, at most [`MOST_HITS`].
    #[inline]
    pub(crate) fn get(&self, entry: u32) -> u8 {
        self.0[entry as usize].load(Relaxed)
    }

    /// Counts a hit. An entry that is hit often is only read.
    #[inline]
    pub(crate) fn hit(&self, entry: u32) {
        let count = &self.0[entry as usize];
        let hits = count.load(Relaxed);
        if hits < MOST_HITS {
            count.store(hits + 1, Relaxed);
        }
    }

    #[inline]
    pub(super) fn set(&self, entry: u32, hits: u8) {
        self.0[entry as usize].store(hits, Relaxed);
    }
}
