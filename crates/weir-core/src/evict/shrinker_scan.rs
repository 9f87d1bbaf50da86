//! A program's shrinkers as reclaim scans them: evictable caches first, the program's own caches after them.
//!
//! | goal | scanned at priority |
//! |---|---|
//! | a zone is low, or pressure has boosted its marks | 12 to 1, or 10 for a boost, until the node is balanced ([`crate::reclaim::node_balancer`]) |
//! | an allocation below min, or short of memory | 12 to 1, until it is served |
//! | an allocation beyond the hard limit | the same; then all of it |
//! | a calm window, rest, room for others | not: what a program caches is in use |
//! | `malloc_trim` | not: it releases what is *free*, and C programs call it after each batch of work to that end. It may be called while the caller holds a lock that a shrinker needs |
//! | one node's free pages | not: caches are of all nodes, and the balancer scans them once |
//!
//! Memory that a shrinker frees is *moved*: it lies in buckets, depots and free areas, which later steps release.

use super::shrinkers::callback::{Class, Scan, ScanReason};
use super::shrinkers::{Callbacks, Waiter};
use crate::base::level::Level;
use crate::base::units::Bytes;
use crate::base::zone_class::ZoneClass;
use crate::platform::Platform;
use crate::platform::lock::RankTurn;
use crate::policy::scan_priority;
use crate::reclaim::budget::Room;
use crate::reclaim::{Freeze, Goal, Kind, Need, Reclaimable, Reclaimed, Step, Steps};

/// Bytes that a scan takes at most where no limit is known: more than any cache has.
const UNKNOWN: usize = 1 << 40;

/// The shrinkers of a heap on its platform.
pub struct Shrinkers<'a, P: Platform> {
    callbacks: &'a Callbacks,
    platform: &'a P,
    /// Bytes that a scan takes at most.
    most: usize,
}

impl Callbacks {
    /// The shrinkers among the callbacks, for reclaim, where there is room for so much memory.
    ///
    /// A scan takes twice what a cache says it could free at most, and twice what can be resident. So a cache that says
    /// `SIZE_MAX` is not scanned for ever.
    pub(crate) fn on<'a, P: Platform>(&'a self, platform: &'a P, room: Room) -> Shrinkers<'a, P> {
        let resident = room.capacity.max(room.used);
        let most = if room.capacity == 0 { UNKNOWN } else { usize::try_from(resident).unwrap_or(UNKNOWN) };
        Shrinkers { callbacks: self, platform, most: most.saturating_mul(2) }
    }
}

/// It counts nothing: only the program's own code could say.
impl<P: Platform> Reclaimable for Shrinkers<'_, P> {
    fn steps(&self) -> Steps {
        Steps::of(&[Step::Evict, Step::Shrink])
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        let class = if step == Step::Evict { Class::Cache } else { Class::Program };
        let need = goal.row().need;
        let reason = match need {
            Need::Failure => ScanReason::Shortage,
            _ if !goal.is_short => ScanReason::Mild,
            _ if self.callbacks.events().latest().level == Level::Severe => ScanReason::Severe,
            _ => ScanReason::Pressure,
        };
        // Of an evictable cache no more goes than is missing. What another cache's bytes are, only the program's code
        // could say: it is told to free no more when it says that as much is free. At the balancer's last priority half may go.
        // Of entries that lie scattered, few free a page, and a run that released nothing counts against the zone. Not so where
        // another allocator has the values: it may release them later. Nor for an allocation: what it had evicted may be
        // released by the balancer.
        let is_for_zone = need == Need::LowZone;
        let is_last = goal.kind != Kind::Direct
            && goal.priority <= scan_priority::LAST
            && !(goal.zone == ZoneClass::Normal && self.platform.evicted_elsewhere() > 0);
        let missing = if is_for_zone && !is_last { goal.bytes.0 } else { usize::MAX };
        let (most, enough) =
            if class == Class::Cache { (missing.min(self.most), usize::MAX) } else { (self.most, missing) };
        // At that priority itself a scan takes all that there is.
        let priority = if is_for_zone && is_last { goal.priority + 1 } else { goal.priority };
        let scan = Scan { priority, most, enough, reason };
        let who = match need {
            Need::Failure => Waiter::Failing,
            _ if goal.kind == Kind::Direct => Waiter::Direct,
            _ => Waiter::Balancer,
        };
        Reclaimed::moved(Bytes(self.callbacks.scan(self.platform, (class, (goal.zone, goal.zone_number)), scan, who)))
    }

    /// How much they hold only the program's own code could say: that there are some is what counts.
    fn has_evictable(&self, zone: ZoneClass) -> bool {
        self.callbacks.shrinkers(zone) > 0
    }

    fn hears_pressure(&self) -> bool {
        self.callbacks.are_there()
    }

    /// Subscribers hear of each event as it comes ([`Callbacks::raise`]); here, of relief.
    fn pressure_changed(&self, level: Level) {
        if level == Level::None {
            self.callbacks.relieve(self.platform);
        }
    }
}

// SAFETY: it has one lock.
unsafe impl<P: Platform> Freeze<P> for Shrinkers<'_, P> {
    fn freeze(&self, turn: &RankTurn<'_, P>) {
        self.callbacks.freeze(turn);
    }
}
