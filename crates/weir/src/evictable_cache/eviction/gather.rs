//! Entries that are left after evictions under pressure move together, so that the others' memory becomes free.
//!
//! Which entries go is chosen by how often each was wanted, not by where it lies. So nearly each page keeps some: of values of 100
//! bytes eight in ten went before any memory was free. The heap knows which blocks had better be elsewhere, and where
//! ([`heap::should_move`]). It is asked for each entry, in *rounds*. One begins once a sixth of what was held has gone, as the heap
//! moves nothing before an eighth of the places is free. Each eviction does a part of the round.
//!
//! **Who may move.** The index alone has an entry's address, beside those who hold the entry. So an entry moves under the lock of
//! its shard, where only the cache holds it. What the heap does for a move is done under no lock, and for an address alone: nothing
//! is held meanwhile, as what is held counts as in use. Whatever entry lies there under the lock may move, if it has the size of
//! the new block.

use core::num::NonZero;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::eviction::rounds::At;
use crate::evictable_cache::shared::Shared;
use crate::heap;

/// Entries that are looked at for each that was evicted, at most. A round is over before the next begins.
const LOOKS: usize = 8;
/// Entries that are looked at under a lock at a time.
const BATCH: usize = 16;

/// Where an entry lay, and its hash.
type Found = (NonZero<usize>, u32);

impl<C: Content> Shared<C> {
    /// Goes on with the round, or begins one. `before` is what was held before an eviction: bytes, and entries. No lock is held.
    pub fn gather(&self, before: (usize, usize)) {
        let left = self.room.entries.load(Relaxed);
        if !matches!(self.place, Place::Heap) || self.gathering.is_inherited() {
            return;
        }
        self.gathering.note(before.0, self.room.bytes.load(Relaxed));
        let most = before.1.saturating_sub(left).saturating_mul(LOOKS);
        for _ in 0..most.div_ceil(BATCH) {
            let Some(at) = self.gathering.at(self.shards().len()) else { return };
            let (found, next) = self.entries_from(at);
            for (address, hash) in found.into_iter().flatten() {
                if heap::should_move(core::ptr::without_provenance(address.get())) {
                    self.move_entry(address, hash);
                }
            }
            self.gathering.go_on(at, next);
        }
    }

    /// The next entries, and what comes after them.
    fn entries_from(&self, at: At) -> ([Option<Found>; BATCH], At) {
        let mut found = [None; BATCH];
        let mut number = at.number;
        let state = self.shards()[at.shard as usize].lock();
        for place in &mut found {
            let entry = state.storage.as_ref().and_then(|storage| storage.next_in_use(&mut number));
            // SAFETY: in the storage, under the lock.
            *place = entry.map(|entry| (entry.addr(), unsafe { entry.as_ref() }.hash));
            if place.is_none() {
                return (found, At { shard: at.shard + 1, number: 0 });
            }
        }
        (found, At { number, ..at })
    }

    /// Moves an entry to where it should be, if it is there still and nobody holds it.
    fn move_entry(&self, address: NonZero<usize>, hash: u32) {
        let at = core::ptr::without_provenance(address.get());
        let Some(to) = NonNull::new(heap::alloc_to_move(at)) else { return };
        // SAFETY: a block that was taken just now.
        let room = unsafe { heap::usable_size(to.as_ptr()) };
        let mut state = self.shards()[self.home(hash)].lock();
        let storage = state.storage.as_mut();
        // SAFETY: a block of so many bytes, and this function's alone.
        let moved = storage.and_then(|storage| unsafe { storage.relocate::<C>(address, hash, to.cast(), room) });
        drop(state);
        let left = moved.map_or(to, NonNull::cast);
        // SAFETY: a block of the heap: the entry's former one, which nothing refers to, or the one that was taken for it in vain.
        unsafe { heap::free_moved(left.as_ptr()) };
    }
}
