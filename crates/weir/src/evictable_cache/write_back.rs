//! Write-back of dirty entries by the program's callback.
//!
//! An entry that is marked dirty joins its shard's list, which holds it, so that it is not evicted. When there is enough,
//! or room is needed, or all is flushed, a batch is handed to the callback, without a lock and on the thread that found
//! it due; each entry of it is completed there or later, on any thread. An entry that is dirtied again meanwhile joins
//! the list again when it is completed; one that fails, too.
//!
//! Two write-backs of one key are never under way at once, so that an older value cannot come after a newer one: an entry
//! is not handed out while another of its hash is (another entry, when the first was replaced).

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weir_linux::process::evictable_caches as process;

use super::dirt::BATCH;
use super::errors::WriteBackError;
use super::header::{Content, Header};
use super::hold::Hold;
use super::shard::State;
use super::shared::Shared;

/// Write-backs of a shard under way at a time: each new one is compared with them.
const MOST_WRITING: usize = 64;
/// Batches that a call hands out which made one entry dirty: what is dirty comes down, and no call writes all of it.
const MOST_BATCHES: usize = 2;
/// Write-back begins when this part of the target is dirty (Linux begins in the background at a tenth of memory).
const DIRTY_SHARE: usize = 8;

/// Entries about to be handed out.
struct Out {
    entries: [NonNull<Header>; BATCH],
    len: usize,
}

impl<C: Content> Shared<C> {
    /// Marks an entry dirty; `false`: it is not in the cache any more.
    ///
    /// # Panics
    /// If the cache was made without a callback to write back with.
    pub fn mark_dirty(&self, hold: &Hold<'_, C>) -> bool {
        assert!(self.write_back.is_possible(), "the cache was built without write_back, so nothing in it can be dirty");
        let header = hold.header();
        let mut state = self.shards()[self.home(header.hash)].lock();
        if header.is_out() {
            return false;
        }
        // SAFETY: held, and of this shard.
        unsafe { self.add_dirt(&mut state, hold.entry) };
        drop(state);
        for _ in 0..MOST_BATCHES {
            let is_much = self.write_back.dirty_bytes.load(Relaxed) > self.room.target.load(Relaxed) / DIRTY_SHARE;
            if !is_much || !self.write_back_some() {
                break;
            }
        }
        true
    }

    /// # Safety
    /// The entry is in the cache, of the shard whose state this is.
    unsafe fn add_dirt(&self, state: &mut State, entry: NonNull<Header>) {
        // SAFETY: an entry in the cache is valid while its shard's lock is held.
        let header = unsafe { entry.as_ref() };
        if !header.is_dirty() {
            self.write_back.set_dirty(header, true);
            if !header.is_writing() {
                header.pins.pin();
                // SAFETY: clean until now, so in no list; the lock is held.
                unsafe { state.dirty.push(entry) };
            }
        }
    }

    /// Ends the dirtiness of an entry that leaves the cache by the owner's wish.
    ///
    /// # Safety
    /// The entry is the cache's still, of the shard whose state this is.
    pub unsafe fn forget_dirt(&self, state: &mut State, entry: NonNull<Header>) {
        // SAFETY: the cache holds the entry.
        let header = unsafe { entry.as_ref() };
        if header.is_dirty() {
            self.write_back.set_dirty(header, false);
            if !header.is_writing() {
                // SAFETY: dirty and not being written back, so in that list.
                unsafe { state.dirty.remove(entry) };
                let is_last = header.pins.unpin();
                debug_assert!(!is_last, "the cache holds it too");
            }
        }
    }

    /// `new` takes the place of `old`: if that was dirty, `new` is, as the store behind the cache has neither.
    ///
    /// # Safety
    /// Both are the cache's, of the shard whose state this is.
    pub unsafe fn inherit_dirt(&self, state: &mut State, old: NonNull<Header>, new: NonNull<Header>) {
        // SAFETY: as the caller promises, of all three.
        unsafe {
            if old.as_ref().is_dirty() {
                self.forget_dirt(state, old);
                self.add_dirt(state, new);
            }
        }
    }

