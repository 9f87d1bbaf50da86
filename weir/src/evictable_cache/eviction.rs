//! Eviction: for what comes, and under pressure.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::errors::Refusal;
use super::header::Content;
use super::hold::Victims;
use super::room::LEAST_STEP;
use super::shared::Shared;
use super::stats::Cause;

/// Tries to get memory for an entry, each after an eviction.
const TRIES: usize = 4;

/// Whether shards keep to their part of the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// What is above a shard's part goes.
    Fair,
    /// What can go goes.
    Any,
}

impl<C: Content> Shared<C> {
    /// Counts so many bytes as held, once there is room; `home` is the shard that they are for.
    pub fn reserve(&self, home: usize, weight: usize) -> Result<(), Refusal> {
        let room = &self.room;
        let mut is_written = false;
        loop {
            if room.take(weight) {
                self.adapt_if_due();
                return Ok(());
            }
            let bytes = room.bytes.load(Relaxed);
            if bytes.checked_add(weight).is_some_and(|wanted| room.grow(wanted)) {
                continue;
            }
            let target = room.target.load(Relaxed);
            if weight > target {
                // Whatever goes, it will not fit, unless the target grows for it alone.
                if room.grow(weight) {
                    continue;
                }
                let max = room.max.load(Relaxed);
                return Err(Refusal::TooLarge { weight, target: if weight > max { max } else { target } });
            }
            let over = bytes.saturating_sub(target - weight);
            // A part of what is too much, as other threads evict it too: together they would evict it many times.
            let wanted = over.min(weight.max(LEAST_STEP));
            if over == 0 || self.make_room(home, weight, wanted, Cause::Room) > 0 {
                continue;
            }
            // All that is left is pinned or dirty. What is written back at once leaves room.
            if is_written || !self.write_back_some() {
                return Err(Refusal::Full);
            }
            is_written = true;
        }
    }

    /// Evicts until `wanted` bytes went, if there are; returns how many. `incoming` bytes are for the shard `home`, in
    /// which the eviction begins.
    ///
    /// Shards above their part of the target are evicted from first, so that a shard may have more than its part as long
    /// as the cache has room.
    pub fn make_room(&self, home: usize, incoming: usize, wanted: usize, cause: Cause) -> usize {
        let shards = self.shards().len();
        let mut freed = 0;
        self.room.has_replaced.store(true, Relaxed);
        for share in [Share::Fair, Share::Any] {
            for turn in 0..shards {
                let at = (home + turn) & (shards - 1);
                let incoming = if turn == 0 { incoming } else { 0 };
                while freed < wanted {
                    let victims = self.pick(at, share, incoming, wanted - freed, cause);
                    let weight = victims.weight();
                    freed += weight;
                    let is_done = victims.is_empty();
                    victims.tell_and_drop();
                    if is_done {
                        break;
                    }
                }
            }
        }
        if freed < wanted {
            self.write_back.note_shortage();
        }
        freed
    }

    /// Takes some entries of a shard out of the cache.
    fn pick(&self, at: usize, share: Share, incoming: usize, wanted: usize, cause: Cause) -> Victims<'_, C> {
        let mut victims = Victims::new(self, cause);
        let fair = self.room.target.load(Relaxed) / self.shards().len();
        let mut state = self.shards()[at].lock();
        let state = &mut *state;
        let Some(storage) = &mut state.storage else { return victims };
        if storage.policy.target() != fair {
            storage.policy.set_target(fair);
        }
        let setting = self.adapt.setting();
        if storage.policy.setting() != setting {
            storage.policy.set_setting(setting);
        }
        while victims.weight() < wanted && !victims.is_full() {
            let Some(entry) = storage.evict((share == Share::Fair).then_some(incoming)) else { break };
            victims.push(entry);
        }
        let count = victims.len() as u64;
        match cause {
            Cause::Pressure => state.counts.for_pressure += count,
            _ => state.counts.for_room += count,
        }
        self.count_out(victims.len(), victims.weight());
        victims
    }

    /// Notes that entries left the cache.
    pub fn count_out(&self, entries: usize, weight: usize) {
        self.room.entries.fetch_sub(entries, Relaxed);
        self.room.give(weight);
    }

    /// Frees at least `bytes`, if there are so many clean entries that are not pinned, lowers the target to what is left,
    /// and holds it there until [`Shared::relieved`]. Dirty entries are written back then, for the next eviction.
    pub fn evict(&self, bytes: usize) -> usize {
        self.evict_for(bytes, true)
    }

    /// The same; without `may_write` nothing is written back.
    pub fn evict_for(&self, bytes: usize, may_write: bool) -> usize {
        let room = &self.room;
        if bytes == 0 {
            return 0;
        }
        // Before the target falls: see `Room::grow`.
        room.is_pressed.store(true, Relaxed);
        let held = room.bytes.load(Relaxed);
        let goal = held.saturating_sub(bytes).max(room.min);
        room.target.fetch_min(goal, Relaxed);
        let wanted = held.saturating_sub(goal);
        let freed = self.make_room(self.next_turn(), 0, wanted, Cause::Pressure);
        if freed < wanted {
            if may_write {
                self.write_back_some();
            }
            // What is held may be above the greatest weight, where it was pinned when that was lowered.
            room.target.fetch_max(room.bytes.load(Relaxed).min(held).min(room.max.load(Relaxed)), Relaxed);
        }
        self.fit_storage();
        freed
    }

    /// The cache may grow again.
    pub fn relieved(&self) {
        self.room.is_pressed.store(false, Relaxed);
    }

    /// Sets the weight that the cache never exceeds; what is above it goes, as far as it can.
    pub fn set_max(&self, max: usize) {
        let room = &self.room;
        // Both in the order that `Room::grow` relies on.
        room.max.store(max, SeqCst);
        let before = room.target.fetch_min(max, SeqCst);
        let held = room.bytes.load(Relaxed);
        if before > max && held > max {
            self.make_room(self.next_turn(), 0, held - max, Cause::Room);
            self.fit_storage();
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
            self.room.target.fetch_min(self.room.bytes.load(Relaxed).max(self.room.min), Relaxed);
            if self.make_room(home, 0, size.max(LEAST_STEP), Cause::Room) == 0 {
                return None;
            }
        }
        take()
    }
}
