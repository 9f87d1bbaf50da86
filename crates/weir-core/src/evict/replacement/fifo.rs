//! A first-in first-out queue of entries, linked both ways by entry number, so that any entry can leave at any time.
//!
//! The search for a victim begins at the oldest entry and skips pinned ones, which stay where they are. Many pinned
//! entries at the front are not to be looked at again for every victim. So the search goes on from a *hand*. The hand
//! returns to the front as soon as as many entries were taken as were skipped: at most two looks per entry taken. A
//! search that finds all entries pinned spares the next ones, one for every `LOOKS_PER_SEARCH` looks that it took.

use super::slot::{NONE, Place, Slot};

/// Looks per search, in the mean, where all entries are pinned.
const LOOKS_PER_SEARCH: usize = 4;

/// A queue of entries of one `[Slot]`.
#[derive(Clone, Debug)]
pub struct Fifo {
    place: Place,
    oldest: u32,
    newest: u32,
    /// Where the search goes on; `NONE`: at the oldest entry.
    hand: u32,
    /// Pinned entries skipped since the hand left the front.
    skipped: usize,
    /// Entries that left the queue since then.
    taken: usize,
    /// Searches to be spared after one that found all entries pinned.
    spared: usize,
    len: usize,
    weight: usize,
}

impl Fifo {
    /// An empty queue, which marks its entries with `place`.
    pub const fn new(place: Place) -> Self {
        Self { place, oldest: NONE, newest: NONE, hand: NONE, skipped: 0, taken: 0, spared: 0, len: 0, weight: 0 }
    }

    /// The entry that came first, pinned or not.
    pub(crate) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|&entry| entry != NONE)
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of the entries' weights, bytes.
    pub const fn weight(&self) -> usize {
        self.weight
    }

    /// Appends `entry`, which is in no queue.
    pub fn push(&mut self, slots: &[Slot], entry: u32) {
        let slot = &slots[entry as usize];
        debug_assert_eq!(slot.place(), Place::Nowhere);
        slot.set_place(self.place);
        slot.set_previous(self.newest);
        slot.set_next(NONE);
        match self.newest {
            NONE => self.oldest = entry,
            newest => slots[newest as usize].set_next(entry),
        }
        self.newest = entry;
        self.len += 1;
        self.weight += slot.weight();
    }

    /// Takes `entry` out, wherever it stands.
    pub fn remove(&mut self, slots: &[Slot], entry: u32) {
        let slot = &slots[entry as usize];
        debug_assert_eq!(slot.place(), self.place);
        let (previous, next) = (slot.previous(), slot.next());
        match previous {
            NONE => self.oldest = next,
            previous => slots[previous as usize].set_next(next),
        }
        match next {
            NONE => self.newest = previous,
            next => slots[next as usize].set_previous(previous),
        }
        slot.set_place(Place::Nowhere);
        self.len -= 1;
        self.weight -= slot.weight();
        self.taken += 1;
        if self.hand == entry {
            self.hand = next;
        }
        if self.hand == NONE || self.taken >= self.skipped {
            (self.hand, self.skipped, self.taken) = (NONE, 0, 0);
        }
    }

    /// Gives `entry` another weight.
    pub fn set_weight(&mut self, slots: &[Slot], entry: u32, weight: usize) {
        let slot = &slots[entry as usize];
        self.weight -= slot.weight();
        slot.set_weight(weight);
        self.weight += slot.weight();
    }

    /// [`Self::oldest_unpinned`], but `None` also where all entries were pinned a short while ago.
    pub(crate) fn oldest_likely_unpinned(
        &mut self,
        slots: &[Slot],
        is_pinned: &mut impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        self.oldest_unpinned(slots, is_pinned)
    }

    /// The oldest entry from the hand on that is not pinned, then from the front up to the hand; `None`: all are pinned.
    pub(crate) fn oldest_unpinned(&mut self, slots: &[Slot], is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let start = if self.hand == NONE { self.oldest } else { self.hand };
        for (from, until) in [(start, NONE), (self.oldest, start)] {
            let mut at = from;
            while at != until {
                if !is_pinned(at) {
                    self.spared = 0;
                    self.hand = if self.skipped == 0 { NONE } else { at };
                    return Some(at);
                }
                self.skipped += 1;
                at = slots[at as usize].next();
            }
            // From the front again.
            (self.skipped, self.taken) = (0, 0);
        }
        self.hand = NONE;
        self.spared = self.len / LOOKS_PER_SEARCH;
        None
    }

    /// The entries, oldest first.
    pub fn iter<'a>(&self, slots: &'a [Slot]) -> impl Iterator<Item = u32> + use<'a> {
        core::iter::successors(self.oldest(), |&entry| Some(slots[entry as usize].next()).filter(|&next| next != NONE))
    }
}
