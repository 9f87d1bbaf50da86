//! The small and the main queue of a cache or of a shadow, and the search for a victim.

use super::favour::{Favour, Weights};
use super::fifo::Fifo;
use super::ghost::Ghost;
use super::setting::Setting;
use super::sketch::{MOST_SEEN, Sketch};
use super::slot::{Hits, Place, Slot};

/// Entries drawn for each victim while the target falls: as many as Redis draws for its approximated LRU and LFU.
const DRAWN: u32 = 5;
/// Draws until then at most: numbers not in use and pinned entries do not count.
const MOST_DRAWS: u32 = 4 * DRAWN;
/// Entries that one search for a victim moves at most, from the small queue to the main one or round the main one. After
/// long use without an eviction all main entries may have been hit, and a search without a bound would go round three
/// times.
const MOST_MOVES: u32 = 128;
/// Entries that an insertion moves from the small queue to the main one, while that has room. These are more than the one that
/// came, so that a queue that has become too long gets shorter.
const MOVES_PER_INSERTION: usize = 2;
/// Hits of a small entry that has earned its place in the main queue: S3-FIFO's threshold.
const EARNED_BY_HITS: u8 = 2;
/// A small entry's key must have been seen more often than that of the main queue's victim, by more than this, to take its place. With 0 loops far
/// larger than the cache lose all that is held of them, as keys that share counters look more frequent.
const OUTDONE_BY: u64 = 1;
/// What weighs more than this times the mean may be refused. With 4 and 8 the mean rate of the weighted traces is 1.1 and 1.8 points
/// lower, with 1 it is 0.4 lower.
const HEAVY: u128 = 2;
/// Entries from which on something is refused: with fewer, the mean says little.
const FEWEST_TO_REFUSE: usize = 32;

/// The entries of a cache, in their order of eviction.
#[derive(Debug)]
pub struct Queues<'a> {
    slots: &'a [Slot],
    hits: Hits<'a>,
    small: Fifo,
    main: Fifo,
    ghost: Ghost<'a>,
    setting: Setting,
    favour: Favour,
    target: usize,
    /// The target fell below the weight, and was not reached since.
    is_shrinking: bool,
    /// One more than the highest entry number used so far.
    numbers: u32,
    /// State of the draws of entries.
    random: u32,
}

impl<'a> Queues<'a> {
    /// Empty queues of entries in `slots`, with counts of `hits`, and a target of 0 bytes.
    pub fn new(slots: &'a [Slot], hits: Hits<'a>, ghost: &'a mut [u32]) -> Self {
        let (small, main) = (Fifo::new(Place::Small), Fifo::new(Place::Main));
        Self {
            slots,
            hits,
            small,
            main,
            ghost: Ghost::new(ghost),
            setting: Setting::Balanced,
            favour: Favour::Entries,
            target: 0,
            is_shrinking: false,
            numbers: 0,
            random: 0,
        }
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// True without entries.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    const fn weights(&self) -> Weights {
        Weights { sum: self.weight(), count: self.len() }
    }

    /// The sum of the entries' weights, bytes.
    pub const fn weight(&self) -> usize {
        self.small.weight() + self.main.weight()
    }

    /// The weight that eviction goes down to, bytes.
    pub const fn target(&self) -> usize {
        self.target
    }

    /// Sets it. A lower one is reached by evicting, a higher one by inserting.
    pub fn set_target(&mut self, target: usize) {
        self.is_shrinking = target < self.weight() && (self.is_shrinking || target < self.target);
        self.target = target;
    }

    /// Runs the queues in another way from the next eviction on. No entry moves before.
    pub fn set_setting(&mut self, setting: Setting) {
        self.setting = setting;
    }

    /// Has the queues keep what brings the most of this, from the next eviction on.
    pub fn set_favour(&mut self, favour: Favour) {
        self.favour = favour;
    }

    /// How the queues are run.
    pub const fn setting(&self) -> Setting {
        self.setting
    }

