//! Zones of a program's own: made known, used and ended.

use core::ptr::NonNull;

use super::Heap;
use super::view::view;
use crate::base::units::{Bytes, Order, Pages, order_of};
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::pages::user_zone::{Lack, UserZone};
use crate::pages::zone::PageRun;
use crate::pages::{Hold, Short};
use crate::platform::Platform;
use crate::policy::refault::Refault;

view! {
    /// Calls for zones that reclaim has to do with; all others are [`crate::pages::HeapPages`]'s.
    pub struct Zones;
    /// A program's own zones.
    fn zones;
}

impl<'a, P: Platform> Zones<'a, P> {
    /// Room for a zone of the program's own that is resident from the start, `bytes` in all. The budget is told of it, and caches
    /// make room for it. What it has below the hard limit is to be held from before the zone is mapped until it is added.
    pub fn room(&self, bytes: usize) -> Result<Hold<'a>, Short> {
        let (heap, bytes) = (self.heap, Bytes(bytes));
        let hold = || heap.pages().hold(bytes).ok_or(Short);
        let held = hold().or_else(|Short| self.heap.direct().reclaim_for_room(bytes, hold))?;
        self.heap.direct().note_resident(bytes.pages_up());
        Ok(held)
    }

    /// [`crate::pages::HeapPages::add_zone`]. For one that is resident from the start there was [`Zones::room`] before.
    ///
    /// # Safety
    /// As there: it lives, where it is, until [`crate::pages::HeapPages::remove_zone`] returns, is added once, and is used through
    /// shared references alone meanwhile.
    pub unsafe fn add(&self, zone: NonNull<UserZone>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.heap.pages().add_zone(zone) };
        self.heap.platform().heap_has_grown();
    }

    /// Takes pages along the list of a zone alone: [`crate::pages::HeapPages::zone_take`], which reclaims what caches hold of the
    /// zone where there is nothing free. Only where the hard limit is in the way caches anywhere give way: what they hold
    /// elsewhere makes no room in a zone that is full.
    pub fn take(&self, zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short> {
        if !zone.can_serve(pages, align) {
            // No memory would help.
            return Err(Short);
        }
        let run = self.heap.pages().zone_try_take(zone, pages, align);
        let run = run.or_else(|lack| self.take_again(zone, pages, align, lack))?;
        self.note_taken(zone, &run);
        Ok(run)
    }

    #[cold]
    fn take_again(&self, zone: &UserZone, pages: Pages, align: Order, lack: Lack) -> Result<PageRun, Short> {
        let (class, direct, has_caches) = (zone.class(), self.heap.direct(), self.has_caches(zone));
        let take = || self.heap.pages().zone_take(zone, pages, align);
        if has_caches || class == ZoneClass::Normal {
            self.heap.reclaim().wake_node_balancer(order(pages, align), ZoneList::of(class), true);
        }
        let of_zone = || direct.reclaim_of_zone((class, zone.number()), pages.bytes(), take);
        let taken = if has_caches { direct.stalled(of_zone) } else { Err(Short) };
        taken.or_else(|Short| match lack {
            Lack::Room => direct.reclaim_for_room(zone.most_resident(pages).bytes(), take),
            Lack::Pages => Err(Short),
        })
    }

    /// Whether caches lie in a zone that is not as elastic as the heap, so that what they evict makes room there.
    fn has_caches(&self, zone: &UserZone) -> bool {
        let is_there = || self.heap.callbacks.with_zones(self.heap.platform(), |has_caches| has_caches(zone.number()));
        zone.class() != ZoneClass::Normal && self.heap.reclaim().has_evictable(zone.class()) && is_there()
    }

    /// Takes pages along the list that a zone is the first of, as far as they are the zone's. The zone serves while it stays
    /// above low. Where NORMAL is low too, the balancer is woken for the order, and the zone serves down to min. Pages below that
    /// are for requests that use no other zone. [`Short`]: the caller takes NORMAL's pages, in its own way.
    pub fn take_first(&self, zone: &UserZone, pages: Pages, align: Order) -> Result<PageRun, Short> {
        if !zone.can_serve(pages, align) {
            return Err(Short);
        }
        let run = self.heap.pages().zone_take_above(zone, pages, align, |marks| marks.low).or_else(|Short| {
            let (order, normal) = (order(pages, align), self.heap.reclaim().normal_zone());
            if normal.managed.is_zero() || normal.free > normal.marks.low + Pages::of_order(order) {
                return Err(Short);
            }
            let list = if self.has_caches(zone) { ZoneList::first(zone.class()) } else { ZoneList::Normal };
            self.heap.reclaim().wake_node_balancer(order, list, false);
            self.heap.pages().zone_take_above(zone, pages, align, |marks| marks.min)
        })?;
        self.note_taken(zone, &run);
        Ok(run)
    }

    /// Whether a zone would stay above low with `bytes` less, and no pressure keeps caches from growing.
    pub fn has_room(&self, zone: &UserZone, bytes: usize) -> bool {
        self.heap.reclaim().is_unpressed() && self.heap.pages().zone_is_above(zone, Pages::to_hold(bytes))
    }

    /// Pages that became resident are told as the heap's are: a part of min at a time, and under no lock.
    fn note_taken(&self, zone: &UserZone, run: &PageRun) {
        // A locked zone counted as it was made, and huge pages of the pool are in no limit of memory.
        if zone.class() == ZoneClass::Normal {
            self.heap.pages().events.resident(self.heap.platform(), run.fresh, Refault::NONE);
            self.heap.direct().slow_path_ends();
        }
    }
}

/// The order of a block that serves such a request.
fn order(pages: Pages, align: Order) -> u32 {
    align.0.max(order_of(pages))
}