    /// Hands dirty entries out, as many as a batch has and there are; whether there were any. The callback returns first.
    pub fn write_back_some(&self) -> bool {
        self.hand_out(None) > 0
    }

    /// Hands out a batch, or one entry; returns how many.
    fn hand_out(&self, only: Option<&Hold<'_, C>>) -> usize {
        let Some(writer) = &self.write_back.writer else { return 0 };
        if self.write_back.dirty_entries.load(Relaxed) == 0 || self.write_back.is_in_callback() {
            return 0;
        }
        let Some(_caller) = self.write_back.enter() else { return 0 };
        let mut batch = Out { entries: [NonNull::from(self).cast(); BATCH], len: 0 };
        match only {
            Some(hold) => {
                let header = hold.header();
                let mut state = self.shards()[self.home(header.hash)].lock();
                // In the list of dirty entries: under the lock it can be taken out without a search.
                if header.is_dirty() && !header.is_writing() && may_write(&state, header) {
                    self.collect_one(&mut state, &mut batch, hold.entry);
                }
            }
            None => {
                let first = self.next_turn();
                for turn in 0..self.shards().len() {
                    let at = (first + turn) & (self.shards().len() - 1);
                    self.collect(&mut self.shards()[at].lock(), &mut batch);
                }
            }
        }
        let count = batch.len;
        if count > 0 {
            writer(NonNull::from(self).cast(), &batch.entries[..count]);
        }
        count
    }

    fn collect(&self, state: &mut State, batch: &mut Out) {
        let mut writing = state.writing.iter().count();
        for entry in state.dirty.iter() {
            if batch.len == BATCH || writing == MOST_WRITING {
                return;
            }
            writing += usize::from(self.collect_one(state, batch, entry));
        }
    }

    /// Adds an entry of the list of dirty ones to a batch with room; false: another of its hash is under way.
    fn collect_one(&self, state: &mut State, batch: &mut Out, entry: NonNull<Header>) -> bool {
        // SAFETY: entries of the list are held by it, and the lock is held.
        let header = unsafe { entry.as_ref() };
        if is_other_under_way(state, header) {
            return false;
        }
        // SAFETY: it is in the first list, and leaves it for the second; its hold is the handle's from now on.
        unsafe {
            state.dirty.remove(entry);
            state.writing.push(entry);
        }
        self.write_back.handles.fetch_add(1, Relaxed);
        self.write_back.set_dirty(header, false);
        self.write_back.set_writing(header, true);
        header.set_failed(false);
        batch.entries[batch.len] = entry;
        batch.len += 1;
        true
    }

    /// Ends a write-back of an entry, and gives up what its handle holds.
    pub fn complete_in_shard(&self, entry: NonNull<Header>, is_written: bool) {
        let write_back = &self.write_back;
        let hold = Hold { shared: self, entry };
        let header = hold.header();
        let count = if is_written { &write_back.done } else { &write_back.failed };
        count.fetch_add(1, Relaxed);
        let shard = &self.shards()[self.home(header.hash)];
        let mut state = shard.lock();
        // Not so in a forked child, which took it back.
        if header.is_writing() {
            // SAFETY: it is in the list, and the lock is held.
            unsafe { state.writing.remove(entry) };
            write_back.set_writing(header, false);
            header.set_failed(!is_written);
            if !is_written && header.is_out() {
                self.pass_dirt_on(&mut state, &hold);
            } else if header.is_dirty() || !is_written {
                write_back.set_dirty(header, true);
                header.pins.pin();
                // SAFETY: in no list since above; held by the list from now on.
                unsafe { state.dirty.push(entry) };
            }
            if state.writing.is_empty() {
                write_back.is_short.store(false, Relaxed);
            }
        }
        let is_awaited = core::mem::take(&mut state.is_write_back_awaited);
        // The cache holds it too, unless it is out: what ends here is then the handle's hold alone, and no other thread sees an
        // entry that is neither written back nor pinned by a guard, and has a hold too many.
        let last = if header.is_out() {
            Some(hold)
        } else {
            drop(hold);
            None
        };
        drop(state);
        if is_awaited {
            shard.landings.landed(process::wake_all);
        }
        drop(last);
    }

