//! From hashes to entries: open addressing with linear probing, over words that the owner supplies.
//!
//! A place is 0 (empty), or three fields:
//!
//! - the 10 bits of the hash above those by which places are chosen;
//! - how far the place is from where a search for the hash begins;
//! - the entry's address in the low 48 bits: what a process has on Linux, Windows and FreeBSD with the CPUs that are named below,
//!   unless the program's allocator has tags in upper bits. Elsewhere a place has 16 bytes, and the address all its bits.
//!
//! A search reads an entry only where the first two are right. So but for one entry in 1,000 it reads only the one that it is
//! for. The distance says where an entry's search begins. So an entry that leaves is followed up by those behind it without a
//! look at them, and there are no marks of deleted ones.

/// Defines a place: narrow where addresses have 48 bits. Android and Apple's systems have tags in upper bits. Solaris has memory at
/// the top of the address space, and so has Linux on some CPUs (sparc64).
macro_rules! word {
    (narrow where $where:meta) => {
        /// A place.
        #[cfg($where)]
        pub type Word = u64;
        /// A place where addresses use upper bits.
        #[cfg(not($where))]
        pub type Word = u128;
    };
}

word!(narrow where all(
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64",
        target_arch = "s390x"
    ),
    not(any(target_os = "android", target_os = "illumos", target_os = "solaris", target_vendor = "apple"))
));

/// Bits of a distance.
const DISTANCE_BITS: u32 = 6;
/// A distance of so many places or more: the entry's hash says how many.
const FAR: usize = (1 << DISTANCE_BITS) - 1;

/// Bits of a hash beside a distance. Of more than 2^22 places they are the upper ones, which choose places as well.
const TAG_BITS: u32 = 10;

/// Bits of an address: 48, or all of them.
const ADDRESS_BITS: u32 = Word::BITS - DISTANCE_BITS - TAG_BITS;
const ADDRESS: Word = (1 << ADDRESS_BITS) - 1;

/// The places.
#[derive(Debug)]
pub struct Index<'a> {
    places: &'a mut [Word],
    /// The lowest bit of a hash that is in its tag.
    tag_shift: u32,
}

impl<'a> Index<'a> {
    /// An empty one over zeros.
    ///
    /// # Panics
    /// If the number of places is not a power of two.
    pub fn new(places: &'a mut [Word]) -> Self {
        assert!(places.len().is_power_of_two(), "{} places", places.len());
        let tag_shift = places.len().ilog2().min(u32::BITS - TAG_BITS);
        Self { places, tag_shift }
    }