    /// Adds `entry`, which is in no queue; true if its key was evicted lately. The caller evicts afterwards.
    pub fn insert(&mut self, entry: u32, hash: u32, weight: usize) -> bool {
        self.is_shrinking &= self.weight() > self.target;
        self.ghost.fit(self.len() + 1);
        self.slots[entry as usize].begin(hash, weight);
        self.hits.set(entry, 0);
        self.numbers = self.numbers.max(entry + 1);
        let was_evicted_lately = self.ghost.take(hash, self.len());
        let is_known = was_evicted_lately && self.setting == Setting::Balanced;
        let queue = if is_known { &mut self.main } else { &mut self.small };
        queue.push(self.slots, entry);
        self.fill_main();
        was_evicted_lately
    }

    /// While the main queue has room, what is above the small queue's part moves there without a test. A cache that was not full,
    /// or in which the small queue was large, has no reason yet to refuse an entry.
    fn fill_main(&mut self) {
        let small_target = self.setting.small(self.target);
        for _ in 0..MOVES_PER_INSERTION {
            let Some(oldest) = self.small.oldest().filter(|_| self.small.weight() > small_target) else { return };
            if !self.has_main_room(oldest, small_target) {
                return;
            }
            self.promote(oldest, self.hits.get(oldest));
        }
    }

    fn has_main_room(&self, entry: u32, small_target: usize) -> bool {
        self.main.weight().saturating_add(self.slots[entry as usize].weight()) <= self.target - small_target
    }

    /// Takes `entry` out, if it is in a queue.
    pub fn remove(&mut self, entry: u32) -> bool {
        let slots = self.slots;
        self.queue_of(entry).map(|queue| queue.remove(slots, entry)).is_some()
    }

    /// Gives `entry` another weight, if it is in a queue. The caller evicts afterwards.
    pub fn set_weight(&mut self, entry: u32, weight: usize) -> bool {
        self.is_shrinking &= self.weight() > self.target;
        let slots = self.slots;
        self.queue_of(entry).map(|queue| queue.set_weight(slots, entry, weight)).is_some()
    }

    fn queue_of(&mut self, entry: u32) -> Option<&mut Fifo> {
        match self.slots[entry as usize].place() {
            Place::Nowhere => None,
            Place::Small => Some(&mut self.small),
            Place::Main => Some(&mut self.main),
        }
    }

    /// Takes out the entry that is worth least, whether or not the target is reached; `None`: all are pinned.
    ///
    /// `incoming` bytes are about to be inserted: they count as if they were in the small queue already. Otherwise the small
    /// queue is never above its part when room is made before an insertion. The victims would be main entries, each of which
    /// leaves room there for the next small one, without a test.
    ///
    /// Work is bounded by `MOST_MOVES`, beside pinned entries.
    pub fn evict(&mut self, sketch: &Sketch, incoming: usize, mut is_pinned: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.is_shrinking
            && let Some(entry) = self.take_least(sketch, &mut is_pinned)
        {
            return Some(entry);
        }
        let small_target = self.setting.small(self.target);
        let mut moves_left = MOST_MOVES;
        loop {
            let small = self.small.weight().saturating_add(incoming);
            let is_small_due = (small > small_target && moves_left > 0) || self.main.is_empty();
            if is_small_due && let Some(entry) = self.small.oldest_likely_unpinned(self.slots, &mut is_pinned) {
                let hits_left = if self.has_main_room(entry, small_target) {
                    self.hits.get(entry)
                } else if self.is_to_stay(entry, sketch, &mut is_pinned, &mut moves_left) {
                    0
                } else {
                    return Some(self.take_small(entry));
                };
                moves_left = moves_left.saturating_sub(1);
                self.promote(entry, hits_left);
                continue;
            }
            if let Some(entry) = self.main_victim(&mut is_pinned, &mut moves_left) {
                self.main.remove(self.slots, entry);
                return Some(entry);
            }
            // The oldest were hit, all of them: they go on to be moved in the next search, and one that is rare goes.
            if moves_left == 0
                && let Some(entry) = self.take_least(sketch, &mut is_pinned)
            {
                return Some(entry);
            }
            // Neither offers one: look at all that there are, due or not.
            if let Some(entry) = self.small.oldest_unpinned(self.slots, &mut is_pinned) {
                return Some(self.take_small(entry));
            }
            let entry = self.main.oldest_unpinned(self.slots, &mut is_pinned)?;
            self.main.remove(self.slots, entry);
            return Some(entry);
        }
    }