    /// What could not be written back was replaced meanwhile: the store has neither value, so the new one is dirty.
    fn pass_dirt_on(&self, state: &mut State, old: &Hold<'_, C>) {
        let place = state.find::<C>(old.header().hash, |key| C::is_same(key, old.key()));
        if let Some(entry) = place.and_then(|place| state.at(place)) {
            // SAFETY: in the index, under the lock.
            unsafe { self.add_dirt(state, entry) };
        }
    }

    /// Writes everything back that is dirty, and waits for it.
    ///
    /// # Panics
    /// In the callback: it would wait for itself.
    pub fn flush(&self) -> Result<(), WriteBackError> {
        let write_back = &self.write_back;
        self.check_not_in_callback();
        let before = write_back.failed.load(Relaxed);
        loop {
            // Each one once, so that one that fails again and again is not tried for ever.
            let mut left = write_back.dirty_entries.load(Relaxed);
            while left > 0 {
                let handed = self.hand_out(None);
                if handed == 0 {
                    break;
                }
                left = left.saturating_sub(handed);
            }
            let handles = write_back.handles.load(Acquire);
            // In this order: one that fails is counted before its handle is given up.
            let is_clean = write_back.is_clean();
            let failures = write_back.failed.load(Relaxed) - before;
            if handles > 0 {
                write_back.wait(handles);
            } else if failures > 0 {
                return Err(WriteBackError { failures });
            } else if is_clean {
                return Ok(());
            } else if left > 0 {
                // Other threads are in the callback, as many as may be.
                process::yield_now();
            }
        }
    }

    /// Writes one entry back and waits for it; false if that failed. Threads that go on to dirty it prolong it.
    ///
    /// It waits for write-backs of its shard alone, as `weir_core::evict::landings` tells: each that ends there wakes it, and
    /// it hands its entry out as soon as it may be.
    pub fn write_one_back(&self, hold: &Hold<'_, C>) -> bool {
        self.check_not_in_callback();
        let header = hold.header();
        let shard = &self.shards()[self.home(header.hash)];
        let mut is_tried = false;
        loop {
            let mut state = shard.lock();
            let is_writing = header.is_writing();
            if !is_writing && (!header.is_dirty() || (is_tried && header.is_failed())) {
                return !header.is_dirty();
            }
            is_tried |= is_writing;
            // Under way itself, or kept back by others of its shard.
            if is_writing || !may_write(&state, header) {
                state.is_write_back_awaited = true;
                let seen = shard.landings.seen();
                drop(state);
                shard.landings.wait(seen, process::sleep);
                continue;
            }
            drop(state);
            if self.hand_out(Some(hold)) > 0 {
                is_tried = true;
            } else {
                // As many threads as may be are in the callback, or another one was first.
                process::yield_now();
            }
        }
    }

    fn check_not_in_callback(&self) {
        assert!(
            !self.write_back.is_in_callback(),
            "the write_back callback of an evictable cache waits for what it is called for"
        );
    }

    /// In a forked child: what other threads of the parent's were writing back is dirty again.
    pub fn take_writes_back(&self, state: &mut State) {
        while let Some(entry) = state.writing.iter().next() {
            // SAFETY: in the list, and the lock is held; the lost handle's hold is the list's, and one more is for a
            // handle of this thread's, if it is one.
            unsafe {
                state.writing.remove(entry);
                let header = entry.as_ref();
                self.write_back.set_writing(header, false);
                if !header.is_out() {
                    self.write_back.set_dirty(header, true);
                    header.pins.pin();
                    state.dirty.push(entry);
                }
            }
        }
    }
}

/// Whether an entry of the hash of a dirty one is being written back.
fn is_other_under_way(state: &State, header: &Header) -> bool {
    // SAFETY: entries of the list of those under way are held by their handles, and the lock is held.
    state.writing.iter().any(|other| unsafe { other.as_ref() }.hash == header.hash)
}

/// Whether a dirty entry of the shard may be handed out now.
fn may_write(state: &State, header: &Header) -> bool {
    state.writing.iter().count() < MOST_WRITING && !is_other_under_way(state, header)
}
