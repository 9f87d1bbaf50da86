//! Policy and index of a shard, in one block of Weir's heap.
//!
//! The block is replaced by one of another size as the number of entries changes. For each entry that it has room for it takes
//! 53 bytes:
//! - 16 of the policy's slot,
//! - 16 of sketch,
//! - 16 of index (two places),
//! - 4 of ghosts,
//! - 1 for hits.
//!
//! Where entries have an end, it takes 24 more. An entry's address is in the index alone. The entry of a number is found by the
//! hash in its slot.

use core::alloc::Layout;
#[cfg(not(plain))]
use core::num::NonZero;
use core::ptr::{NonNull, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU8, AtomicU64};
use weir_core::base::time::Time;
use weir_core::evict::index::{Index, Word};
use weir_core::evict::lifetime::Times;
use weir_core::evict::replacement::favour::Favour;
use weir_core::evict::replacement::setting::Setting;
use weir_core::evict::replacement::slot::{NONE, Slot};
use weir_core::evict::replacement::{Policy, Sightings};

#[cfg(not(plain))]
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::header::Header;
use crate::evictable_cache::host;
#[cfg(not(plain))]
use crate::heap;

/// Entries that the smallest block has room for.
const FEWEST: usize = 16;
/// Entries that the largest has room for. Hashes have 32 bits: above 2^31 entries in all shards, searches become long.
const MOST: usize = 1 << 30;
/// Alignment of the block.
const BLOCK_ALIGN: usize = 16;
/// The block is replaced by a smaller one when less than this part of it is in use.
const SPARE: usize = 4;
/// The block is replaced by a smaller one also while memory is short when less than this part of it is in use.
const SPARSE: usize = 16;
/// Entries that growth fetches ahead.
const AHEAD: u32 = 8;
/// Alignment of the arrays, which each begin with whole cache lines.
const LINE: usize = 64;
const SIGHTINGS: usize = size_of::<Sightings<'static>>().next_multiple_of(LINE);
/// Bytes for each entry.
const PER_ENTRY: usize =
    size_of::<Slot>() + 2 * size_of::<AtomicU64>() + 2 * size_of::<Word>() + size_of::<u32>() + size_of::<AtomicU8>();

/// Policy, index, and the numbers that are free.
pub struct Storage {
    block: NonNull<u8>,
    capacity: usize,
    /// The order of eviction.
    policy: Policy<'static>,
    /// Entries by hash.
    index: Index<'static>,
    /// Until when each entry lives, by number; empty where entries have no end.
    times: &'static mut [Times],
    /// The number that is looked at next for its time.
    swept: u32,
    /// A number not in use, of those that were; the policy's slots chain them.
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

/// Whether the entry at an address of an index, whose shard's lock is held, has a number.
#[inline]
fn has_number(address: usize, number: u32) -> bool {
    // SAFETY: what is in an index are entries of its shard, which are valid under the lock.
    unsafe { entry_at(address).as_ref() }.number.get() == number
}

/// The entry at an address of the index.
#[inline]
fn entry_at(address: usize) -> NonNull<Header> {
    NonNull::new(with_exposed_provenance_mut(address)).expect("places in use are not 0")
}

impl Storage {
    /// For at least `entries`, empty; with times for them if it `is_timed`. `None`: there is no memory, or no block for so many.
    pub fn new(entries: usize, is_timed: bool) -> Option<Self> {
        let capacity = entries.max(FEWEST).checked_next_power_of_two().filter(|&capacity| capacity <= MOST)?;
        let block = host::alloc_zeroed(Self::layout_for(capacity, is_timed)?)?;
        // SAFETY: the first bytes of the block are for the sightings.
        let mut at = unsafe { block.add(SIGHTINGS) };
        // SAFETY: the arrays lie one behind the other in a fresh block of zeros, and fill it. The capacity is a multiple of 16
        // and the block aligned to 16, so each is aligned. `drop` frees the block after the last use.
        let (slots, sketch, index, ghost, hits, times) = unsafe {
            let slots: &'static [Slot] = slice(&mut at, capacity);
            let sketch: &'static [AtomicU64] = slice(&mut at, 2 * capacity);
            let (index, ghost) = (slice(&mut at, 2 * capacity), slice(&mut at, capacity));
            let hits: &'static [AtomicU8] = slice(&mut at, capacity);
            let times: &'static mut [Times] = slice(&mut at, if is_timed { capacity } else { 0 });
            (slots, sketch, index, ghost, hits, times)
        };
        let sightings = block.cast::<Sightings<'static>>();
        // SAFETY: in the block, and large enough; nothing else refers to it.
        let sightings: &'static Sightings<'static> = unsafe {
            sightings.write(Sightings::new(slots, hits, sketch));
            sightings.as_ref()
        };
        let (policy, index) = (Policy::new(sightings, ghost), Index::new(index));
        Some(Self { block, capacity, policy, index, times, swept: 0, free: NONE, fresh: 0 })
    }

