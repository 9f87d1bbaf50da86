//! What counts against the hard limit, and what an allocation may still take.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::hard_limit::Hold;
use super::heap_pages::Pages;
use crate::base::units::{PAGE, PAGEBLOCK_PAGES};
use crate::platform::Platform;

impl<P: Platform> Pages<P> {
    /// The limit; `None`: there is none.
    pub(crate) fn hard_limit(&self) -> Option<usize> {
        let limit = self.platform.tunables().hard_limit.get();
        (limit != 0).then_some(limit as usize)
    }

    /// Bytes that count against the limit. O(zones).
    pub(crate) fn charged(&self) -> usize {
        let stats = self.platform.stats();
        let pages = |used: usize, idle: usize| (used + idle) * PAGE;
        let zones = self.sites().map(|site| {
            let zone = site.zone.lock(&self.platform);
            pages(zone.used, zone.idle)
        });
        let zones = zones.sum::<usize>();
        let user = self.user.lock.lock(&self.platform);
        let of_user = self.user.iter().filter(|zone| !zone.is_foreign()).map(|zone| {
            let areas = zone.areas.lock(&self.platform);
            if zone.memory.reported { pages(areas.used, areas.idle) } else { areas.pages * PAGE }
        });
        let of_user = of_user.sum::<usize>();
        drop(user);
        let counted = stats.mapped_bytes.load(Relaxed) + stats.metadata_bytes.load(Relaxed);
        zones + of_user + counted as usize + self.hard_limit.retained.load(Relaxed)
    }

    /// Bytes that may still become resident below the limit; `usize::MAX` without one.
    pub(crate) fn hard_room(&self) -> usize {
        let Some(limit) = self.hard_limit() else { return usize::MAX };
        limit.saturating_sub(self.charged() + self.hard_limit.held.load(SeqCst))
    }

    /// Room for `bytes`, until the result is dropped; `None`: the limit is in the way.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize) -> Option<Hold<'_>> {
        let held = &self.hard_limit.held;
        let Some(limit) = self.hard_limit() else { return Some(Hold { held, bytes: 0 }) };
        // Given back if it does not fit. First held, then counted: of two threads at least one sees the other.
        let all = held.fetch_add(bytes, SeqCst).saturating_add(bytes);
        let hold = Hold { held, bytes };
        (self.charged().saturating_add(all) <= limit).then_some(hold)
    }

    /// Room for `pages` pages below the hard limit. Where there is none, how many pages may become resident all the same: what
    /// is resident already may be handed out.
    pub(super) fn hold_pages(&self, pages: usize, huge_on_touch: bool) -> (Option<Hold<'_>>, usize) {
        // The first touch of a fresh pageblock may bring all of it.
        let worst = if huge_on_touch { (pages.div_ceil(PAGEBLOCK_PAGES) + 1) * PAGEBLOCK_PAGES } else { pages };
        let hold = self.hold(worst * PAGE);
        let most_fresh = if hold.is_some() { usize::MAX } else { self.hard_room() / PAGE };
        (hold, most_fresh)
    }
}