    fn take_small(&mut self, entry: u32) -> u32 {
        self.small.remove(self.slots, entry);
        self.ghost.add(self.slots[entry as usize].hash());
        entry
    }

    fn promote(&mut self, entry: u32, hits: u8) {
        self.small.remove(self.slots, entry);
        self.hits.set(entry, hits);
        self.main.push(self.slots, entry);
    }

    /// True if a small entry is to move to the main queue, which is full.
    fn is_to_stay(
        &mut self,
        entry: u32,
        sketch: &Sketch,
        is_pinned: &mut impl FnMut(u32) -> bool,
        moves_left: &mut u32,
    ) -> bool {
        let weight = self.slots[entry as usize].weight();
        if self.setting == Setting::Recent
            || self.favour.has_earned(self.hits.get(entry), weight, EARNED_BY_HITS, self.weights())
        {
            return true;
        }
        // Small entries could move for their hits alone, while none is hit twice (a loop larger than the cache). Then no main
        // entry would ever be evicted: those that the loop does not use would stay for good.
        let Some(victim) = self.main_victim(is_pinned, moves_left) else { return false };
        let (seen, (victims, victim_weight)) = (self.seen(entry, sketch).0, self.seen(victim, sketch));
        self.favour.is_worth_more((seen, weight), (victims + OUTDONE_BY, victim_weight))
    }

    /// How often an entry's key was seen lately, and what the entry weighs.
    fn seen(&self, entry: u32, sketch: &Sketch) -> (u64, usize) {
        let slot = &self.slots[entry as usize];
        (sketch.frequency(slot.hash()), slot.weight())
    }

    /// Whether an entry of a key that is not there had better not come in. It is heavy, and is worth less than each of some entries
    /// drawn at random. Many like them would have to go for it, and it would be the next to go. What was seen as often as can be
    /// counted comes in.
    pub fn refuses(&mut self, hash: u32, weight: usize, sketch: &Sketch) -> bool {
        let is_choosy = self.favour == Favour::Entries && self.setting == Setting::Balanced;
        let all = self.weights();
        if !is_choosy || all.count < FEWEST_TO_REFUSE || all.times_mean(weight) <= HEAVY * all.sum as u128 {
            return false;
        }
        let seen = sketch.frequency(hash);
        seen < MOST_SEEN
            && self
                .least_drawn(sketch, &mut |_| false)
                .is_some_and(|drawn| self.favour.is_worth_more(self.seen(drawn, sketch), (seen, weight)))
    }

    /// The oldest main entry that is neither pinned nor was hit lately; those hit lately go round again, for what that costs.
    /// `None`: there is none, or no more entries may be moved.
    fn main_victim(&mut self, is_pinned: &mut impl FnMut(u32) -> bool, moves_left: &mut u32) -> Option<u32> {
        let (hits, all) = (self.hits, Weights { sum: self.main.weight(), count: self.main.len() });
        while *moves_left > 0 {
            // Pins are looked at where there are no hits: they lie with the owner's entries, which need not be in the CPU's
            // cache.
            let mut is_skipped = |entry: u32| hits.get(entry) == 0 && is_pinned(entry);
            let entry = self.main.oldest_likely_unpinned(self.slots, &mut is_skipped)?;
            let count = hits.get(entry);
            let (favour, weight) = (self.favour, self.slots[entry as usize].weight());
            let cost = favour.cost(weight, all, || self.draw());
            // With hits its pins were not looked at yet.
            if count < cost && (count == 0 || !is_pinned(entry)) {
                return Some(entry);
            }
            let left = count.saturating_sub(cost);
            *moves_left -= 1;
            // Once for each hit; as in CLOCK, once for all of them.
            hits.set(entry, if self.setting == Setting::Recent { 0 } else { left });
            self.main.remove(self.slots, entry);
            self.main.push(self.slots, entry);
        }
        None
    }

