//! A zone: pageblocks of one node, on lists by how full they are and by the largest block they can still give.
//!
//! An allocation goes to the fullest pageblock that has room for it, so that sparse pageblocks empty and can be
//! reported whole. But it goes to memory that is resident before any that is not (`place`). A pageblock with free
//! backed pages is on the *hint list*, the longest unchanged first. That is page hinting's bitmap, kept as a list so
//! that finding the next one to report costs the same whatever the heap's size.

mod audit;
mod lists;
pub mod locked;
pub(in crate::pages) mod out_of_use;
mod pageblocks;
mod place;
mod relink;
pub(in crate::pages) mod sparse;

use core::ops::Range;

use crate::base::units::{BlockNo, Order, PageNo, Pages, Span};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::{Advice, Look};
use crate::pages::request::Short;
use crate::pages::window::Window;
use crate::platform::Contents;
use crate::policy::refault::Refault;
use crate::policy::working_set::Peak;

pub use crate::pages::request::Purpose;
use crate::policy::growing_buffer::Growth;
use lists::{HINT_REFUSED, Lists};
use pageblocks::Pageblocks;

/// Shortest run (128 KiB), the hole of which is remembered: shorter ones go to the fullest pageblock each time.
const HOLE_PAGES: Pages = Pages(Pages::BLOCK.0 / 16);
/// Lengths, modulo this, of which a hole is remembered: so many sizes in turn find their own.
const HOLES: usize = 16;
/// Idle pages that are no surplus: this part of the peak.
const SURPLUS_PART: usize = 32;

/// Pages handed out by a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// First page.
    pub page: PageNo,
    /// All its pages read as zero: none was backed.
    pub zero: bool,
    /// Pages of the run that were reported lately.
    pub again: Refault,
    /// Pages that have no memory behind them, nor had lately: they become resident beside [`PageRun::again`].
    pub fresh: Pages,
    /// It has the first page handed out of a pageblock that asks for a huge page.
    pub asks: bool,
}

/// How a report went.
#[derive(Clone, Copy, Debug)]
pub struct ReportOutcome {
    /// Contents of the pages now.
    pub contents: Contents,
    /// When, as a [`crate::policy::refault::stamp`].
    pub at: u32,
    /// For how many stamps it counts as lately.
    pub horizon: u32,
    /// A calm window reported them.
    pub calm: bool,
    /// The system below takes them once it is short itself, and not before.
    pub lazily: bool,
}

/// Pages of a zone that are in closed pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// All of them.
    pub(crate) pages: Pages,
    /// Those handed out before their pageblock was closed, and not given back yet.
    pub(crate) used: Pages,
}

/// The lists and counts of a zone.
pub struct FreeAreas {
    /// Pageblocks by what is free of them, and by what is idle.
    lists: [Lists; 2],
    /// Head and tail of the hint lists, one for each [`Backing`](crate::base::backing::Backing) and one for what
    /// was refused.
    hints: [[BlockNo; 2]; 4],
    /// Pageblocks of the zone, which lie in the window's array.
    blocks: Pageblocks,
    /// Pages mapped into the zone.
    pub pages: Pages,
    /// The end of the row of pageblocks that it got last.
    pub(in crate::pages) end: BlockNo,
    /// Pages handed out (a batch that is being reported counts as free).
    pub used: Pages,
    /// Free pages that are backed.
    pub idle: Pages,
    /// Pages that were idle of pageblocks on their way out of the zone: resident until these are unmapped.
    leaving: Pages,
    /// Pages of closed pageblocks, and those of them that are handed out.
    closed: Closed,
    /// Peak of `used` over the last windows: what the working set may want again.
    pub peak: Peak<Pages>,
    /// Some of its pageblocks may be [`Look::Torn`].
    torn: bool,
    /// Some of its pageblocks may be [`lazy`](crate::pages::pageblock::State::lazy).
    lazy: bool,
    /// A page was handed out as [`PageRun::asks`] says.
    asks: bool,
    /// Runs of at least [`HOLE_PAGES`] freed last, by length.
    holes: [Span; HOLES],
    /// Whether runs are freed as copies that a growing buffer leaves.
    pub(crate) growth: Growth,
}

