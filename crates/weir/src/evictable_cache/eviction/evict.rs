//! Eviction: for what comes, and under pressure.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use super::room::{LEAST_STEP, Room};
use crate::evictable_cache::api::errors::Refusal;
use crate::evictable_cache::api::stats::RemovalCause;
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::parts::Part;
use crate::evictable_cache::shard::storage::Storage;
use crate::evictable_cache::shared::Shared;

/// Tries to get memory for an entry, each after an eviction.
const TRIES: usize = 4;

/// A shard evicts entries of its own for one that comes, unless it has less than 7/8 of its part of the target. Other shards
/// have more than their part then.
const SLACK: usize = 8;

impl<C: Content> Shared<C> {
    /// Counts so many bytes as held, if there is room without an eviction.
    #[inline]
    pub fn reserve_free(&self, weight: usize) -> bool {
        let room = &self.room;
        loop {
            if room.take(weight) {
                return true;
            }
            let wanted = room.bytes.load(Relaxed).checked_add(weight);
            if !wanted.is_some_and(|wanted| room.grow(wanted)) {
                return false;
            }
        }
    }

    /// Counts `missing` bytes of an entry of `weight` bytes as held, once there is room; `home` is the shard that it is for.
    ///
    /// Entries of about the missing bytes are evicted, and of [`LEAST_STEP`] more where more than the target is held.
    pub fn reserve(&self, home: usize, missing: usize, weight: usize) -> Result<(), Refusal> {
        let room = &self.room;
        let mut kept = Kept { room, bytes: 0 };
        loop {
            if room.exchange(kept.bytes, missing) {
                kept.bytes = 0;
                return Ok(());
            }
            if kept.bytes == 0 && self.reserve_free(missing) {
                return Ok(());
            }
            self.room_for(home, missing, weight, &mut kept)?;
        }
    }

    /// Evicts what is missing for an entry, as far as there is.
    fn room_for(&self, home: usize, missing: usize, weight: usize, kept: &mut Kept<'_>) -> Result<(), Refusal> {
        let room = &self.room;
        let max = room.most();
        if let Some(wanted) = room.bytes.load(Relaxed).checked_add(missing)
            && wanted <= max
        {
            // It is memory that is short, not the cache that is full.
            room.note_inserter(weight);
            if room.grow(wanted) {
                return Ok(());
            }
        }
        let target = room.goal();
        if weight > target {
            // Whatever goes, it will not fit, unless the target grows for it alone.
            if room.grow(weight) {
                return Ok(());
            }
            return Err(Refusal::TooLarge { weight, target: if weight > max { max } else { target } });
        }
        let over = room.bytes.load(Relaxed).saturating_sub(target - missing).saturating_sub(kept.bytes);
        if over == 0 {
            return Ok(());
        }
        // A part of what is too much, as other threads evict it too: together they would evict it many times.
        let wanted = over.min((missing - kept.bytes).saturating_add(LEAST_STEP));
        // Where nothing went, all that is left is pinned.
        let why = (RemovalCause::Room, Part::All);
        match self.make_room(home, missing, wanted, why, Some(kept), Victims::tell_and_drop) {
            0 => Err(Refusal::Full),
            _ => Ok(()),
        }
    }

    /// Evicts for `weight` bytes that are about to be put into a shard, under its lock. A shard that has about its part of the
    /// target or more evicts entries of its own. It evicts as many as leave it at once.
    ///
    /// A shard that has a little less than its part evicts all the same. That takes one lock, where a search for a shard that
    /// has more takes several. So shards keep about the size that they have.
    pub fn evict_at_home(&self, storage: &mut Storage, weight: usize, victims: &mut Victims<'_, C>) {
        let room = &self.room;
        let target = room.goal();
        if weight > target {
            // It will not fit, whatever goes.
            return;
        }
        let over = room.bytes.load(Relaxed).saturating_add(weight).saturating_sub(target);
        let fair = self.fair_part(target);
        // A shard that has less than its part, and keeps to that, has no room in its main queue: what comes into that is tested.
        storage.tune(fair.min(storage.policy().weight()), self.choice.setting());
        let wanted = over.min(weight.saturating_add(LEAST_STEP));
        while victims.weight() < wanted && !victims.is_full() {
            if storage.policy().weight().saturating_add(weight) <= fair - fair / SLACK {
                break;
            }
            let Some(entry) = storage.evict(weight, false, |_| true) else { break };
            victims.push(entry);
        }
        if !victims.is_empty() {
            room.note_replacement();
        }
    }

    /// The part of a target that each shard may have.
    pub fn fair_part(&self, target: usize) -> usize {
        target >> self.shards().len().trailing_zeros()
    }

    /// Evicts until `wanted` bytes went, if there are; returns how many. `incoming` bytes are for the shard `home`, in
    /// which the eviction begins.
    ///
    /// Shards above their part of the target are evicted from first. So a shard may have more than its part as long as the cache
    /// has room. Only entries of the part go. What went is added to `kept`, or given back, before the entries come to their `end`.
    fn make_room<'a>(
        &'a self,
        home: usize,
        incoming: usize,
        wanted: usize,
        (cause, part): (RemovalCause, Part),
        mut kept: Option<&mut Kept<'_>>,
        mut end: impl FnMut(Victims<'a, C>),
    ) -> usize {
        let shards = self.shards().len();
        let mut freed = 0;
        self.room.note_replacement();
        for is_fair in [true, false] {
            for turn in 0..shards {
                let at = (home + turn) & (shards - 1);
                let incoming = if turn == 0 { incoming } else { 0 };
                while freed < wanted {
                    let victims = self.pick(at, is_fair, incoming, wanted - freed, (cause, part));
                    let weight = victims.weight();
                    match &mut kept {
                        Some(kept) => kept.bytes += weight,
                        None => self.room.give(weight),
                    }
                    freed += weight;
                    let is_done = victims.is_empty();
                    end(victims);
                    if is_done {
                        break;
                    }
                }
            }
        }
        freed
    }

