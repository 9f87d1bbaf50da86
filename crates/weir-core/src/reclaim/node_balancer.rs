//! The node balancer: wakes when a zone is low, reclaims until a suitable zone is balanced, and sleeps (Linux: kswapd).
//!
//! It is plain code over the trait [`Node`]: the engine's zones and those of deterministic tests are balanced by the same lines.
//! Every decision to wake, to stop or to sleep is one call of [`is_balanced`].
//!
//! Here is what all threads share with it; what its own thread does is in `balancer_turn.rs`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::boost::Boost;
use super::request::{LISTS, Request, Requests};
use crate::base::time::{Nanos, Time};
use crate::base::units::Pages;
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::policy::watermarks::{self, Policy, Zone, is_balanced, is_below, is_eligible, is_zone_balanced};

/// Fruitless runs after which a zone is hopeless (`MAX_RECLAIM_RETRIES`).
pub const MOST_FAILURES: u32 = 16;
/// How long a zone that has become hopeless is left alone, ns. Then one run tries it; each that fails doubles the pause, so often
/// at most: to 64 s. A run takes milliseconds.
pub const HOPELESS_NS: Nanos = Nanos(1_000_000_000);
const MOST_DOUBLINGS: u32 = 6;
/// The first, short sleep, ns (Linux: HZ/10).
pub const DOZE_NS: Nanos = Nanos(100_000_000);
/// The doze after a run that left a part to other processes, ns: these release 200 MiB in it (`docs/design/reclaim.md`). A neighbour that takes 100 MiB a second
/// gets 2 MiB meanwhile.
pub const OTHERS_NS: Nanos = Nanos(20_000_000);
/// How long reclaim waits for write-back at a time before it takes more of what is in use, ns (Linux: HZ/10).
pub const WRITE_BACK_NS: Nanos = Nanos(100_000_000);

/// State that threads share with the balancer.
pub struct NodeBalancer {
    pub(super) requests: Requests,
    pub(super) boosts: [Boost; ZONES],
    failures: [AtomicU32; ZONES],
    /// When a hopeless zone is tried again, ns.
    again: [AtomicU64; ZONES],
    /// Write-back lags behind what is to be reclaimed from the zone.
    pub(super) congested: [AtomicBool; ZONES],
}

