//! A zone: pageblocks of one node, on lists by how full they are and by the largest block they can still give.
//!
//! An allocation goes to the fullest pageblock that has room for it, so that sparse pageblocks empty and can be reported
//! whole; but to memory that is resident before any that is not (`place`).
//! A pageblock with free backed pages is on the *hint list* (page hinting's bitmap, kept as a list so that finding the
//! next one to report costs the same whatever the heap's size), the longest unchanged first.

mod audit;
mod lists;
mod out_of_use;
mod pageblocks;
mod place;
mod relink;
mod sparse;

use crate::base::units::{NONE, Order, PAGEBLOCK_PAGES};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::Look;
use crate::pages::request::Short;
use crate::pages::window::Window;
use crate::platform::Contents;
use crate::platform::lock::Lock;
use crate::platform::rank;
use crate::policy::refault::Refault;
use crate::policy::working_set::Peak;

pub use crate::pages::request::Purpose;
use crate::policy::growing_buffer::Growth;
use lists::{HINT_REFUSED, Lists};
use pageblocks::Pageblocks;

/// Fresh pages handed out after which a zone says so: what releases elsewhere are made for at a time (2 MiB).
const FRESH_PAGES: usize = PAGEBLOCK_PAGES;
/// Shortest run, pages (128 KiB), the hole of which is remembered: shorter ones go to the fullest pageblock each time.
const HOLE_PAGES: usize = PAGEBLOCK_PAGES / 16;
/// Lengths, modulo this, of which a hole is remembered: so many sizes in turn find their own.
const HOLES: usize = 16;
/// Idle pages that are no surplus: this part of the peak.
const SURPLUS_PART: usize = 32;

/// Pages handed out by a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// First page.
    pub page: u32,
    /// All its pages read as zero: none was backed.
    pub zero: bool,
    /// Pages of the run that were reported lately.
    pub again: Refault,
    /// Pages with no memory behind them, nor lately, that the zone has handed out since it said so last; 0 as long as
    /// they are few.
    pub fresh: usize,
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
}

/// A zone behind its lock.
pub type Zone = Lock<FreeAreas, { rank::ZONE }>;

/// The lists and counts of a zone.
pub struct FreeAreas {
    /// Pageblocks by what is free of them, and by what is idle.
    lists: [Lists; 2],
    /// Head and tail of the hint lists, one for each [`Backing`] and one for what was refused.
    hints: [[u32; 2]; 4],
    /// Pageblocks of the zone, which lie in the window's array.
    blocks: Pageblocks,
    /// Pages mapped into the zone.
    pub pages: usize,
    /// Pages handed out (a batch that is being reported counts as free).
    pub used: usize,
    /// Free pages that are backed.
    pub idle: usize,
    /// Peak of `used` over the last windows: what the working set may want again.
    pub peak: Peak,
    /// Some of its pageblocks may be [`Look::Torn`].
    torn: bool,
    /// Pages that became resident lately: see [`PageRun::fresh`].
    fresh: usize,
    /// Runs of at least [`HOLE_PAGES`] freed last, by length: first page, and pages.
    holes: [(u32, u32); HOLES],
    /// Whether runs are freed as copies that a growing buffer leaves.
    pub(crate) growth: Growth,
}

impl FreeAreas {
    /// An empty zone of node `node`.
    pub const fn new(node: u16) -> Self {
        Self {
            lists: [const { Lists::new() }; 2],
            hints: [[NONE; 2]; 4],
            blocks: Pageblocks::new(node),
            pages: 0,
            used: 0,
            idle: 0,
            peak: Peak::new(),
            torn: false,
            fresh: 0,
            holes: [(0, 0); HOLES],
            growth: Growth::new(),
        }
    }

    /// Takes `pages` pages (at most those of order 10) for `purpose`, aligned to `align`, from free areas, if at most
    /// `most_fresh` pages become resident by it. [`Short`]: grow first.
    pub fn take(
        &mut self,
        window: &Window,
        pages: usize,
        align: Order,
        purpose: Purpose,
        huge_on_touch: bool,
        most_fresh: usize,
    ) -> Result<PageRun, Short> {
        let page = self.place(window, pages, align, purpose).ok_or(Short)?;
        if most_fresh < usize::MAX && self.fresh_of(window, page, pages, huge_on_touch) > most_fresh {
            return Err(Short);
        }
        let (zero, again) = self.take_run(window, page, pages, purpose, huge_on_touch);
        Ok(PageRun { page, zero, again, fresh: self.take_fresh() })
    }

