//! The zones of a class together, over all NUMA nodes: what the node balancer is told of them.

use super::heap_pages::Pages;
use super::node::ZoneKind;
use crate::base::units::MAX_ORDER;
use crate::base::zone_class::ZoneClass;
use crate::platform::Platform;

/// Zones of a class. All in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassTotals {
    /// What they have, or may grow to.
    pub(crate) pages: usize,
    /// What is not handed out.
    pub(crate) free: usize,
    /// Order of the largest free block.
    pub(crate) largest: Option<u32>,
}

impl<P: Platform> Pages<P> {
    /// The zones below 4 GiB, mapped or not; nothing as long as there are none.
    pub(crate) fn low32_totals(&self) -> ClassTotals {
        let mut all = ClassTotals::default();
        for node in self.nodes.iter() {
            let zone = node.zone(ZoneKind::Low32).lock(&self.platform);
            all.add(zone.pages, zone.used, zone.largest_free());
        }
        let more = self.window(ZoneKind::Low32).growable();
        if all.pages > 0 {
            all.add(more, 0, (more >= 1 << (MAX_ORDER - 1)).then_some(MAX_ORDER - 1));
        }
        all
    }

    /// The program's own zones of a class.
    pub(crate) fn user_totals(&self, class: ZoneClass) -> ClassTotals {
        let mut all = ClassTotals::default();
        let _zones = self.user.lock.lock(&self.platform);
        for zone in self.user.iter().filter(|zone| zone.class() == class && !zone.is_foreign()) {
            let areas = zone.areas.lock(&self.platform);
            let closed = areas.closed(&zone.window);
            all.add(areas.pages - closed, areas.used.min(areas.pages - closed), areas.largest_free());
        }
        all
    }
}

impl ClassTotals {
    fn add(&mut self, pages: usize, used: usize, largest: Option<u32>) {
        (self.pages, self.free, self.largest) =
            (self.pages + pages, self.free + pages - used, self.largest.max(largest));
    }
}
