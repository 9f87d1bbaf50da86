//! Entries that are left after evictions under pressure move together, so that the others' memory becomes free.
//!
//! Which entries go is chosen by how often each was wanted, not by where it lies. So nearly each page keeps some: of values of 100
//! bytes eight in ten went before any memory was free. The heap knows which blocks had better be elsewhere, and where
//! ([`heap::should_move`]). It is asked for each entry, in *rounds*. One begins once a sixth of what was held has gone, as the heap
//! moves nothing before an eighth of the places is free. Each eviction does a part of the round.
//!
//! **Who may move.** The index alone has an entry's address, beside those who hold the entry. So an entry moves under the lock of
//! its shard, where only the cache and the walk that found it hold it. What the heap does for a move is done under no lock.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::shared::Shared;
use crate::heap;

/// Entries that are looked at for each that was evicted, at most, and the rest of the last one's shard. A round is over before the
/// next begins.
const LOOKS: usize = 8;
/// A cache of fewer entries is left as it is: the walk holds 16 at a time, which nobody else could have evicted.
const FEWEST: usize = 1 << 10;

impl<C: Content> Shared<C> {
    /// Goes on with the round, or begins one. `before` is what was held before an eviction: bytes, and entries. No lock is held.
    pub fn gather(&self, before: (usize, usize)) {
        let left = self.room.entries.load(Relaxed);
        let is_fixed = !matches!(self.place, Place::Heap) || self.gathering.is_inherited();
        if is_fixed || left < FEWEST {
            return;
        }
        self.gathering.note(before.0, self.room.bytes.load(Relaxed));
        let (mut looks, most) = (0, before.1.saturating_sub(left).saturating_mul(LOOKS));
        while looks < most
            && let Some(shard) = self.gathering.take(self.shards().len())
        {
            for hold in self.walk_through(shard..shard + 1) {
                looks += 1;
                if heap::should_move(hold.entry().as_ptr().cast()) {
                    self.move_entry(hold);
                }
            }
        }
    }

    /// Moves an entry to where it should be, unless others hold it.
    fn move_entry(&self, hold: Hold<'_, C>) {
        let (entry, hash) = (hold.entry(), hold.header().hash);
        let Some(to) = NonNull::new(heap::alloc_to_move(entry.as_ptr().cast())) else { return };
        // SAFETY: held, so valid.
        let len = unsafe { C::layout(entry) }.size();
        let mut state = self.shards()[self.home(hash)].lock();
        // SAFETY: held; the new block is of the same class, and this function's alone.
        let is_moved = state.storage.as_mut().is_some_and(|storage| unsafe { storage.relocate(entry, to.cast(), len) });
        drop(state);
        let left = if is_moved { hold.into_entry().cast() } else { to };
        // SAFETY: a block of the heap: the entry's former one, which nothing refers to, or the one that was taken for it in vain.
        unsafe { heap::free_moved(left.as_ptr()) };
    }
}