    /// Takes `pages` free pages from `page`; returns whether all are zero, and which were reported lately.
    fn take_run(
        &mut self,
        window: &Window,
        page: u32,
        pages: usize,
        purpose: Purpose,
        huge_on_touch: bool,
    ) -> (bool, Refault) {
        let (mut zero, mut again) = (true, Refault::default());
        let resident = self.used + self.idle;
        for (block, first, n) in pieces(page, pages) {
            let pageblock = self.blocks.at_mut(window, block);
            let mut touched = n;
            if pageblock.backed.is_empty() {
                self.idle -= pageblock.idle().len();
                pageblock.huge = huge_on_touch;
                self.idle += pageblock.idle().len();
                // A huge page comes whole.
                touched = if huge_on_touch { PAGEBLOCK_PAGES } else { n };
            }
            if pageblock.free.is_full() {
                pageblock.slabs = purpose == Purpose::Slab;
            }
            let backed = pageblock.take_at(first, n);
            self.idle -= if pageblock.huge { n } else { backed };
            zero &= backed == 0 && !pageblock.dirty;
            again = again.and(pageblock.recent.taken(touched - backed));
            (pageblock.refused, pageblock.bare) = (false, false);
            pageblock.forget_look();
            self.relink(window, block);
        }
        self.used += pages;
        self.peak.note(self.used);
        let fresh = (self.used + self.idle).saturating_sub(resident);
        self.fresh += fresh.saturating_sub(again.pages as usize);
        if purpose == Purpose::Run {
            self.growth.take(pages, fresh);
        }
        (zero, again)
    }

    /// Pages that become resident when `pages` free pages from `page` are taken.
    fn fresh_of(&self, window: &Window, page: u32, pages: usize, huge_on_touch: bool) -> usize {
        let of = |(block, first, n)| {
            let pageblock = self.blocks.at(window, block);
            let is_bare = pageblock.backed.is_empty() && !pageblock.huge;
            if is_bare && huge_on_touch { PAGEBLOCK_PAGES } else { n - pageblock.idle_in(first, n) }
        };
        pieces(page, pages).map(of).sum()
    }

    /// The fresh pages counted so far, once there are enough of them to be worth a release elsewhere.
    fn take_fresh(&mut self) -> usize {
        if self.fresh < FRESH_PAGES { 0 } else { core::mem::take(&mut self.fresh) }
    }

    /// Idle pages that the zone's own peak does not explain: with them more is resident than was ever in use at a time,
    /// by more than a small part, and more than the rest of two huge pages if memory comes in such.
    pub(crate) fn surplus(&self, huge_on_touch: bool) -> usize {
        let (peak, rest) = (self.peak.high(), if huge_on_touch { 2 * PAGEBLOCK_PAGES } else { 0 });
        self.idle.saturating_sub(peak - self.used + peak / SURPLUS_PART + rest)
    }

    /// Takes back `pages` pages from `page`. Those in `unbacked` (bit i: page `page + i`) are known to be reported.
    pub fn give(&mut self, window: &Window, page: u32, pages: usize, unbacked: u32) {
        self.used -= pages;
        if pages >= HOLE_PAGES {
            self.holes[pages % HOLES] = (page, pages as u32);
        }
        for (block, first, n) in pieces(page, pages) {
            let pageblock = self.blocks.at_mut(window, block);
            pageblock.free.insert(first, n);
            pageblock.forget_look();
            for i in (0..n.min(32)).filter(|i| unbacked >> i & 1 == 1) {
                pageblock.backed.remove(first + i, 1);
            }
            self.idle += pageblock.idle_in(first, n);
            self.relink(window, block);
        }
    }

    /// Adds `count` fresh pageblocks from `first`, which are in use from now on.
    pub fn add(&mut self, window: &Window, first: u32, count: usize) {
        // Backwards, so that the list hands out ascending addresses.
        for block in (first..first + count as u32).rev() {
            let pageblock = self.blocks.at_mut(window, block);
            pageblock.offline = false;
            // The window's first one may lack pages.
            self.pages += pageblock.free.len();
            self.relink(window, block);
        }
    }