impl FreeAreas {
    /// An empty zone of node `node`.
    pub const fn new(node: u16) -> Self {
        Self {
            lists: [const { Lists::new() }; 2],
            hints: [[BlockNo::NONE; 2]; 4],
            blocks: Pageblocks::new(node),
            pages: Pages::ZERO,
            end: BlockNo(0),
            used: Pages::ZERO,
            idle: Pages::ZERO,
            leaving: Pages::ZERO,
            closed: Closed { pages: Pages::ZERO, used: Pages::ZERO },
            peak: Peak::new(Pages::ZERO),
            torn: false,
            lazy: false,
            asks: false,
            holes: [Span::new(PageNo(0), Pages::ZERO); HOLES],
            growth: Growth::new(),
        }
    }

    /// Takes `pages` pages (at most those of order 10) for `purpose` from free areas, aligned to `align`. At most
    /// `most_fresh` pages may become resident by it. [`Short`]: grow first.
    pub fn take(
        &mut self,
        window: &Window,
        pages: Pages,
        align: Order,
        purpose: Purpose,
        huge_on_touch: bool,
        most_fresh: Pages,
    ) -> Result<PageRun, Short> {
        let page = self.place(window, pages, align, purpose).ok_or(Short)?;
        let run = Span::new(page, pages);
        if self.exceeds(window, run, huge_on_touch, most_fresh) {
            return Err(Short);
        }
        let (zero, again, fresh) = self.take_run(window, run, purpose, huge_on_touch);
        Ok(PageRun { page, zero, again, fresh, asks: core::mem::take(&mut self.asks) })
    }

    /// Takes the free pages `run`; returns whether all are zero, which were reported lately, and how many others become
    /// resident.
    fn take_run(
        &mut self,
        window: &Window,
        run: Span,
        purpose: Purpose,
        huge_on_touch: bool,
    ) -> (bool, Refault, Pages) {
        let (mut zero, mut again) = (true, Refault::default());
        let resident = self.used + self.idle;
        for (block, pages) in run.pieces() {
            let pageblock = self.blocks.at_mut(window, block);
            let n = Pages(pages.len());
            let mut touched = n;
            if pageblock.backed.is_empty() {
                self.idle -= pageblock.idle().len();
                pageblock.huge = huge_on_touch;
                if pageblock.advice == Advice::Asks {
                    pageblock.advice = Advice::Whole;
                    self.asks = true;
                }
                self.idle += pageblock.idle().len();
                // A huge page comes whole.
                touched = if huge_on_touch { Pages::BLOCK } else { n };
            }
            if pageblock.free.is_full() {
                pageblock.slabs = purpose == Purpose::Slab;
            }
            let (granule, around) = (window.granule(), window.granule().around(&pages));
            let backed = pageblock.take_at(pages);
            self.idle -= if pageblock.huge { n } else { backed };
            if granule > Order::PAGE {
                // What shares a page of the system below with them gets memory as well.
                self.idle += pageblock.back(around);
            }
            zero &= backed.is_zero() && !pageblock.dirty;
            again = again.and(pageblock.recent.taken(touched - backed));
            (pageblock.refused, pageblock.bare) = (false, false);
            pageblock.forget_look();
            self.relink(window, block);
        }
        self.used += run.len;
        self.peak.note(self.used);
        let fresh = (self.used + self.idle).saturating_sub(resident);
        if purpose == Purpose::Run {
            self.growth.take(run.len, fresh);
        }
        (zero, again, fresh.saturating_sub(Pages(again.pages as usize)))
    }

    /// Whether more than `most_fresh` pages become resident when the free pages `run` are taken.
    fn exceeds(&self, window: &Window, run: Span, huge_on_touch: bool, most_fresh: Pages) -> bool {
        most_fresh < Pages::MAX && self.fresh_of(window, run, huge_on_touch) > most_fresh
    }

