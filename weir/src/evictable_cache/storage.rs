//! What a shard says of its entries: policy, index and the entries by number, in one block of Weir's heap.
//!
//! The block is replaced by one of another size as the number of entries changes. For each entry that it has room for it
//! takes 72 bytes: 24 of the policy's slot, 16 of sketch, 8 of ghosts, 16 of index (two places), 8 for the address.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use weir_core::evict::index::Index;
use weir_core::evict::policy::{Policy, Sightings};
use weir_core::evict::slot::{NONE, Slot};

use super::header::Header;
use crate::heap;

/// Entries that the smallest block has room for.
const FEWEST: usize = 16;
/// Entries that the largest has room for.
const MOST: usize = 1 << 30;
/// Alignment of the arrays, which each begin with whole cache lines.
const LINE: usize = 64;
const SIGHTINGS: usize = size_of::<Sightings<'static>>().next_multiple_of(LINE);
/// Bytes for each entry.
const PER_ENTRY: usize = size_of::<Slot>() + (2 + 1 + 2 + 1) * size_of::<u64>();

/// The three, and the numbers that are free.
pub struct Storage {
    block: NonNull<u8>,
    capacity: usize,
    /// Which entry goes next.
    pub policy: Policy<'static>,
    /// Entries by hash.
    pub index: Index<'static>,
    /// Addresses by number; of a number not in use, the next such number.
    entries: &'static mut [usize],
    /// A number not in use, of those that were.
    free: u32,
    /// The lowest number that was never used.
    fresh: u32,
}

// SAFETY: it owns its block; entries are reached through it under the lock of its shard alone.
unsafe impl Send for Storage {}

/// The policy's slice of a block: `len` values of `T`, which all zeros are.
///
/// # Safety
/// The bytes there are zero, aligned for `T`, and nothing else uses them as long as the storage lives.
unsafe fn slice<T>(at: &mut NonNull<u8>, len: usize) -> &'static mut [T] {
    // SAFETY: the caller's promise, for this part of the block.
    let part = unsafe { core::slice::from_raw_parts_mut(at.cast().as_ptr(), len) };
    // SAFETY: within the block, or right behind it.
    *at = unsafe { at.add(len * size_of::<T>()) };
    part
}

impl Storage {
    /// For at least `entries`, empty. `None`: there is no memory, or no block for so many.
    pub fn new(entries: usize, seed: u64) -> Option<Self> {
        let capacity = entries.max(FEWEST).checked_next_power_of_two().filter(|&capacity| capacity <= MOST)?;
        let block = NonNull::new(heap::alloc_zeroed(SIGHTINGS + capacity * PER_ENTRY))?;
        // SAFETY: the first bytes of the block are for the sightings.
        let mut at = unsafe { block.add(SIGHTINGS) };
        // SAFETY: the arrays lie one behind the other in a fresh block of zeros, and fill it; the capacity is a multiple of
        // 16 and the block aligned to 16, so each is aligned. `drop` frees the block after the last use.
        let (slots, sketch, ghost, index, entries) = unsafe {
            let slots: &'static [Slot] = slice(&mut at, capacity);
            let sketch: &'static [AtomicU64] = slice(&mut at, 2 * capacity);
            (slots, sketch, slice(&mut at, capacity), slice(&mut at, 2 * capacity), slice(&mut at, capacity))
        };
        let sightings = block.cast::<Sightings<'static>>();
        // SAFETY: in the block, and large enough; nothing else refers to it.
        let sightings: &'static Sightings<'static> = unsafe {
            sightings.write(Sightings::new(slots, sketch, seed));
            sightings.as_ref()
        };
        let (policy, index) = (Policy::new(sightings, ghost), Index::new(index));
        Some(Self { block, capacity, policy, index, entries, free: NONE, fresh: 0 })
    }

    /// Bytes of the block.
    pub fn bytes(&self) -> usize {
        SIGHTINGS + self.capacity * PER_ENTRY
    }

