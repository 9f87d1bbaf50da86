//! The small and the main queue of a cache or of a shadow, and the search for a victim.

use super::fifo::Fifo;
use super::ghost::Ghost;
use super::setting::{Promotion, Setting};
use super::sketch::Sketch;
use super::slot::{MOST_HITS, Place, Slot};

/// Entries drawn for each victim while the target falls: as many as Redis draws for its approximated LRU and LFU.
const DRAWN: u32 = 5;
/// Draws until then at most: numbers not in use and pinned entries do not count.
const MOST_DRAWS: u32 = 4 * DRAWN;

/// The entries of a cache, in their order of eviction.
#[derive(Debug)]
pub struct Queues<'a> {
    slots: &'a [Slot],
    small: Fifo,
    main: Fifo,
    ghost: Ghost<'a>,
    setting: Setting,
    target: usize,
    /// The target fell below the weight, and was not reached since.
    is_shrinking: bool,
    /// One more than the highest entry number used so far.
    numbers: u32,
    /// State of the draws of entries.
    random: u32,
}

impl<'a> Queues<'a> {
    /// Empty queues of entries in `slots`, with a target of 0 bytes.
    pub fn new(slots: &'a [Slot], ghost: &'a mut [u64]) -> Self {
        let (small, main) = (Fifo::new(Place::Small), Fifo::new(Place::Main));
        Self {
            slots,
            small,
            main,
            ghost: Ghost::new(ghost),
            setting: Setting::BALANCED,
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

    /// How the queues are run.
    pub const fn setting(&self) -> Setting {
        self.setting
    }

    /// Adds `entry`, which is in no queue. The caller evicts afterwards.
    pub fn insert(&mut self, entry: u32, hash: u32, weight: usize) {
        self.is_shrinking &= self.weight() > self.target;
        self.ghost.fit(self.len() + 1);
        self.slots[entry as usize].begin(hash, weight);
        self.numbers = self.numbers.max(entry + 1);
        let was_evicted_lately = self.ghost.take(hash, self.len());
        let queue = if was_evicted_lately && self.setting.ghost { &mut self.main } else { &mut self.small };
        queue.push(self.slots, entry);
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
    /// `incoming` bytes are about to be inserted: they count as if they were in the small queue already. (Otherwise the small
    /// queue is never above its part when room is made before an insertion: the victims are main entries, each of which
    /// leaves room there for the next small one, without a test.)
    ///
    /// While the main queue has room, entries leave the small queue for it without a test: a cache that was not full, or
    /// in which the small queue was large, has no reason yet to refuse one.
    pub fn evict(&mut self, sketch: &Sketch, incoming: usize, mut is_pinned: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.is_shrinking
            && let Some(entry) = self.rarest_drawn(sketch, &mut is_pinned)
        {
            let is_small = self.slots[entry as usize].place() == Place::Small;
            self.remove(entry);
            if is_small {
                self.ghost.add(self.slots[entry as usize].hash());
            }
            return Some(entry);
        }
        let small_target = self.setting.small(self.target);
        loop {
            let small = self.small.weight().saturating_add(incoming);
            let is_small_due = small > small_target || self.main.is_empty();
            if is_small_due && let Some(entry) = self.small.oldest_likely_unpinned(self.slots, &mut is_pinned) {
                let weight = self.main.weight().saturating_add(self.slots[entry as usize].weight());
                if weight <= self.target - small_target {
                    self.promote(entry, self.slots[entry as usize].hits());
                    continue;
                }
                if self.is_to_stay(entry, sketch, &mut is_pinned) {
                    self.promote(entry, 0);
                    continue;
                }
                return Some(self.take_small(entry));
            }
            if let Some(entry) = self.main_victim(&mut is_pinned) {
                self.main.remove(self.slots, entry);
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
        self.slots[entry as usize].set_hits(hits);
        self.main.push(self.slots, entry);
    }

    /// True if a small entry is to move to the main queue, which is full.
    fn is_to_stay(&mut self, entry: u32, sketch: &Sketch, is_pinned: &mut impl FnMut(u32) -> bool) -> bool {
        let slot = &self.slots[entry as usize];
        match self.setting.promotion {
            Promotion::HitTwice => slot.hits() >= 2,
            Promotion::All => true,
            Promotion::SeenMore => {
                let Some(victim) = self.main_victim(is_pinned) else { return false };
                sketch.frequency(slot.hash()) > sketch.frequency(self.slots[victim as usize].hash())
            }
        }
    }

    /// The oldest main entry that is neither pinned nor was hit lately; those hit lately go round again, one hit less.
    fn main_victim(&mut self, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        // Hits go on meanwhile: after as many rounds as an entry can have hits, hits count no more.
        let mut rounds_left = self.main.len() * (MOST_HITS as usize + 1);
        loop {
            let entry = self.main.oldest_likely_unpinned(self.slots, is_pinned)?;
            let slot = &self.slots[entry as usize];
            let hits = slot.hits();
            if hits == 0 || rounds_left == 0 {
                return Some(entry);
            }
            rounds_left -= 1;
            slot.set_hits(if self.setting.once { 0 } else { hits - 1 });
            self.main.remove(self.slots, entry);
            self.main.push(self.slots, entry);
        }
    }

    /// Draws some entries at random and returns the one with the key seen least, for a target that fell.
    ///
    /// While the target falls, entries go that normal churn would have left for long, and most of them were hit as often
    /// as two bits can say. Their order in the queues tells little about them then; the sketch does.
    fn rarest_drawn(&mut self, sketch: &Sketch, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let (mut rarest, mut drawn) = (None, 0);
        for _ in 0..MOST_DRAWS {
            // A linear congruential generator (Numerical Recipes); its high bits choose.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let entry = ((u64::from(self.random) * u64::from(self.numbers)) >> 32) as u32;
            let Some(slot) = self.slots.get(entry as usize).filter(|slot| slot.place() != Place::Nowhere) else {
                continue;
            };
            if is_pinned(entry) {
                continue;
            }
            let seen = (sketch.frequency(slot.hash()), slot.hits());
            if rarest.is_none_or(|(_, least)| seen < least) {
                rarest = Some((entry, seen));
            }
            drawn += 1;
            if drawn == DRAWN {
                break;
            }
        }
        rarest.map(|(entry, _)| entry)
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
                is.set_hits(was.hits());
                to.push(slots, self.numbers);
                renumbered(old, self.numbers);
                self.numbers += 1;
            }
        }
        self.ghost.take_over(&other.ghost);
        (self.setting, self.target, self.is_shrinking) = (other.setting, other.target, other.is_shrinking);
        self.random = other.random;
    }

    /// All entries: the small queue's, then the main one's, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.small.iter(self.slots).chain(self.main.iter(self.slots))
    }

    /// The entries' slots.
    pub const fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// Words of the ghosts' storage in use.
    pub const fn ghost_used(&self) -> usize {
        self.ghost.used()
    }
}