    /// Takes the one out that is worth least of some entries drawn at random.
    fn take_least(&mut self, sketch: &Sketch, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let entry = self.least_drawn(sketch, is_pinned)?;
        if self.slots[entry as usize].place() == Place::Small {
            return Some(self.take_small(entry));
        }
        self.main.remove(self.slots, entry);
        Some(entry)
    }

    /// Draws some entries at random and returns the one that is worth least, or of several the one hit least.
    ///
    /// While the target falls, entries go that normal churn would have left for long. Most of them were hit as often as two bits
    /// can say. Their order in the queues tells little about them then; the sketch does.
    fn least_drawn(&mut self, sketch: &Sketch, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let (mut least, mut drawn) = (None, 0);
        for _ in 0..MOST_DRAWS {
            let entry = ((u64::from(self.draw()) * u64::from(self.numbers)) >> 32) as u32;
            let is_there = |slot: &Slot| slot.place() != Place::Nowhere;
            if !self.slots.get(entry as usize).is_some_and(is_there) || is_pinned(entry) {
                continue;
            }
            let (seen, hits) = (self.seen(entry, sketch), self.hits.get(entry));
            if least.is_none_or(|(_, other, others)| {
                self.favour.is_worth_more(other, seen) || !self.favour.is_worth_more(seen, other) && hits < others
            }) {
                least = Some((entry, seen, hits));
            }
            drawn += 1;
            if drawn == DRAWN {
                break;
            }
        }
        least.map(|(entry, ..)| entry)
    }

    /// The next random number: of a linear congruential generator (Numerical Recipes), whose high bits are the better ones.
    const fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random
    }

    /// How often an entry's key was seen lately, and, where that is the same, how often the entry was hit.
    pub fn worth(&self, entry: u32, sketch: &Sketch) -> (u64, u8) {
        (sketch.frequency(self.slots[entry as usize].hash()), self.hits.get(entry))
    }

    /// Takes over the entries of `other`, under their numbers, and how it is run; `self` is empty and has as many slots or
    /// more.
    pub fn grow_from(&mut self, other: &Queues) {
        for number in 0..other.numbers {
            self.slots[number as usize].copy(&other.slots[number as usize]);
            self.hits.set(number, other.hits.get(number));
        }
        (self.small, self.main, self.numbers) = (other.small.clone(), other.main.clone(), other.numbers);
        self.take_over_rest(other);
    }

    /// Takes over the entries of `other`, in their order, under the numbers from 0 on, and how it is run; `self` is
    /// empty. `renumbered` is told each entry's number there and here.
    ///
    /// # Panics
    /// If there are too few slots here.
    pub fn take_over(&mut self, other: &Queues, mut renumbered: impl FnMut(u32, u32)) {
        let slots = self.slots;
        for (from, to) in [(&other.small, &mut self.small), (&other.main, &mut self.main)] {
            for old in from.iter(other.slots) {
                let (was, is) = (&other.slots[old as usize], &slots[self.numbers as usize]);
                is.begin(was.hash(), was.weight());
                self.hits.set(self.numbers, other.hits.get(old));
                to.push(slots, self.numbers);
                renumbered(old, self.numbers);
                self.numbers += 1;
            }
        }
        self.take_over_rest(other);
    }

    fn take_over_rest(&mut self, other: &Queues) {
        self.ghost.take_over(&other.ghost);
        (self.setting, self.target, self.is_shrinking) = (other.setting, other.target, other.is_shrinking);
        (self.favour, self.random) = (other.favour, other.random);
    }

    /// All entries: the small queue's, then the main one's, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.small.iter(self.slots).chain(self.main.iter(self.slots))
    }

    /// The entries' hits.
    pub const fn hits(&self) -> Hits<'a> {
        self.hits
    }

    /// The entries' slots.
    pub const fn slots(&self) -> &'a [Slot] {
        self.slots
    }
}

#[cfg(test)]
mod tests;