    /// Fetches the place where a search for `hash` begins.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        prefetch(&self.places[self.home(hash)]);
    }

    /// The place of the entry of `hash` for which `is_it` holds of the address.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let (mut at, mut distance) = (self.home(hash), 0);
        loop {
            let word = self.places[at];
            if word == 0 {
                return None;
            }
            if word >> ADDRESS_BITS == self.marks(hash, distance) && is_it((word & ADDRESS) as usize) {
                return Some(at);
            }
            at = self.next(at);
            distance += 1;
        }
    }

    /// The address of the entry of `hash` for which `is_it` holds, and which is there. Where one alone has its marks `is_it` is not
    /// asked, so that no entry is read.
    pub fn address(&self, hash: u32, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let (mut alike, mut only) = (0, 0);
        self.find(hash, |address| {
            (alike, only) = (alike + 1, address);
            alike > 1
        });
        if alike > 1 {
            return self.find(hash, &mut is_it).map(|place| self.get(place));
        }
        Some(only).filter(|_| alike == 1)
    }

    /// The address at a place.
    #[inline]
    pub fn get(&self, place: usize) -> usize {
        (self.places[place] & ADDRESS) as usize
    }

    /// The addresses of all entries.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().filter(|word| **word != 0).map(|word| (word & ADDRESS) as usize)
    }

    /// Adds an entry that is not there. At least one place must stay empty: the owner counts the entries.
    ///
    /// # Panics
    /// If the address has more bits than a place has for it, or is 0.
    pub fn insert(&mut self, hash: u32, address: usize) {
        assert!(address != 0 && address as Word <= ADDRESS, "address {address:#x}");
        let (mut at, mut distance) = (self.home(hash), 0);
        while self.places[at] != 0 {
            at = self.next(at);
            distance += 1;
        }
        self.places[at] = self.marks(hash, distance) << ADDRESS_BITS | address as Word;
    }

    /// Puts another entry of the same hash at a place.
    pub fn replace(&mut self, place: usize, address: usize) {
        self.places[place] = self.places[place] & !ADDRESS | address as Word;
    }

    /// Empties a place, and moves up those behind it whose search would stop there. `hash_of` gives the hash of the entry
    /// at an address: it is wanted of those that are `FAR` from where their search begins.
    pub fn remove(&mut self, place: usize, hash_of: impl Fn(usize) -> u32) {
        let (mut hole, mut at, mask) = (place, place, self.places.len() - 1);
        loop {
            at = self.next(at);
            let word = self.places[at];
            if word == 0 {
                break;
            }
            let distance = match (word >> ADDRESS_BITS) as usize & FAR {
                FAR => at.wrapping_sub(self.home(hash_of(self.get(at)))) & mask,
                near => near,
            };
            // It may move up unless its search begins between the hole and where it is.
            let step = at.wrapping_sub(hole) & mask;
            if distance >= step {
                let nearer = (distance - step).min(FAR) as Word;
                let field = (FAR as Word) << ADDRESS_BITS;
                self.places[hole] = word & !field | nearer << ADDRESS_BITS;
                hole = at;
            }
        }
        self.places[hole] = 0;
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    /// The bits above the address of an entry of `hash`, so many places from where its search begins.
    #[inline]
    fn marks(&self, hash: u32, distance: usize) -> Word {
        let tag = hash >> self.tag_shift & ((1 << TAG_BITS) - 1);
        Word::from(tag) << DISTANCE_BITS | distance.min(FAR) as Word
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }
}

/// Fetches the cache line of a value that is needed soon, while others are waited for, where the CPU can.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and never faults; the address is valid in any case.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn an_address_that_a_place_has_no_room_for_changes_nothing() {
        let mut places = vec![0; 16];
        let mut index = Index::new(&mut places);
        let wide = 1 << 60;
        let inserts = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| index.insert(5, wide)));
        assert_eq!(inserts.is_ok(), ADDRESS_BITS > 60);
        assert_eq!(index.find(5, |at| at == wide).is_some(), inserts.is_ok());
    }

    /// Against a map, with hashes of which many collide in place, in tag, and in both; an entry's address tells its hash.
    #[test]
    fn finds_what_is_in_it_and_nothing_else() {
        for (tags, homes) in [(1u32, 1u32), (1, 200), (3, 5), (1 << 10, 1 << 20)] {
            let mut places = vec![0; 512];
            let mut index = Index::new(&mut places);
            let mut model: HashMap<usize, u32> = HashMap::new();
            let mut random = 1u64;
            for step in 0..20_000usize {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let address = 16 * (1 + (random >> 33) as usize % 400);
                let hash = (address as u32 * 7 % tags) << 9 | (address as u32 * 13 % homes);
                let found = index.find(hash, |at| at == address);
                assert_eq!(found.is_some(), model.contains_key(&address), "step {step}");
                match found {
                    Some(place) => {
                        assert_eq!(index.get(place), address);
                        assert_eq!(index.address(hash, |at| at == address), Some(address));
                        index.remove(place, |at| model[&at]);
                        model.remove(&address);
                    }
                    None if model.len() < 300 => {
                        index.insert(hash, address);
                        model.insert(address, hash);
                    }
                    None => {}
                }
            }
            for (&address, &hash) in &model {
                assert!(index.find(hash, |at| at == address).is_some());
            }
            assert_eq!(index.iter().count(), model.len());
            assert!(index.iter().all(|address| model.contains_key(&address)));
        }
    }
}
