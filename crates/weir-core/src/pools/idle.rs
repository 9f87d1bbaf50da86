//! The idle runs of a pool, by their lengths, last in first out.
//!
//! Four lengths for each power of two: a run is at most a quarter longer than what was asked for. The links lie in the
//! descriptors of the runs' first pages, out of line. So an idle page is not written to, and a write through a stale
//! pointer reaches no link.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::base::units::{MAX_RUN, PageNo, Pages};
use crate::pages::window::Window;

/// How many lengths of runs there are.
pub const LENGTHS: usize = 36;
/// Word of a run's descriptor (the first one is its length): the first page of the next idle run of its length.
const NEXT: usize = 1;
/// Word of a run's descriptor: the mark of its pool, twice, and 1 more while the run is idle.
const OWNER: usize = 2;

const _: () = assert!(pages_of(LENGTHS - 1).0 == MAX_RUN.0 && length_of(MAX_RUN) == LENGTHS - 1);

/// The length that `pages` pages (1 to [`MAX_RUN`]) are handed out as.
pub(crate) const fn length_of(pages: Pages) -> usize {
    let Pages(pages) = pages;
    if pages <= 4 {
        return pages - 1;
    }
    let order = (pages - 1).ilog2() as usize;
    4 * (order - 1) + (pages - (1 << order)).div_ceil(1 << (order - 2)) - 1
}

/// The pages of a length.
pub(crate) const fn pages_of(length: usize) -> Pages {
    if length < 4 {
        return Pages(length + 1);
    }
    let order = length / 4 + 1;
    Pages((1 << order) + ((length % 4 + 1) << (order - 2)))
}

/// Refusal of a run that is another pool's, or idle already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInFlight {
    /// The run is idle: it was put twice.
    Idle,
    /// The run is another pool's.
    Foreign,
}

/// See the module.
pub struct IdleRuns {
    first: [PageNo; LENGTHS],
    /// Number of the pool's get that asked for each length last.
    asked: [u64; LENGTHS],
    gets: u64,
    pages: Pages,
}

impl IdleRuns {
    /// No idle runs.
    pub(crate) const fn new() -> Self {
        Self { first: [PageNo::NONE; LENGTHS], asked: [0; LENGTHS], gets: 0, pages: Pages::ZERO }
    }

    /// Pages of all idle runs.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// Takes the run of a length that was put last; notes that the length was asked for.
    pub(crate) fn get(&mut self, window: &Window, length: usize) -> Option<PageNo> {
        self.gets += 1;
        self.asked[length] = self.gets;
        let page = self.pop(window, length)?;
        window.word(page, OWNER).fetch_and(!1, Release);
        Some(page)
    }

    /// Adds a run, which [`claim`] has found to be in flight.
    pub(crate) fn put(&mut self, window: &Window, page: PageNo, length: usize) {
        window.word(page, NEXT).store(self.first[length].0, Relaxed);
        self.first[length] = page;
        self.pages += pages_of(length);
    }

    /// Takes a run to give it back: of the length that was asked for longest ago.
    pub(crate) fn give_up(&mut self, window: &Window) -> Option<(PageNo, usize)> {
        let idle = (0..LENGTHS).filter(|&length| self.first[length] != PageNo::NONE);
        // Of lengths that were asked for at the same time, which are those that never were, the longest.
        let length = idle.min_by_key(|&length| (self.asked[length], LENGTHS - length))?;
        let page = self.pop(window, length)?;
        window.word(page, OWNER).store(0, Release);
        Some((page, length))
    }

    fn pop(&mut self, window: &Window, length: usize) -> Option<PageNo> {
        let page = self.first[length];
        if page == PageNo::NONE {
            return None;
        }
        self.first[length] = PageNo(window.word(page, NEXT).load(Relaxed));
        self.pages -= pages_of(length);
        Some(page)
    }

    /// The first pages of all idle runs, with their lengths.
    pub(crate) fn iter<'a>(&'a self, window: &'a Window) -> impl Iterator<Item = (PageNo, usize)> + 'a {
        (0..LENGTHS).flat_map(move |length| {
            let some = |page: PageNo| (page != PageNo::NONE).then_some(page);
            let next = move |&page: &PageNo| some(PageNo(window.word(page, NEXT).load(Relaxed)));
            core::iter::successors(some(self.first[length]), next).map(move |page| (page, length))
        })
    }
}

/// Makes a run that was taken from a zone one of the pool with mark `mark`, in flight.
pub(crate) fn own(window: &Window, page: PageNo, mark: u32) {
    window.word(page, OWNER).store(mark << 1, Release);
}

/// Claims a run that is put. One of several threads that do so at once gets `Ok`: the run was in flight and is idle from now on.
pub(crate) fn claim(window: &Window, page: PageNo, mark: u32) -> Result<(), NotInFlight> {
    let (in_flight, idle) = (mark << 1, mark << 1 | 1);
    match window.word(page, OWNER).compare_exchange(in_flight, idle, AcqRel, Acquire) {
        Ok(_) => Ok(()),
        Err(found) if found == idle => Err(NotInFlight::Idle),
        Err(_) => Err(NotInFlight::Foreign),
    }
}

/// Whether a run is of the pool with mark `mark`, and idle.
pub(crate) fn is_idle(window: &Window, page: PageNo, mark: u32) -> bool {
    window.word(page, OWNER).load(Acquire) == mark << 1 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_at_most_a_quarter_longer_than_what_was_asked_for() {
        for pages in (1..=MAX_RUN.0).map(Pages) {
            let length = length_of(pages);
            assert!((pages..=pages + pages / 4).contains(&pages_of(length)), "{pages}");
            assert_eq!(length_of(pages_of(length)), length);
            assert!(length == 0 || pages_of(length - 1) < pages, "the shortest that will do for {pages}");
        }
    }
}
