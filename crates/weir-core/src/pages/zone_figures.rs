//! What each zone holds, for those who look at the process.

use core::sync::atomic::Ordering::Relaxed;

use crate::base::units::PAGE;
use crate::pages::Pages;
use crate::pages::node::ZoneKind;
use crate::pages::zone::Zone;
use crate::platform::Platform;
use crate::telemetry::trace::Place;

/// A zone's figures, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneFigures {
    /// Where it is.
    pub place: Place,
    /// The node of a zone of the heap, or the number of one that the program made.
    pub number: u64,
    /// Address space in it, resident or not.
    pub bytes: usize,
    /// Handed out.
    pub used: usize,
    /// Free and resident.
    pub idle: usize,
}

impl<P: Platform> Pages<P> {
    /// Calls `f` with the figures of each zone that has memory: those of the nodes, then those of the program. `f` is
    /// called under the lock of the list of the latter, and may not allocate.
    pub fn each_zone(&self, mut f: impl FnMut(ZoneFigures)) {
        let mut tell = |place, number, zone: &Zone| {
            let areas = zone.lock(&self.platform);
            let [bytes, used, idle] = [areas.pages, areas.used, areas.idle].map(|pages| pages * PAGE);
            drop(areas);
            if bytes > 0 {
                f(ZoneFigures { place, number, bytes, used, idle });
            }
        };
        for (number, node) in self.nodes.iter().enumerate() {
            tell(Place::Normal, number as u64, node.zone(ZoneKind::Normal));
            tell(Place::Low32, number as u64, node.zone(ZoneKind::Low32));
        }
        let _list = self.user.lock.lock(&self.platform);
        for zone in self.user.iter().filter(|zone| !zone.is_foreign()) {
            tell(Place::User, zone.number.load(Relaxed), &zone.areas);
        }
    }
}
