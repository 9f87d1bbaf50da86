//! Zones of a program's own: made known, used and ended.

use core::ptr::NonNull;

use super::Heap;
use super::view::view;
use crate::base::units::{Order, Pages, order_of};
use crate::base::zone_class::ZoneClass;
use crate::pages::user_zone::UserZone;
use crate::pages::zone::PageRun;
use crate::pages::{Hold, Short};
use crate::platform::Platform;

view! {
    /// Calls for zones that reclaim has to do with; all others are [`crate::pages::HeapPages`]'s.
    pub struct Zones;
    /// A program's own zones.
    fn zones;
}

impl<'a, P: Platform> Zones<'a, P> {
    /// Room below the hard limit for a zone of the program's own that is resident from the start, `bytes` in all: to be held
    /// from before it is mapped until it is added. Reclaims where the limit is in the way.
    pub fn room(&self, bytes: usize) -> Result<Hold<'a>, Short> {
        let heap = self.heap;
        let hold = || heap.pages().hold(bytes).ok_or(Short);
        hold().or_else(|Short| self.heap.direct().reclaim_for(bytes, hold))
    }

    /// [`crate::pages::HeapPages::add_zone`], of which the budget is told where the zone is resident from the start.
    ///
    /// # Safety
    /// As there: it lives, where it is, until [`crate::pages::HeapPages::remove_zone`] returns, is added once, and is used through
    /// shared references alone meanwhile.
    pub unsafe fn add(&self, zone: NonNull<UserZone>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.heap.pages().add_zone(zone) };
        // SAFETY: the caller keeps the zone where it is, and shares it alone.
        self.heap.direct().note_resident(unsafe { zone.as_ref() }.resident_from_start());
    }

    /// [`crate::pages::HeapPages::zone_take`], which reclaims what caches hold of the zone's class where there is nothing free.
    pub fn take(&self, zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short> {
        let take = || self.heap.pages().zone_take(zone, pages, align);
        if !zone.can_serve(pages, align) {
            // No memory would help.
            return Err(Short);
        }
        let run = take().or_else(|Short| {
            let class = zone.class();
            self.heap.reclaim().wake_node_balancer(align.0.max(order_of(pages.max(Pages(1)))), class, true);
            if class.is_exclusive() && self.heap.reclaim().evictable(class) > 0 {
                self.heap.direct().stalled(|| self.heap.direct().reclaim_of_zone(class, pages.bytes(), take))
            } else if self.heap.pages().hard_limit().is_some() {
                self.heap.direct().reclaim_for(pages.bytes(), take)
            } else {
                Err(Short)
            }
        })?;
        if zone.class() == ZoneClass::Normal {
            // The caller may hold what reclaim would wait for: the balancer alone is woken. (A locked zone counted as it was
            // made, and huge pages of the pool are in no limit of memory.)
            self.heap.direct().note_fresh(run.fresh);
        }
        Ok(run)
    }
}
