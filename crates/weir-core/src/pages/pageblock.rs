//! The buddy inside one pageblock: which of its 512 pages are free, and which are backed by memory.
//!
//! The free areas are derived, not stored. A block of order k is free when its 2^k aligned bits are set. So splitting a
//! block is clearing bits, and merging is setting them. An allocation takes the first pages of an aligned block and
//! leaves the block's tail free. So a run of any length costs just its pages.

use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicU16,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::base::backing::Backing;
use crate::base::units::{BlockNo, Order, Pages};
use crate::pages::page_set::PageSet;
use crate::policy::refault::Recent;

/// Used pages up to which a huge page is sparse: a quarter of it (measured: E8 with huge pages `always`).
pub(crate) const SPARSE: Pages = Pages(Pages::BLOCK.0 / 4);

/// Result of the looks for huge pages in little use (`huge_pages::sparse`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// Nothing: it is in good use, or a page of it was handed out or came back since.
    #[default]
    None = 0,
    /// The last look found its huge page in little use.
    Seen = 1,
    /// So did the one before, and no page was handed out or came back between them.
    Due = 2,
    /// The pageblock's huge page is split as far as the page table goes; the platform is to be told ([`crate::platform::Memory::cool`]).
    Torn = 3,
}

/// Whether memory of a pageblock asks for huge pages because the heap grew dense ([`crate::policy::huge_page_advice`]). Its pages
/// count as single ones all the same: what is free of them goes back as ever, and the huge page is split by that. Then what was
/// never handed out goes as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// It does not ask.
    #[default]
    None = 0,
    /// It asks.
    Asks = 1,
    /// It asks and was touched since no memory was behind it: a huge page may be there, whole.
    Whole = 2,
    /// It does not ask, and a huge page was put behind it ([`crate::huge_pages`]), or may be there from before the program
    /// switched them off.
    Collapsed = 3,
}

impl Advice {
    /// Whether a huge page that does not count as one may be there.
    pub(crate) fn may_be_huge(self) -> bool {
        matches!(self, Self::Whole | Self::Collapsed)
    }
}

/// Outcome of a look for a pageblock that is full and still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    /// It is not, or was asked for already.
    Not,
    /// It may be after further looks.
    Yet,
    /// A huge page is due behind it.
    Due,
}

/// Looks one after another in which a pageblock must not have given or got a page before a huge page is put behind it.
const STILL: u8 = 3;

/// A pageblock's place on a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Next pageblock of the list.
    pub next: BlockNo,
    /// The one before it.
    pub prev: BlockNo,
    /// The list, plus one; 0: none.
    pub list: u8,
}

/// A pageblock in its window's array: what the lock of its zone guards, and the node of that zone.
///
/// The node lies beside the state, not in it. Threads of other nodes read it without the lock, to see whether a
/// neighbour belongs to their own node. A reference to the state, which its zone's lock permits, thus never covers a
/// byte that others read.
#[repr(C, align(64))]
pub struct Pageblock {
    state: State,
    node: AtomicU16,
    /// The pageblock was unmapped, and may be mapped again. Under the window's growth lock.
    is_unmapped: AtomicBool,
}

const _: () = assert!(size_of::<Pageblock>() == 192);

impl Pageblock {
    /// A pageblock of node `node`.
    pub(crate) const fn new(node: u16, state: State) -> Self {
        Self { state, node: AtomicU16::new(node), is_unmapped: AtomicBool::new(false) }
    }

    /// Makes the pageblock at `at`, in memory that is all zero, a fresh one of node `node`. Threads may read its node
    /// meanwhile, by wrong pointers: they see 0 or `node`.
    ///
    /// # Safety
    /// `at` points to an element of a window's array; the caller has the turn to grow, and the pageblock is in no zone.
    pub(super) unsafe fn init(at: *mut Self, node: u16, advice: Advice) {
        // SAFETY: the element is mapped. No zone has it, so no thread but the caller has a reference to its state; its node
        // is reached as an atomic by all.
        unsafe {
            (&raw mut (*at).state).write(State { advice, ..State::fresh() });
            (*at).node.store(node, Release);
        }
    }

    /// The node of the pageblock at `at`. Acquire: a thread that reads a node's number can reach that node in
    /// [`super::node::Nodes`].
    ///
    /// # Safety
    /// `at` points to an element of a window's array that is mapped for good.
    #[inline]
    pub(super) unsafe fn node(at: *const Self) -> u16 {
        // SAFETY: mapped; only the atomic is borrowed, not the state beside it.
        unsafe { (*at).node.load(Acquire) }
    }