    /// Pages that become resident when the free pages `run` are taken.
    fn fresh_of(&self, window: &Window, run: Span, huge_on_touch: bool) -> Pages {
        let of = |(block, pages): (BlockNo, Range<usize>)| {
            let pageblock = self.blocks.at(window, block);
            let is_bare = pageblock.backed.is_empty() && !pageblock.huge;
            let around = window.granule().around(&pages);
            if is_bare && huge_on_touch { Pages::BLOCK } else { pageblock.fresh_in(around) }
        };
        run.pieces().map(of).sum()
    }

    /// Idle pages that the zone's own peak does not explain: with them more is resident than was ever in use at a time.
    /// A small part of the peak is allowed for, and the rest of two huge pages if memory comes in such.
    pub(crate) fn surplus(&self, huge_on_touch: bool) -> Pages {
        let (peak, rest) = (self.peak.high(), if huge_on_touch { Pages::BLOCK * 2 } else { Pages::ZERO });
        self.idle.saturating_sub(peak - self.used + peak / SURPLUS_PART + rest)
    }

    /// Pages beyond those in use that the zone's peak wants again.
    pub(crate) fn wanted_again(&self) -> Pages {
        self.peak.wanted() - self.used
    }

    /// Takes the pages `run` back. Those in `unbacked` (bit i: page i of them) are known to be reported.
    pub fn give(&mut self, window: &Window, run: Span, unbacked: u32) {
        self.used -= run.len;
        if run.len >= HOLE_PAGES {
            self.holes[run.len.0 % HOLES] = run;
        }
        for (block, pages) in run.pieces() {
            let pageblock = self.blocks.at_mut(window, block);
            pageblock.free.insert(pages.clone());
            pageblock.forget_look();
            if pageblock.offline {
                self.closed.used -= Pages(pages.len());
            }
            for (i, page) in pages.clone().enumerate().take(32) {
                if unbacked >> i & 1 == 1 {
                    pageblock.backed.remove(page..page + 1);
                }
            }
            self.idle += pageblock.idle_in(pages);
            self.relink(window, block);
        }
    }

    /// Says that no memory came behind the `which` of the pageblocks (bit i: the i-th) of a run that was taken and given back. One
    /// that has pages in use has memory by now.
    pub(crate) fn stays_bare(&mut self, window: &Window, run: Span, which: u32) {
        for (i, (block, _)) in run.pieces().enumerate() {
            let pageblock = self.blocks.at_mut(window, block);
            if which >> i & 1 == 1 && pageblock.free.is_full() {
                self.idle -= pageblock.idle().len();
                (pageblock.backed, pageblock.huge) = (PageSet::EMPTY, false);
                self.relink(window, block);
            }
        }
    }

    /// Adds the fresh pageblocks `blocks`, which are in use from now on.
    pub fn add(&mut self, window: &Window, blocks: Range<BlockNo>) {
        self.end = blocks.end;
        // Backwards, so that the list hands out ascending addresses.
        for block in BlockNo::each(blocks).rev() {
            let pageblock = self.blocks.at_mut(window, block);
            pageblock.offline = false;
            // The window's first one may lack pages.
            self.pages += pageblock.free.len();
            self.relink(window, block);
        }
    }

    /// Takes the pages `more`, which follow a run, if they are free and the zone's, and at most `most_fresh` pages become
    /// resident by it. Returns which of them were reported lately, and the fresh pages as [`PageRun::fresh`] has them.
    pub fn extend(
        &mut self,
        window: &Window,
        more: Span,
        huge_on_touch: bool,
        most_fresh: Pages,
    ) -> Result<(Refault, Pages), Short> {
        if more.end() > window.top() {
            return Err(Short);
        }
        let is_free = more.pieces().all(|(block, pages)| {
            self.blocks.get(window, block).is_some_and(|pageblock| pageblock.free.has_range(pages))
        });
        if !is_free || self.exceeds(window, more, huge_on_touch, most_fresh) {
            return Err(Short);
        }
        let (_, again, fresh) = self.take_run(window, more, Purpose::Run, huge_on_touch);
        self.asks = false;
        Ok((again, fresh))
    }