    /// Takes some entries of a shard out of the cache; where `is_fair`, only those above the shard's part of the target.
    fn pick(
        &self,
        at: usize,
        is_fair: bool,
        incoming: usize,
        wanted: usize,
        (cause, part): (RemovalCause, Part),
    ) -> Victims<'_, C> {
        let mut victims = Victims::new(self, cause);
        let fair = self.fair_part(self.room.goal());
        let mut state = self.shards()[at].lock();
        let state = &mut *state;
        let Some(storage) = &mut state.storage else { return victims };
        storage.tune(fair, self.choice.setting());
        while victims.weight() < wanted && !victims.is_full() {
            // SAFETY: entries in the storage, whose lock is held, have key and value.
            let is_wanted = |entry: NonNull<Header>| self.zoned.is_of(unsafe { entry.as_ref() }, part);
            let Some(entry) = storage.evict(incoming, is_fair, is_wanted) else { break };
            victims.push(entry);
        }
        let count = victims.len() as u64;
        match cause {
            RemovalCause::Pressure => state.counts.for_pressure += count,
            _ => state.counts.for_room += count,
        }
        self.room.entries.fetch_sub(victims.len(), Relaxed);
        victims
    }

    /// Notes that entries left the cache.
    pub fn count_out(&self, entries: usize, weight: usize) {
        self.room.entries.fetch_sub(entries, Relaxed);
        self.room.give(weight);
    }

    /// Frees at least `bytes` of a part, if so many are not pinned. Lowers the target to what is left, and holds it there until
    /// [`Shared::relieved`]. Entries come to their `end` under no lock, some at a time.
    pub fn evict<'a>(&'a self, bytes: usize, part: Part, mut end: impl FnMut(Victims<'a, C>)) -> usize {
        let room = &self.room;
        if bytes == 0 {
            return 0;
        }
        let _scan = self.scans.begin();
        // Before the target falls: see `Room::grow`.
        room.is_pressed.store(true, Relaxed);
        let over = self.sweep_for_pressure(part, &mut end);
        let bytes = bytes.saturating_sub(over);
        let held = room.bytes.load(Relaxed);
        #[cfg(not(plain))]
        let entries = room.entries.load(Relaxed);
        let goal = held.saturating_sub(bytes).max(room.least());
        room.target.fetch_min(goal, Release);
        let wanted = held.saturating_sub(goal);
        let freed = self.make_room(self.next_turn(), 0, wanted, (RemovalCause::Pressure, part), None, end);
        if freed < wanted {
            // What is held may be above the greatest weight, where it was pinned when that was lowered.
            room.raise(room.bytes.load(Relaxed).min(held));
        }
        self.fit_storage(Storage::is_sparse);
        #[cfg(not(plain))]
        self.gather((held, entries));
        freed + over
    }

    /// The cache may grow again.
    ///
    /// The shards' storage is made smaller now, and not while memory is short, as it is copied to fresh pages for that. A thread
    /// that touches a fresh page in a control group above its `memory.high` sleeps for up to 2 s. With the copies an eviction of
    /// 28 MiB took 2.8 s, without them 0.1 s (E12).
    pub fn relieved(&self) {
        self.room.is_pressed.store(false, Relaxed);
        self.room.forget_inserters();
        self.fit_storage(Storage::is_roomy);
    }

    /// Sets the weight that the cache never exceeds; what is above it goes, as far as it can. Where there has to be a bound,
    /// `usize::MAX` leaves the one that there is.
    pub fn set_max(&self, max: usize) {
        let room = &self.room;
        if max != usize::MAX || !self.needs_bound {
            // Both in the order that `Room::keep_to_max` relies on.
            room.max.store(max, SeqCst);
            room.target.fetch_min(max, SeqCst);
        }
        let max = room.most();
        let held = room.bytes.load(Relaxed);
        // Also where the target was below the bound before: what was pinned then may be there still.
        if held > max {
            let why = (RemovalCause::Room, Part::All);
            self.make_room(self.next_turn(), 0, held - max, why, None, Victims::tell_and_drop);
            self.fit_storage(Storage::is_roomy);
        }
    }

    /// Calls `take` until it has memory, after evictions of about `size` bytes; `None`: there is none to be had.
    pub fn with_memory<T>(&self, home: usize, size: usize, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..TRIES {
            if let Some(taken) = take() {
                return Some(taken);
            }
            // More than all of the cache: no eviction makes that possible.
            if size > self.room.bytes.load(Relaxed) {
                return None;
            }
            // What could not be had is not to be tried for at once again.
            self.room.target.fetch_min(self.room.bytes.load(Relaxed).max(self.room.least()), Relaxed);
            let why = (RemovalCause::Room, Part::All);
            if self.make_room(home, 0, size.max(LEAST_STEP), why, None, Victims::tell_and_drop) == 0 {
                return None;
            }
        }
        take()
    }
}

/// Bytes that were evicted for an entry and are still counted as held. They are given back when this is dropped, also where code
/// of the program's panics.
struct Kept<'a> {
    room: &'a Room,
    bytes: usize,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.room.give(self.bytes);
    }
}