    /// Whether the pageblock at `at` was unmapped.
    ///
    /// # Safety
    /// As for [`Pageblock::node`].
    pub(super) unsafe fn is_unmapped(at: *const Self) -> bool {
        // SAFETY: mapped; only the atomic is borrowed.
        unsafe { (*at).is_unmapped.load(Relaxed) }
    }

    /// Notes that it was, or no longer is.
    ///
    /// # Safety
    /// As for [`Pageblock::node`].
    pub(super) unsafe fn set_unmapped(at: *const Self, is_unmapped: bool) {
        // SAFETY: mapped; only the atomic is borrowed.
        unsafe { (*at).is_unmapped.store(is_unmapped, Relaxed) }
    }

    /// Where the state of the pageblock at `at` is. Not dereferenced here: that takes the lock of its zone.
    #[inline]
    pub(super) const fn state(at: *mut Self) -> *mut State {
        const { assert!(core::mem::offset_of!(Self, state) == 0) };
        at.cast()
    }
}

/// State of one pageblock, under the lock of its zone. All zero: nothing free, nothing backed, on no list.
#[repr(C)]
pub struct State {
    /// Free pages.
    pub free: PageSet,
    /// Pages handed out since they were fresh or reported. A free page that is not among them reads as zero, unless
    /// the pageblock is `dirty`.
    pub backed: PageSet,
    /// Places on the zone's lists, by what is free and by what is idle.
    pub links: [Link; 2],
    /// One huge page is behind it.
    pub huge: bool,
    /// The hint list it is on (a [`Backing`]), plus one; 0: none.
    pub hint: u8,
    /// Next and previous pageblock on the hint list.
    pub hint_next: BlockNo,
    /// See `hint_next`.
    pub hint_prev: BlockNo,
    /// Pages that were reported lately.
    pub recent: Recent,
    /// Reported pages may hold anything, so that no free page is known to be zero.
    pub dirty: bool,
    /// Pages of it were released lazily: the system below may not have taken them yet.
    pub lazy: bool,
    /// The system below refused to take pages of it back; tried again after they were handed out, or under pressure.
    pub refused: bool,
    /// Out of use, or not yet in use: its free pages are on no list.
    pub offline: bool,
    /// Result of the looks for huge pages in little use.
    pub look: Look,
    /// No memory is behind the whole pages of what describes it (or none goes back): not since it was handed out last.
    pub bare: bool,
    /// The first pages taken of it since it was last whole were a slab's.
    pub slabs: bool,
    /// Whether it asks for a huge page, and may have one that `huge` does not count.
    pub advice: Advice,
    /// Looks since it last gave or got a page, or a part of its memory went back: at most one more than [`STILL`].
    pub still: u8,
}

impl State {
    /// All pages are free and none is backed; out of use until [`super::zone::FreeAreas::add`]. Before that a neighbour's run
    /// must not grow into it: its pages would be taken before they were counted.
    pub(crate) const fn fresh() -> Self {
        Self {
            free: PageSet::FULL,
            backed: PageSet::EMPTY,
            links: [Link { next: BlockNo::NONE, prev: BlockNo::NONE, list: 0 }; 2],
            huge: false,
            hint: 0,
            hint_next: BlockNo::NONE,
            hint_prev: BlockNo::NONE,
            recent: Recent::NONE,
            dirty: false,
            lazy: false,
            refused: false,
            offline: true,
            look: Look::None,
            bare: true,
            slabs: false,
            advice: Advice::None,
            still: 0,
        }
    }

    /// Cost of a report of the free pages.
    pub(crate) fn backing(&self) -> Backing {
        if !self.huge {
            Backing::Small
        } else if Pages::BLOCK - self.free.len() <= SPARSE {
            Backing::SparseHuge
        } else {
            Backing::Huge
        }
    }

    /// Free pages that memory is behind and that can be handed out: where a huge page is, all of them, touched or not.
    pub fn idle(&self) -> PageSet {
        if self.offline {
            PageSet::EMPTY
        } else if self.huge {
            self.free
        } else {
            self.free.and(&self.backed)
        }
    }