    /// Takes the `pages` pages from `page`, which follow a run, if they are free and the zone's; which of them were
    /// reported lately, and the fresh pages as [`PageRun::fresh`] has them.
    pub fn extend(&mut self, window: &Window, page: u32, pages: usize) -> Result<(Refault, usize), Short> {
        if page as usize + pages > window.top() as usize {
            return Err(Short);
        }
        let is_free = pieces(page, pages).all(|(block, first, n)| {
            self.blocks.get(window, block).is_some_and(|pageblock| pageblock.free.has_range(first, n))
        });
        if !is_free {
            return Err(Short);
        }
        let (_, again) = self.take_run(window, page, pages, Purpose::Run, false);
        Ok((again, self.take_fresh()))
    }

    // ---- reporting ---------------------------------------------------------------------------------------------

    /// Isolates a pageblock's free backed pages for a report: they are not free until [`FreeAreas::put_back`].
    pub fn isolate(&mut self, window: &Window, block: u32) -> PageSet {
        let pageblock = self.blocks.at_mut(window, block);
        let idle = pageblock.idle();
        pageblock.free = pageblock.free.minus(&idle);
        self.relink(window, block);
        idle
    }

    /// Returns isolated `pages` to the free areas, of which those in `gone` went below. Returns whether a huge page was
    /// behind them.
    pub fn put_back(
        &mut self,
        window: &Window,
        block: u32,
        pages: &PageSet,
        gone: &PageSet,
        how: ReportOutcome,
    ) -> bool {
        let pageblock = self.blocks.at_mut(window, block);
        let huge = pageblock.huge;
        let kept = pages.minus(gone);
        pageblock.free = pageblock.free.or(pages);
        if !gone.is_empty() {
            if huge {
                // What stays of it is backed by small pages now, touched or not.
                pageblock.backed = pageblock.backed.or(&pageblock.free);
                pageblock.huge = false;
                let whole = gone.len() == PAGEBLOCK_PAGES;
                pageblock.look = if whole { Look::None } else { Look::Torn };
                self.torn |= !whole;
            }
            pageblock.backed = pageblock.backed.minus(gone);
            pageblock.recent.reported(gone.len(), how.at, how.calm, how.horizon);
            self.idle -= gone.len();
            let undefined = how.contents == Contents::Undefined;
            pageblock.dirty = undefined || pageblock.dirty && gone.len() < PAGEBLOCK_PAGES;
        }
        // Isolated pages are backed, whatever became of the pageblock's huge page meanwhile (a report of slabs in it may
        // have split it).
        pageblock.backed = pageblock.backed.or(&kept);
        pageblock.refused |= !kept.is_empty();
        self.relink(window, block);
        huge
    }

    /// Gives up to `count` pageblocks whose release was refused another try.
    pub(crate) fn forgive(&mut self, window: &Window, count: usize) {
        for _ in 0..count {
            let block = self.hints[HINT_REFUSED][0];
            if block == NONE {
                break;
            }
            self.blocks.at_mut(window, block).refused = false;
            self.relink(window, block);
        }
    }

    /// Notes that pages in use by a slab were reported out of `block`: its huge page, if there was one, is split, and
    /// what was free in it is backed by small pages now. Returns whether there was one.
    pub(crate) fn split(&mut self, window: &Window, block: u32, contents: Contents) -> bool {
        let pageblock = self.blocks.at_mut(window, block);
        pageblock.dirty |= contents == Contents::Undefined;
        if !pageblock.huge {
            return false;
        }
        pageblock.backed = pageblock.backed.or(&pageblock.free);
        pageblock.huge = false;
        pageblock.look = Look::Torn;
        self.torn = true;
        self.relink(window, block);
        true
    }
}

/// Splits a run of pages at pageblock boundaries: pageblock, first page in it, pages.
fn pieces(page: u32, pages: usize) -> impl Iterator<Item = (u32, usize, usize)> {
    let (mut at, end) = (page as usize, page as usize + pages);
    core::iter::from_fn(move || {
        (at < end).then(|| {
            let (block, first) = (at / PAGEBLOCK_PAGES, at % PAGEBLOCK_PAGES);
            let n = (end - at).min(PAGEBLOCK_PAGES - first);
            at += n;
            (block as u32, first, n)
        })
    })
}