    /// Bytes of a block for so many entries, with times for them if it `is_timed`.
    pub fn bytes_for(entries: usize, is_timed: bool) -> usize {
        let times = if is_timed { size_of::<Times>() } else { 0 };
        SIGHTINGS + entries.max(FEWEST).next_power_of_two() * (PER_ENTRY + times)
    }

    /// The layout of such a block; `None`: it is larger than memory.
    fn layout_for(entries: usize, is_timed: bool) -> Option<Layout> {
        Layout::from_size_align(Self::bytes_for(entries, is_timed), BLOCK_ALIGN).ok()
    }

    /// Bytes of the block.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.capacity, !self.times.is_empty())
    }

    /// The entries that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether so little of the block is in use that a smaller one, or none, is due.
    pub fn is_roomy(&self) -> bool {
        self.uses_less_than(SPARE)
    }

    /// Whether a smaller one is due. The smallest stays where entries come and go one at a time: none is only for who gives back.
    pub fn is_outgrown(&self) -> bool {
        self.is_roomy() && self.capacity > FEWEST
    }

    /// Whether hardly any of it is in use.
    pub fn is_sparse(&self) -> bool {
        self.uses_less_than(SPARSE)
    }

    fn uses_less_than(&self, part: usize) -> bool {
        self.len() <= self.capacity / part && (self.capacity > FEWEST || self.len() == 0)
    }