    /// How many of the free pages `range` are idle.
    pub(crate) fn idle_in(&self, range: Range<usize>) -> Pages {
        if self.offline {
            Pages::ZERO
        } else if self.huge {
            Pages(range.len())
        } else {
            self.backed_in(range)
        }
    }

    /// How many of the pages `range` are backed. All are, mostly; that is quick to see.
    fn backed_in(&self, range: Range<usize>) -> Pages {
        if self.backed.has_range(range.clone()) { Pages(range.len()) } else { self.backed.count_range(range) }
    }

    /// Whether a report of its idle pages would release some.
    pub(crate) fn has_releasable(&self, granule: Order) -> bool {
        !self.idle().whole(granule).is_empty()
    }

    /// How many of the pages `range` become resident when they are touched.
    pub(crate) fn fresh_in(&self, range: Range<usize>) -> Pages {
        if self.huge { Pages::ZERO } else { Pages(range.len()) - self.backed_in(range) }
    }

    /// Memory came behind all of the pages `range`; returns how many free ones are idle by that.
    pub(crate) fn back(&mut self, range: Range<usize>) -> Pages {
        let before = self.idle().len();
        self.backed.insert(range);
        self.idle().len() - before
    }

    /// A huge page was behind all of it, and so behind free pages that were never handed out; returns how many more are idle by
    /// that.
    pub(crate) fn back_free(&mut self) -> Pages {
        let before = self.idle().len();
        self.backed = self.backed.or(&self.free);
        self.idle().len() - before
    }

    /// Whether any of its pages is in use. One of which none was ever handed out may be a hole in the window: memory
    /// that is not the heap's.
    pub(crate) fn is_in_use(&self) -> bool {
        self.free.len() < Pages::BLOCK && !self.backed.is_empty()
    }

    /// Its memory went back, or a part of it: no whole huge page is behind it now, if one was.
    pub(crate) fn has_lost_huge(&mut self) {
        self.still = 0;
        self.advice = match self.advice {
            Advice::Whole => Advice::Asks,
            Advice::Collapsed => Advice::None,
            advice => advice,
        };
    }

    /// A page of it is handed out, or comes back: what the last look made of it no longer holds.
    pub(crate) fn forget_look(&mut self) {
        self.still = 0;
        if self.look != Look::Torn {
            self.look = Look::None;
        }
    }

    /// One look more. A huge page is due at most once for each time that the pageblock comes to be still, unless the system had
    /// none.
    pub(crate) fn grows_still(&mut self) -> Still {
        let is_full = self.free.is_empty() && self.is_in_use() && !self.offline;
        if !is_full || self.huge || self.advice.may_be_huge() || self.still > STILL {
            return Still::Not;
        }
        self.still += 1;
        if self.still > STILL { Still::Due } else { Still::Yet }
    }

    /// The system had no huge page for it.
    pub(crate) fn stays_due(&mut self) {
        self.still = self.still.min(STILL);
    }

    /// A huge page was put behind it. Returns whether it is there for sure: where the pageblock changed meanwhile a report may
    /// have split it.
    pub(crate) fn is_collapsed(&mut self) -> bool {
        if self.still <= STILL {
            self.look = Look::Torn;
            return false;
        }
        self.advice = if self.advice == Advice::Asks { Advice::Whole } else { Advice::Collapsed };
        true
    }

    /// Takes the free pages `range`; returns how many of them were backed. All count as backed from now on.
    pub(crate) fn take_at(&mut self, range: Range<usize>) -> Pages {
        let backed = self.backed_in(range.clone());
        self.free.remove(range.clone());
        if backed < Pages(range.len()) {
            self.backed.insert(range);
        }
        backed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_taken_backed_first_and_its_tail_stays_free() {
        let mut block = State { offline: false, ..State::fresh() };
        block.backed.insert(64..72);
        let find = |block: &State, order| block.idle().find_block(order).or_else(|| block.free.find_block(order));
        let take = |block: &mut State, pages, order| find(block, order).map(|at| (at, block.take_at(at..at + pages).0));
        assert_eq!(take(&mut block, 5, 3), Some((64, 5)));
        assert_eq!(block.free.count_range(64..72), Pages(3));
        assert_eq!(take(&mut block, 1, 0), Some((69, 1)));
        assert_eq!(take(&mut block, 256, 8), Some((256, 0)));
        assert_eq!(take(&mut block, 256, 8), None);
    }
}