    /// The entries that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.policy.len()
    }

    /// Moves all that `other` has here, where nothing is yet.
    pub fn take_over(&mut self, other: &Self) {
        let Self { policy, index, entries, fresh, .. } = self;
        policy.take_over(&other.policy, |old, new| {
            let address = other.entries[old as usize];
            entries[new as usize] = address;
            // SAFETY: an entry in the cache, whose hash does not change; the shard's lock is held.
            let entry = unsafe { &*(address as *const Header) };
            entry.number.set(new);
            index.insert(entry.hash, address);
            *fresh = new + 1;
        });
    }

    /// The entry of a number that is in use.
    pub fn entry(&self, number: u32) -> NonNull<Header> {
        NonNull::new(self.entries[number as usize] as *mut Header).expect("the number is in use")
    }

    /// Adds an entry of a key that is not there; there is room for it.
    pub fn add(&mut self, entry: NonNull<Header>) {
        // SAFETY: the caller has a valid entry, and the shard's lock.
        let header = unsafe { entry.as_ref() };
        let number = if self.free == NONE {
            self.fresh += 1;
            self.fresh - 1
        } else {
            let free = self.free;
            self.free = self.entries[free as usize] as u32;
            free
        };
        header.number.set(number);
        self.entries[number as usize] = entry.addr().get();
        self.index.insert(header.hash, entry.addr().get());
        self.policy.insert(number, header.hash, header.weight);
    }

    /// Puts `new` in the place of the entry at `place` of the index, which has the same key; that counts as a use.
    pub fn replace(&mut self, place: usize, new: NonNull<Header>) -> NonNull<Header> {
        // SAFETY: the caller has a valid entry, and the shard's lock.
        let header = unsafe { new.as_ref() };
        let old = self.index.get(place) as *mut Header;
        // SAFETY: an entry in the index is valid, and the lock is held.
        let number = unsafe { (*old).number.get() };
        header.number.set(number);
        self.index.replace(place, new.addr().get());
        let old = self.entry(number);
        self.entries[number as usize] = new.addr().get();
        self.policy.set_weight(number, header.weight);
        self.policy.hit(number);
        old
    }

    /// Takes an entry out that the policy has still.
    pub fn take(&mut self, entry: NonNull<Header>) {
        // SAFETY: the caller has an entry of this shard, and its lock.
        self.policy.remove(unsafe { entry.as_ref() }.number.get());
        self.forget(entry);
    }

    /// Takes out an entry that only the cache holds: so that `incoming` bytes find room within the policy's target, or
    /// (`None`) whatever the target.
    pub fn evict(&mut self, incoming: Option<usize>) -> Option<NonNull<Header>> {
        let entries = &*self.entries;
        // SAFETY: numbers that the policy names are in use, so the addresses are entries; the shard's lock is held.
        let is_pinned = |number: u32| unsafe { !(*(entries[number as usize] as *const Header)).pins.is_held_once() };
        let number = match incoming {
            Some(incoming) => self.policy.evict_for(incoming, is_pinned),
            None => self.policy.evict_any(is_pinned),
        }?;
        let entry = self.entry(number);
        self.forget(entry);
        Some(entry)
    }

    /// Takes an entry out that the policy has evicted.
    fn forget(&mut self, entry: NonNull<Header>) {
        let address = entry.addr().get();
        // SAFETY: the caller has an entry of this shard, and its lock.
        let header = unsafe { entry.as_ref() };
        if let Some(place) = self.index.find(header.hash, |at| at == address) {
            // SAFETY: addresses in the index are entries of the shard, whose hashes do not change.
            self.index.remove(place, |at| unsafe { (*(at as *const Header)).hash });
        }
        let number = header.number.get();
        self.entries[number as usize] = self.free as usize;
        self.free = number;
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; what refers to it is dropped with this, and used no more.
        unsafe { heap::free(self.block.as_ptr()) }
    }
}