    /// The order of eviction, to look at.
    pub fn policy(&self) -> &Policy<'static> {
        &self.policy
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.policy.len()
    }

    /// Moves all that `other` has here, where nothing is yet; `other` is only to be dropped. Where there is room for as many entries
    /// they keep their numbers, and hardly one of them is looked at. In a large cache, growth takes some ns an entry then.
    pub fn take_over(&mut self, other: &Self) {
        let Self { policy, index, times, fresh, .. } = self;
        if self.capacity >= other.capacity {
            policy.grow_from(&other.policy);
            (self.free, *fresh) = (other.free, other.fresh);
            times[..other.times.len()].copy_from_slice(other.times);
            for number in 0..*fresh {
                // The homes of a number that comes soon, in both: they lie scattered.
                let soon = policy.sightings().hash_of((number + AHEAD).min(*fresh - 1));
                other.index.prefetch(soon);
                index.prefetch(soon);
                if policy.has(number) {
                    // It is there, by this hash: an entry's is that of its slot (see `find`).
                    let hash = policy.sightings().hash_of(number);
                    let address = other.index.address(hash, |at| has_number(at, number));
                    index.insert(hash, address.expect("the number is in use"));
                }
            }
            return;
        }
        policy.take_over(&other.policy, |old, new| {
            if let Some(time) = times.get_mut(new as usize) {
                *time = other.times[old as usize];
            }
            // For the walk below. The number is in use no more, and the policy has read this entry's link before it tells of it.
            other.policy.chain(old, new);
            *fresh = new + 1;
        });
        for address in other.index.iter() {
            // SAFETY: an entry in the cache; the shard's lock is held.
            let header = unsafe { entry_at(address).as_ref() };
            header.number.set(other.policy.chained(header.number.get()));
            index.insert(header.hash, address);
        }
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = NonNull<Header>> + '_ {
        self.index.iter().map(entry_at)
    }

    /// Fetches what a search for a key reads first, and what a use of it writes.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        self.index.prefetch(hash);
        self.policy.prefetch(hash);
    }

    /// The place in the index of the entry of `hash` for which `is_it` holds. Keys that are equal and have different hashes, which
    /// safe code can make, are different keys here: an entry's hash is that of its slot, whatever takes its place.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(NonNull<Header>) -> bool) -> Option<usize> {
        // SAFETY: what is in the index are entries of the shard, whose lock is held.
        self.index.find(hash, |at| unsafe { entry_at(at).as_ref() }.hash == hash && is_it(entry_at(at)))
    }

    /// The entry at a place of the index.
    #[inline]
    pub fn at(&self, place: usize) -> NonNull<Header> {
        entry_at(self.index.get(place))
    }

    /// Notes a use of an entry.
    #[inline]
    pub fn hit(&self, header: &Header) {
        self.policy.hit(header.number.get(), header.hash);
    }

    /// An entry of a storage with times, in here, has these.
    pub fn set_times(&mut self, header: &Header, times: Times) {
        self.times[header.number.get() as usize] = times;
    }

    /// Notes a use of an entry at this time.
    pub fn use_at(&mut self, header: &Header, now: Time) {
        self.times[header.number.get() as usize].use_at(now);
    }

    /// Whether an entry in here has had its time.
    pub fn is_over(&self, header: &Header, now: Time) -> bool {
        self.times[header.number.get() as usize].is_over(now)
    }

    /// The number of numbers that were ever given: 0 to this.
    pub fn numbers(&self) -> u32 {
        self.fresh
    }

    /// The first number in use from `at` on, and below a bound; the one behind it becomes the next.
    pub fn next_number(&self, at: &mut u32, bound: u32) -> Option<u32> {
        let bound = bound.min(self.fresh);
        let number = (*at..bound).find(|&number| self.policy.has(number));
        *at = number.map_or(bound.max(*at), |number| number + 1);
        number
    }

    /// The first entry of a number from `at` on, which becomes the next one.
    pub fn next_in_use(&self, at: &mut u32) -> Option<NonNull<Header>> {
        self.next_number(at, self.fresh).and_then(|number| self.place_of_number(number)).map(|place| self.at(place))
    }

    /// Looks at entries in turn, at `left` at most and at each once, for one whose time is over; its number.
    pub fn next_over(&mut self, now: Time, left: &mut u32) -> Option<u32> {
        *left = (*left).min(self.fresh);
        while *left > 0 {
            *left -= 1;
            let number = if self.swept < self.fresh { self.swept } else { 0 };
            self.swept = number + 1;
            if self.policy.has(number) && self.times[number as usize].is_over(now) {
                return Some(number);
            }
        }
        None
    }

    /// The first number from `at` on, and below a bound, of an entry whose time is over; the one behind it becomes the next.
    pub fn next_over_below(&self, now: Time, at: &mut u32, bound: u32) -> Option<u32> {
        core::iter::from_fn(|| self.next_number(at, bound)).find(|&number| self.times[number as usize].is_over(now))
    }

    /// Whether an entry that is about to come, of a key that is not there, is to be refused ([`Policy::refuses`]).
    pub fn refuses(&mut self, hash: u32, weight: usize) -> bool {
        self.policy.refuses(hash, weight)
    }

    /// Has the policy decide by this setting, for this weight, from now on.
    pub fn tune(&mut self, target: usize, (setting, favour): (Setting, Favour)) {
        self.policy.set_favour(favour);
        if self.policy.target() != target {
            self.policy.set_target(target);
        }
        if self.policy.setting() != setting {
            self.policy.set_setting(setting);
        }
    }

    /// Adds an entry of a key that is not there; there is room for it. True if the key was evicted lately.
    ///
    /// # Safety
    /// The entry is valid until it is out of here again, and in no other storage.
    pub unsafe fn add(&mut self, entry: NonNull<Header>) -> bool {
        // SAFETY: valid, as the caller promises.
        let header = unsafe { entry.as_ref() };
        let number = if self.free == NONE {
            self.fresh += 1;
            self.fresh - 1
        } else {
            let free = self.free;
            self.free = self.policy.chained(free);
            free
        };
        header.number.set(number);
        let was_evicted_lately = self.policy.insert(number, header.hash, header.weight());
        self.index.insert(header.hash, entry.as_ptr().expose_provenance());
        was_evicted_lately
    }

    /// Puts `new` in the place of the entry at `place` of the index, which has the same key; that counts as a use.
    ///
    /// # Safety
    /// The new entry is valid until it is out of here again, and in no other storage.
    pub unsafe fn replace(&mut self, place: usize, new: NonNull<Header>) -> NonNull<Header> {
        // SAFETY: valid, as the caller promises.
        let header = unsafe { new.as_ref() };
        let old = self.at(place);
        // SAFETY: an entry in the index is valid.
        let former = unsafe { old.as_ref() };
        let number = former.number.get();
        header.number.set(number);
        self.index.replace(place, new.as_ptr().expose_provenance());
        if header.weight() != former.weight() {
            self.policy.set_weight(number, header.weight());
        }
        self.hit(header);
        old
    }

    /// Has the entry at an address at `to` from now on, if one is there that the cache alone holds, of the size of the new block.
    /// Returns where it was.
    ///
    /// # Safety
    /// `to` is a block of `room` bytes, as the heap says them of a live block, that nothing else uses.
    #[cfg(not(plain))]
    pub unsafe fn relocate<C: Content>(
        &mut self,
        address: NonZero<usize>,
        hash: u32,
        to: NonNull<Header>,
        room: usize,
    ) -> Option<NonNull<Header>> {
        let place = self.index.find(hash, |at| at == address.get())?;
        let entry = self.at(place);
        // SAFETY: in the index, under the shard's lock.
        let (header, layout) = unsafe { (entry.as_ref(), C::layout(entry)) };
        if !header.pins.is_held_once() || heap::block_size(layout) != room {
            return None;
        }
        // SAFETY: blocks of the same size, and apart. Nobody else reads or writes the entry: that takes a hold, and a new one the
        // lock.
        unsafe { entry.cast::<u8>().copy_to_nonoverlapping(to.cast(), layout.size()) };
        self.index.replace(place, to.as_ptr().expose_provenance());
        Some(entry)
    }

    /// The place of an entry in the index, if it is in here.
    pub fn place_of(&self, header: &Header) -> Option<usize> {
        let address = core::ptr::from_ref(header).addr();
        self.index.find(header.hash, |at| at == address)
    }

    /// The place in the index of the entry of a number, if that is in use.
    pub fn place_of_number(&self, number: u32) -> Option<usize> {
        let hash = self.policy.sightings().hash_of(number);
        self.policy.has(number).then(|| self.index.find(hash, |at| has_number(at, number)))?
    }

    /// How much the cache gains by an entry ([`Policy::worth`]), if it is in here.
    pub fn worth(&self, header: &Header) -> Option<(u64, u8)> {
        self.place_of(header).map(|_| self.policy.worth(header.number.get()))
    }

    /// Takes the entry at a place of the index out.
    pub fn take(&mut self, place: usize) -> NonNull<Header> {
        // SAFETY: an entry in the index is valid.
        let number = unsafe { self.at(place).as_ref() }.number.get();
        self.policy.remove(number);
        self.forget(place, number)
    }

    /// Takes out an entry that only the cache holds and that `is_wanted`, for `incoming` bytes. Where `is_fair`, it evicts only
    /// as far as the policy's target has no room for them.
    pub fn evict(
        &mut self,
        incoming: usize,
        is_fair: bool,
        is_wanted: impl Fn(NonNull<Header>) -> bool,
    ) -> Option<NonNull<Header>> {
        let (index, sightings) = (&self.index, self.policy.sightings());
        let place_of = |number| index.find(sightings.hash_of(number), |at| has_number(at, number));
        // What the policy asks of last is most often what it names.
        let mut asked = (NONE, None);
        let is_pinned = |number: u32| {
            asked = (number, place_of(number));
            let Some(place) = asked.1 else { return true };
            let entry = entry_at(index.get(place));
            // SAFETY: an entry in the index; the shard's lock is held.
            unsafe { !entry.as_ref().pins.is_held_once() || !is_wanted(entry) }
        };
        let number = match is_fair {
            true => self.policy.evict_for(incoming, is_pinned),
            false => self.policy.evict_any(incoming, is_pinned),
        }?;
        let place = if asked.0 == number { asked.1 } else { place_of(number) }?;
        Some(self.forget(place, number))
    }

    /// Takes an entry out that the policy has given up.
    fn forget(&mut self, place: usize, number: u32) -> NonNull<Header> {
        let entry = self.at(place);
        // SAFETY: what is in the index are entries of the shard, whose hashes do not change.
        self.index.remove(place, |at| unsafe { entry_at(at).as_ref() }.hash);
        self.policy.chain(number, self.free);
        self.free = number;
        entry
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let layout = Self::layout_for(self.capacity, !self.times.is_empty()).expect("the block was allocated with it");
        // SAFETY: allocated by `new`; what refers to it is dropped with this, and used no more.
        unsafe { host::free(self.block, layout) }
    }
}