impl NodeBalancer {
    /// Asleep.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self {
            requests: Requests::new(),
            boosts: [const { Boost::new() }; ZONES],
            failures: [const { AtomicU32::new(0) }; ZONES],
            again: [const { AtomicU64::new(0) }; ZONES],
            congested: [const { AtomicBool::new(false) }; ZONES],
        }
    }

    /// The zones with their boosts.
    pub fn view(&self, node: &impl Node) -> [Zone; ZONES] {
        let (mut zones, now, life) = (node.zones(), node.now(), node.boost_life());
        zones.iter_mut().zip(&self.boosts).for_each(|(zone, boost)| {
            // Its limit may have been lowered since.
            zone.boost = boost.pages(now, life).min(watermarks::most_boost(zone.managed));
        });
        zones
    }

    /// A request of `order` along `list` finds every zone that it can use low, or none at all (`is_short`). Whether the balancer slept, and
    /// the caller is to wake it: not if the node is balanced, or hopeless.
    pub fn wake(&self, node: &impl Node, order: u32, list: ZoneList, is_short: bool) -> bool {
        let zones = self.view(node);
        self.note_balance(&zones);
        if !is_short && !is_below(&zones, order, list, |marks| marks.low) {
            return false;
        }
        let request = Request::new(order, list as usize);
        if self.requests.is_awake() {
            // It takes this one too before it sleeps; or it fell asleep just now.
            return self.requests.add(request);
        }
        self.work(node, &zones, request).is_some() && self.requests.add(request)
    }

    /// Pressure from outside raises the marks of a zone by `step` for a time, so that the balancer has something to do. Whether
    /// it slept, and the caller is to wake it.
    pub fn boost(&self, node: &impl Node, zone: ZoneClass, step: Pages) -> bool {
        let of = node.zones()[zone as usize];
        let cap = watermarks::boost_cap(of.managed, of.marks, step);
        self.boosts[zone as usize].add(step, cap, node.now(), node.boost_life());
        // What the zone wants is in the boost.
        self.requests.add(Request::new(0, zone as usize))
    }

    /// Whether the balancer is awake: then throttled allocations may wait for it.
    pub fn is_awake(&self) -> bool {
        self.requests.is_awake()
    }

    /// Whether there is a request that the balancer has not taken yet.
    pub fn is_asked(&self) -> bool {
        self.requests.is_pending()
    }

    /// The balancer could not be woken, or is gone: the next request wakes it again.
    pub(crate) fn forget_thread(&self) {
        self.requests.sleep_regardless();
    }

    /// Whether reclaim for the zone has failed so often that it is hardly tried until the zone is balanced.
    pub fn is_hopeless(&self, zone: usize) -> bool {
        self.failures[zone].load(Relaxed) >= MOST_FAILURES
    }

    /// Whether reclaim for the zone may bring something.
    pub(super) fn is_worth(&self, node: &impl Node, zone: usize) -> bool {
        let is_left_alone = self.is_hopeless(zone) && node.now() < self.again(zone);
        !is_left_alone && node.is_reclaimable(zone)
    }

    fn again(&self, zone: usize) -> Time {
        Time(self.again[zone].load(Relaxed))
    }

    /// When a hopeless zone that lacks memory is tried again.
    pub(super) fn tries_again(&self, node: &impl Node, zones: &[Zone; ZONES]) -> Option<Time> {
        let lacks = |&zone: &usize| {
            self.is_hopeless(zone)
                && node.is_reclaimable(zone)
                && !is_zone_balanced(zones, zone, 0, ZoneList::ALL[zone])
        };
        (0..ZONES).filter(lacks).map(|zone| self.again(zone)).min()
    }

    /// A run has tried a zone, by the balancer's thread: whether that brought something. A hopeless zone that gives something
    /// again has one failure left: with each run that brings nothing it is left alone again.
    ///
    /// The count is changed at once, as any thread that finds the zone balanced clears it. The time is this thread's alone, and is
    /// a hint to others: one that reads an older one wakes the balancer once more.
    pub(super) fn note_run(&self, zone: usize, has_brought: bool, now: Time) {
        if has_brought {
            self.failures[zone].fetch_min(MOST_FAILURES - 1, Relaxed);
            return;
        }
        let failures = self.failures[zone].fetch_add(1, Relaxed).saturating_add(1);
        let doublings = failures.saturating_sub(MOST_FAILURES).min(MOST_DOUBLINGS);
        self.again[zone].store((now + HOPELESS_NS * (1 << doublings)).0, Relaxed);
    }

    /// Whether an allocation is to wait for the balancer. It waits if the balancer is awake, reclaim is not hopeless, there is
    /// something to reclaim, and little is free of the zone. Little is no more than half of min; or no more than min, where
    /// write-back lags behind.
    pub fn is_throttled(&self, node: &impl Node, zone: ZoneClass) -> bool {
        let of = node.zones()[zone as usize];
        let mark = if self.is_congested(zone) { of.marks.min } else { of.marks.min / 2 };
        !of.managed.is_zero()
            && of.free <= mark
            && self.is_awake()
            && !self.is_hopeless(zone as usize)
            && node.is_reclaimable(zone as usize)
    }

    /// Says whether write-back lags behind what is to be reclaimed of a zone. The balancer clears it before it sleeps.
    pub fn set_congested(&self, zone: ZoneClass, is_congested: bool) {
        self.congested[zone as usize].store(is_congested, Release);
    }

    /// Whether write-back lags behind in a zone.
    pub fn is_congested(&self, zone: ZoneClass) -> bool {
        self.congested[zone as usize].load(Acquire)
    }

    /// Whether it does in any of these zones.
    pub(super) fn is_any_congested(&self, zones: &[bool; ZONES]) -> bool {
        ZoneClass::ALL.into_iter().any(|zone| zones[zone as usize] && self.is_congested(zone))
    }

    /// In a forked child: the balancer's thread is not there, and nothing is known of its memory.
    pub fn inherit(&self) {
        self.requests.take();
        self.requests.sleep_regardless();
        self.boosts.iter().for_each(Boost::inherit);
        self.congested.iter().for_each(|flag| flag.store(false, Relaxed));
        self.failures.iter().for_each(|failures| failures.store(0, Relaxed));
    }

    /// Work that is to be done of `request`: its high orders; then order 0 of every zone; then boosts.
    pub(super) fn work(&self, node: &impl Node, zones: &[Zone; ZONES], request: Request) -> Option<Request> {
        self.note_balance(zones);
        let policy = node.policy();
        let is_worth = |zone: usize| self.is_worth(node, zone);
        let is_high = |order, list| {
            let list = ZoneList::ALL[list];
            // A zone that is balanced lacks nothing: what could be reclaimed of it is no reason to try.
            let lacks =
                |&zone: &usize| is_eligible(zones, zone, order, list) && !is_zone_balanced(zones, zone, order, list);
            order > 0 && !is_balanced(zones, order, list, policy) && (0..ZONES).filter(lacks).any(is_worth)
        };
        // Of order 0 each zone counts for itself; these lists have their zones' numbers.
        let all = (0..ZONES).fold(Request::NONE, |all, zone| all.merged(Request::new(0, zone)));
        let is_low = |_, zone: usize| !is_zone_balanced(zones, zone, 0, ZoneList::ALL[zone]) && is_worth(zone);
        let is_boosted = |_, zone: usize| !zones[zone].boost.is_zero() && is_worth(zone);
        let kinds = [request.filter(is_high), all.filter(is_low), all.filter(is_boosted)];
        kinds.into_iter().find(|work| !work.is_none())
    }

    /// A zone that is balanced again is not hopeless any more, however that came about.
    pub(super) fn note_balance(&self, zones: &[Zone; ZONES]) {
        let balanced = (0..ZONES).filter(|&zone| is_zone_balanced(zones, zone, 0, ZoneList::ALL[zone]));
        balanced.for_each(|zone| self.failures[zone].store(0, Relaxed));
    }
}

