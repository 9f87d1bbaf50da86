//! Charge against the hard limit, and how much an allocation may still take.

use super::limit::Hold;
use crate::base::units::{Bytes, Order, Pages};
use crate::pages::heap_pages::HeapPages;
use crate::pages::node::{Node, ZoneKind};
use crate::pages::request::Purpose;
use crate::pages::user_zone::UserZone;
use crate::platform::Platform;

impl<P: Platform> HeapPages<P> {
    /// The limit; `None`: there is none.
    pub(crate) fn hard_limit(&self) -> Option<Bytes> {
        let limit = self.platform.tunables().hard_limit.get();
        (limit != 0).then_some(Bytes(limit as usize))
    }

    /// Bytes that count against the limit. O(zones), without their locks: nodes would wait for one another there. What a thread
    /// took is seen by all that hold room after its own hold ended (`limit.rs`).
    fn charged(&self) -> Bytes {
        let zones = self.sites().map(|site| site.zone.resident()).sum::<Pages>() + self.charged_zones();
        zones.bytes() + Bytes(self.gauges.metadata_bytes.get() as usize) + self.hard_limit.blocks()
    }

    /// Pages of the program's zones that count.
    fn charged_zones(&self) -> Pages {
        if self.user.is_empty() {
            return Pages::ZERO;
        }
        let _list = self.user.lock.lock(&self.platform);
        let of = |zone: &UserZone| if zone.memory.reported { zone.areas.resident() } else { zone.window.pages() };
        self.user.iter().filter(|zone| !zone.is_foreign()).map(of).sum()
    }

    /// Bytes that may still become resident below the limit; [`Bytes::MAX`] without one.
    pub(crate) fn hard_room(&self) -> Bytes {
        let Some(limit) = self.hard_limit() else { return Bytes::MAX };
        let held = self.hard_limit.held();
        limit.saturating_sub(self.charged().saturating_add(held))
    }

    /// Room for `bytes`, until the result is dropped; `None`: the limit is in the way.
    #[inline]
    pub(crate) fn hold(&self, bytes: Bytes) -> Option<Hold<'_>> {
        let Some(limit) = self.hard_limit() else { return Some(self.hard_limit.hold_nothing()) };
        let hold = self.hard_limit.hold(bytes, limit, || self.charged());
        (hold.bytes() == bytes).then_some(hold)
    }

    /// Room for `pages` pages below the hard limit, and how many pages may become resident as they are taken. Where there is
    /// less room than they could need, that is what there is: what is resident already may be handed out all the same.
    pub(in crate::pages) fn hold_pages(&self, pages: Pages, huge_on_touch: bool) -> (Hold<'_>, Pages) {
        let Some(limit) = self.hard_limit() else { return (self.hard_limit.hold_nothing(), Pages::MAX) };
        let worst = most_resident(pages, huge_on_touch).bytes();
        let hold = self.hard_limit.hold(worst, limit, || self.charged());
        let most_fresh = if hold.bytes() == worst { Pages::MAX } else { hold.bytes().pages_down() };
        (hold, most_fresh)
    }

    /// Whether there is less room below the hard limit than `pages` pages of the heap's zones could need. Where there is as much,
    /// it was the system that refused them.
    pub(crate) fn lacks_hard_room(&self, pages: Pages) -> bool {
        self.hard_limit().is_some()
            && self.hard_room().pages_down() < most_resident(pages, self.platform.huge_on_touch())
    }

    /// Whether the hard limit alone keeps `pages` pages of the heap's zones of a kind from a request: they are free there, or the
    /// zones may grow by them.
    pub(crate) fn is_hard_limit_in_the_way(&self, kind: ZoneKind, pages: Pages) -> bool {
        let window = self.window(kind);
        // How far it may grow is known once it has grown.
        let may_grow = || window.pages().is_zero() || window.growable() >= pages;
        let has = |node: &Node| node.zone(kind).lock(&self.platform).has(window, pages, Order::PAGE, Purpose::Run);
        self.lacks_hard_room(pages) && (may_grow() || self.nodes.iter().any(has))
    }
}

/// Pages that may become resident as `pages` are touched: the first touch of a fresh pageblock may bring all of it.
fn most_resident(pages: Pages, huge_on_touch: bool) -> Pages {
    if huge_on_touch { Pages::BLOCK * (pages.blocks() + 1) } else { pages }
}