    // ---- reporting ---------------------------------------------------------------------------------------------

    /// Isolates a pageblock's free backed pages for a report, as far as they can go: they are not free until
    /// [`FreeAreas::put_back`]. Where a huge page may be that does not count as one, all free pages are backed.
    pub fn isolate(&mut self, window: &Window, block: BlockNo) -> PageSet {
        let pageblock = self.blocks.at_mut(window, block);
        if pageblock.advice.may_be_huge() {
            self.idle += pageblock.back_free();
        }
        let idle = pageblock.idle().whole(window.granule());
        pageblock.free = pageblock.free.minus(&idle);
        self.relink(window, block);
        idle
    }

    /// Returns isolated `pages` to the free areas, of which those in `gone` went below. Returns whether a huge page was
    /// behind them.
    pub fn put_back(
        &mut self,
        window: &Window,
        block: BlockNo,
        pages: &PageSet,
        gone: &PageSet,
        how: ReportOutcome,
    ) -> bool {
        let pageblock = self.blocks.at_mut(window, block);
        let (huge, had_huge) = (pageblock.huge, pageblock.huge || pageblock.advice.may_be_huge());
        let kept = pages.minus(gone);
        pageblock.free = pageblock.free.or(pages);
        if !gone.is_empty() {
            if huge {
                // What stays of it is backed by small pages now, touched or not.
                pageblock.backed = pageblock.backed.or(&pageblock.free);
                pageblock.huge = false;
            }
            if had_huge {
                let whole = gone.len() == Pages::BLOCK;
                pageblock.look = if whole { Look::None } else { Look::Torn };
                self.torn |= !whole;
            }
            pageblock.has_lost_huge();
            pageblock.backed = pageblock.backed.minus(gone);
            pageblock.recent.reported(gone.len(), how.at, how.calm, how.horizon);
            self.idle -= gone.len();
            let (undefined, is_part) = (how.contents == Contents::Undefined, gone.len() < Pages::BLOCK);
            pageblock.dirty = undefined || pageblock.dirty && is_part;
            pageblock.lazy = how.lazily || pageblock.lazy && is_part;
            self.lazy |= how.lazily;
        }
        // Isolated pages are backed, whatever became of the pageblock's huge page meanwhile (a report of slabs in it may
        // have split it).
        pageblock.backed = pageblock.backed.or(&kept);
        pageblock.refused |= !kept.is_empty();
        self.relink(window, block);
        had_huge
    }

    /// Whether memory was released lazily since the last call.
    pub(crate) fn has_lazy(&mut self) -> bool {
        core::mem::take(&mut self.lazy)
    }

    /// Counts what was released lazily of `blocks` as idle again, for those who cannot wait until the system below takes it.
    pub(crate) fn recall(&mut self, window: &Window, blocks: Range<BlockNo>) {
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            if core::mem::take(&mut pageblock.lazy) {
                self.idle += pageblock.back_free();
                self.relink(window, block);
            }
        }
    }

    /// Gives up to `count` pageblocks whose release was refused another try.
    pub(crate) fn forgive(&mut self, window: &Window, count: usize) {
        for _ in 0..count {
            let block = self.hints[HINT_REFUSED][0];
            if block == BlockNo::NONE {
                break;
            }
            self.blocks.at_mut(window, block).refused = false;
            self.relink(window, block);
        }
    }

    /// Notes that pages in use by a slab were reported out of `block`. Its huge page, if there was one, is split, and
    /// what was free in it is backed by small pages now. Returns whether there was one.
    pub(crate) fn split(&mut self, window: &Window, block: BlockNo, contents: Contents) -> bool {
        let pageblock = self.blocks.at_mut(window, block);
        pageblock.dirty |= contents == Contents::Undefined;
        let had_huge = pageblock.huge || pageblock.advice.may_be_huge();
        pageblock.has_lost_huge();
        if !had_huge {
            return false;
        }
        self.idle += pageblock.back_free();
        pageblock.huge = false;
        pageblock.look = Look::Torn;
        self.torn = true;
        self.relink(window, block);
        true
    }
}