// What the node balancer balances: the zones of a node, and how they are scanned. The heap is one node, a test makes up others.

/// Zones of a node.
pub const ZONES: usize = ZoneClass::COUNT;
const _: () = assert!(LISTS == ZoneList::COUNT);

/// A node that the balancer balances.
pub trait Node {
    /// The zones, by class, without boosts.
    fn zones(&self) -> [Zone; ZONES];
    /// When the node is balanced for high orders.
    fn policy(&self) -> Policy;
    /// The time, ns.
    fn now(&self) -> Time;
    /// CPU time that the calling thread has used, ns.
    fn cpu_time(&self) -> Nanos;
    /// The balancer's share of a CPU, percent. Not kept to at the severe level.
    fn cpu_percent(&self) -> u64;
    /// Whether pressure is severe.
    fn is_severe(&self) -> bool;
    /// Whether pressure was severe just now: then what is missing is wanted at once, whoever gives it.
    fn is_urgent(&self) -> bool;
    /// For how long a boost lasts, ns.
    fn boost_life(&self) -> Nanos;
    /// Whether anything could be reclaimed for zone `zone`. Where not, it is left out and no failure.
    fn is_reclaimable(&self, zone: usize) -> bool;
    /// Of what NORMAL lacks, the part that this process is to give; other processes below the same limit give the rest.
    fn part(&self, lacks: Pages) -> Part {
        Part { own: lacks, given: Pages::ZERO }
    }
    /// Reclaims for one zone.
    fn scan(&self, scan: &ZoneScan) -> Scanned;
    /// Lets throttled allocations look again.
    fn release_throttled(&self);
    /// The balancer was awake for so much more, `cpu` of it on a CPU.
    fn note_awake(&self, awake: Nanos, cpu: Nanos);
}

/// What is this process's of a shortage, and how far the others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Pages that this process is to give.
    pub own: Pages,
    /// Pages that the others have given back so far, whatever for.
    pub given: Pages,
}

/// Order for one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneScan {
    /// The zone that lacks memory.
    pub zone: usize,
    /// The order that is wanted.
    pub order: u32,
    /// Pages that the zone lacks: no more is reclaimed.
    pub pages: Pages,
    /// Scans of what is in use take size >> priority.
    pub priority: u32,
    /// Whether the zone is short, or pressure severe; where not, the scan is for a boost.
    pub is_short: bool,
}

/// Outcome of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Looked at.
    pub scanned: Pages,
    /// Reclaimed.
    pub reclaimed: Pages,
    /// Evicted into another allocator's memory: it is free for the zone as that allocator releases it.
    pub elsewhere: Pages,
}
