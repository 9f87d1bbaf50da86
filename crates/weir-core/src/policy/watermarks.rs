//! Watermarks of zones, and the one predicate by which the node balancer wakes, stops and sleeps ([`is_balanced`]).
//!
//! The formulas are Linux's (`mm/page_alloc.c`). Min is the square root of 16 times the size in KiB; low and high lie a gap apart
//! above it. Each zone keeps a part of itself from requests that could have used a higher one.

use crate::base::time::Nanos;
use crate::base::units::{PAGE, Pages};
use crate::base::zone_class::ZoneList;

/// Bounds of min, KiB (Linux: `min_free_kbytes`).
const MIN_KIB: (usize, usize) = (128, 262_144);
/// The largest gap between two marks, pages: 1 GiB. It is to hold what neighbours take until the next look, which does not grow with
/// the machine.
const MOST_GAP: Pages = Pages((1 << 30) / PAGE);
/// Of a limit, so much counts where headroom below it is a share of it, bytes: 40 GiB, of which the usual gap is [`MOST_GAP`].
const MOST_COUNTED: u64 = MOST_GAP.bytes().0 as u64 * 40;
/// More than this is plenty, pages: 4 GiB; of a zone of less than 32 GiB an eighth.
const PLENTY: Pages = Pages((4 << 30) / PAGE);
/// A KiB's part of a page.
const PAGE_KIB: usize = PAGE / 1024;
/// The whole that a scale factor is a part of.
const SCALE: usize = 10_000;
/// The part of the pages above a zone that it keeps from requests which could use those (Linux: `lowmem_reserve_ratio`, 256
/// for DMA32).
const RESERVE_RATIO: usize = 256;
/// The most that a boost adds, in hundredths of high (Linux: `watermark_boost_factor` 15,000 of 10,000).
const BOOST_PERCENT: usize = 150;
/// The part of what a process holds that one pressure event boosts the marks by; a severe event by four times as much. Events
/// come once in a PSI window (1 to 2 s) from triggers, and four times a second from readings, as long as little is free: so a cache
/// loses a tenth of itself in 2 to 10 s of pressure.
const BOOST_PART: usize = 64;

/// The marks of a zone, of its free pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Below it an allocation reclaims by itself.
    pub min: Pages,
    /// Below it the balancer wakes.
    pub low: Pages,
    /// Above it the balancer stops.
    pub high: Pages,
}

impl Marks {
    /// The marks of a zone of `managed` pages; `scale` is the least gap between two marks, in ten-thousandths of the zone. No
    /// mark exceeds the zone: a smaller one than its own marks could never be balanced.
    pub fn of(managed: Pages, scale: usize) -> Self {
        let kib = managed.0.saturating_mul(PAGE_KIB).saturating_mul(16).isqrt().clamp(MIN_KIB.0, MIN_KIB.1);
        // At most an eighth, so that high, which may be one and a half times as much, leaves most of a small zone to use.
        let min = Pages(kib / PAGE_KIB).min(managed / 8);
        let part = Pages((managed.0 as u128 * scale as u128 / SCALE as u128) as usize);
        let gap = (min / 4).max(part.min(MOST_GAP)).min(managed / 8);
        Self { min, low: min + gap, high: min + gap * 2 }
    }

    /// The size of a zone that is balanced as soon as no more than `used` of its pages are: high lies as far above them.
    pub fn managed_for(used: Pages, scale: usize) -> Pages {
        let next = |managed: &Pages| Some(used.saturating_add(Self::of(*managed, scale).high + Pages(1)));
        // High is three eighths of a zone at most: each step is less than half as far from the end as the one before.
        core::iter::successors(Some(used), next).take(usize::BITS as usize).last().unwrap_or(used)
    }
}

/// What counts of a limit of `bytes`, of which the headroom at which pressure begins is a share. As the marks, that does not grow
/// with a large limit: else pressure would begin where the marks still let caches grow.
pub fn counted_for_headroom(bytes: u64) -> u64 {
    bytes.min(MOST_COUNTED)
}

/// A zone's figures, as the predicate takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Pages that it may hold; a zone of none is not looked at.
    pub managed: Pages,
    /// Pages of it that may still be used.
    pub free: Pages,
    /// Order of its largest free block; `None`: no page is free.
    pub largest: Option<u32>,
    /// Watermarks of the zone.
    pub marks: Marks,
    /// Pages that outside pressure adds to the marks for a time.
    pub boost: Pages,
}

impl Zone {
    /// A zone of `managed` pages of which `free` are in blocks of order `largest` at most.
    pub fn new(managed: Pages, free: Pages, largest: Option<u32>, scale: usize) -> Self {
        Self { managed, free, largest, marks: Marks::of(managed, scale), ..Self::default() }
    }

    /// Whether much more of it is free than its marks ask for. Of a zone without pages nothing is known.
    pub(crate) fn has_plenty(&self) -> bool {
        !self.managed.is_zero() && self.free > PLENTY.min(self.managed / 8).max(self.marks.high)
    }

    /// Whether its free pages exceed `mark` and what it keeps from such a request, with a block of the request's order among
    /// them.
    fn is_above(&self, mark: Pages, reserve: Pages, order: u32) -> bool {
        let unusable = Pages::of_order(order) - Pages(1);
        let has_block = order == 0 || self.largest.is_some_and(|largest| largest >= order);
        self.free.saturating_sub(unusable) > mark + self.boost + reserve && has_block
    }
}

/// When a node counts as balanced for a request of order > 0. For order 0 every zone that the request can use must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One zone is enough (Linux today, and the patch of 2010 as first sent).
    Any,
    /// All zones must be (Linux before).
    All,
    /// Zones must be that make up a quarter of the pages (Linux 2.6.38: one small zone says nothing of the others).
    Quarter,
}

impl Policy {
    /// By the number that the setting `balance_policy` has.
    pub(crate) fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Any,
            1 => Self::All,
            _ => Self::Quarter,
        }
    }
}

/// Whether a request of `order` along `list` can use zone `zone`: it is on the list, and has as many pages at all.
pub(crate) fn is_eligible(zones: &[Zone], zone: usize, order: u32, list: ZoneList) -> bool {
    list.has(zone) && zones[zone].managed >= Pages::of_order(order)
}

/// Pages of `zone` that are kept from requests along `list`: a part of the pages of the zones before it, which those could use
/// instead.
pub(crate) fn lowmem_reserve(zones: &[Zone], zone: usize, list: ZoneList) -> Pages {
    let before = (zone + 1..zones.len()).filter(|&before| list.has(before));
    before.map(|before| zones[before].managed).sum::<Pages>() / RESERVE_RATIO
}

/// Whether one zone is above `mark` for a request. For order 0, of which every zone has requests that can use no other, its
/// marks alone count.
pub(crate) fn is_zone_above(
    zones: &[Zone],
    zone: usize,
    order: u32,
    list: ZoneList,
    mark: impl Fn(&Marks) -> Pages,
) -> bool {
    zones[zone].is_above(mark(&zones[zone].marks), reserve(zones, zone, order, list), order)
}

fn reserve(zones: &[Zone], zone: usize, order: u32, list: ZoneList) -> Pages {
    if order == 0 { Pages::ZERO } else { lowmem_reserve(zones, zone, list) }
}

/// Whether one zone is above its high mark for a request. One of no pages is not looked at.
pub(crate) fn is_zone_balanced(zones: &[Zone], zone: usize, order: u32, list: ZoneList) -> bool {
    zones[zone].managed.is_zero() || is_zone_above(zones, zone, order, list, |marks| marks.high)
}

/// The predicate: whether the node is balanced for requests of `order` along `list`. Waking, stopping and
/// sleeping ask it. A node of which the request can use no zone is balanced: nothing could be done for it.
pub fn is_balanced(zones: &[Zone], order: u32, list: ZoneList, policy: Policy) -> bool {
    let eligible = || (0..zones.len()).filter(|&zone| is_eligible(zones, zone, order, list));
    let is_zone_balanced = |&zone: &usize| is_zone_balanced(zones, zone, order, list);
    let pages = |zone: usize| zones[zone].managed;
    if eligible().next().is_none() {
        return true;
    }
    match if order == 0 { Policy::All } else { policy } {
        Policy::All => eligible().all(|zone| is_zone_balanced(&zone)),
        Policy::Any => eligible().any(|zone| is_zone_balanced(&zone)),
        // At least: a node of one zone that is balanced must count, and so must one whose other zones are empty.
        Policy::Quarter => {
            eligible().filter(is_zone_balanced).map(pages).sum::<Pages>() * 4 >= eligible().map(pages).sum::<Pages>()
        }
    }
}

/// Whether a request finds no more than `mark` says. For a request of order 0 one such zone that it can use is enough; for a
/// higher order all have to be so.
pub(crate) fn is_below(zones: &[Zone], order: u32, list: ZoneList, mark: impl Fn(&Marks) -> Pages) -> bool {
    let mut eligible = (0..zones.len()).filter(|&zone| is_eligible(zones, zone, order, list)).peekable();
    let is_above = |zone| is_zone_above(zones, zone, order, list, &mark);
    if order == 0 { !eligible.all(is_above) } else { eligible.peek().is_some() && !eligible.any(is_above) }
}

/// Pages that a zone lacks of being balanced for a request; none where it is.
pub(crate) fn shortfall(zones: &[Zone], zone: usize, order: u32, list: ZoneList) -> Pages {
    if is_zone_balanced(zones, zone, order, list) {
        return Pages::ZERO;
    }
    let block = Pages::of_order(order);
    let wanted = zones[zone].marks.high + zones[zone].boost + reserve(zones, zone, order, list) + block;
    // Where pages are free but no block of the order is, two blocks' worth has a chance to make one.
    wanted.saturating_sub(zones[zone].free).max(if order == 0 { block } else { block * 2 })
}

/// The most that the boost of a zone of `managed` pages comes to, where one event adds `step`.
pub(crate) fn boost_cap(managed: Pages, marks: Marks, step: Pages) -> Pages {
    (marks.high * BOOST_PERCENT / 100).max(Pages::BLOCK).max(step).min(most_boost(managed))
}

/// No boost exceeds half of the zone. High is three eighths at most, so that a small zone can be balanced while it is boosted.
/// Else all that is in use would be evicted for it. Where no limit is known, what is to be reclaimed is bounded by the step.
pub(crate) fn most_boost(managed: Pages) -> Pages {
    if managed.is_zero() { Pages::MAX } else { managed / 2 }
}

/// Pages that one pressure event adds to a zone's boost in a process that holds `resident` pages.
pub(crate) fn boost_step(resident: Pages, is_severe: bool) -> Pages {
    (resident / BOOST_PART).max(Pages::BLOCK) * if is_severe { 4 } else { 1 }
}

/// A boost of `pages` that was made `age` ago, of which nothing is left after `life`.
pub(crate) fn decayed(pages: Pages, age: Nanos, life: Nanos) -> Pages {
    let left = life.saturating_sub(age);
    match left.0 {
        0 => Pages::ZERO,
        left => Pages((pages.0 as u128 * u128::from(left) / u128::from(life.0)) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const GIB: Pages = Pages(1 << 18);
    const NO: Pages = Pages::ZERO;
    const LOW: ZoneList = ZoneList::Low32;
    const NORMAL: ZoneList = ZoneList::Normal;

    #[test]
    fn the_gap_does_not_grow_with_the_machine() {
        // 1 TiB: min is at its most, 256 MiB; a 40th would be 26 GiB.
        let marks = Marks::of(GIB * 1024, 250);
        assert_eq!([marks.low - marks.min, marks.high - marks.low], [GIB, GIB]);
        assert_eq!(Marks::of(GIB * 24, 250).high, Marks::of(GIB * 24, 250).min + GIB * 24 / 40 * 2);
    }

    #[test]
    fn plenty_is_more_than_the_marks_ask_for() {
        let has_plenty = |managed: Pages, free: Pages| Zone::new(managed, free, None, 250).has_plenty();
        assert!(!has_plenty(GIB, GIB / 8) && has_plenty(GIB, GIB / 8 + Pages(1)));
        assert!(!has_plenty(GIB * 1024, GIB * 4) && has_plenty(GIB * 1024, GIB * 4 + Pages(1)));
        // Of a small zone high is three eighths.
        let small = Pages(100);
        let high = Marks::of(small, 10_000).high;
        assert!(!Zone::new(small, high, None, 10_000).has_plenty() && high > small / 8);
        assert!(!has_plenty(Pages::ZERO, Pages::ZERO), "nothing is known");
    }

    #[test]
    fn marks_are_linuxs() {
        let marks = |[min, low, high]: [usize; 3]| Marks { min: Pages(min), low: Pages(low), high: Pages(high) };
        // 1 GiB: sqrt(16 * 1048576 KiB) = 4 MiB; the gap is a quarter of it, or 10 / 10000 of the zone, whichever is more.
        assert_eq!(Marks::of(GIB, 10), marks([1024, 1286, 1548]));
        assert_eq!(Marks::of(GIB, 250), marks([1024, 1024 + 6553, 1024 + 2 * 6553]));
        // Clamped at both ends: 128 KiB, 256 MiB.
        assert_eq!(Marks::of(Pages(1 << 9), 10).min, Pages(45));
        assert_eq!(Marks::of(Pages(300), 10).min, Pages(34));
        assert_eq!(Marks::of(Pages(1 << 38), 10).min, Pages(65536));
    }

    #[test]
    fn a_zone_smaller_than_its_marks_can_still_be_balanced() {
        for managed in (1..2000).map(Pages) {
            let marks = Marks::of(managed, 1000);
            assert!(marks.high < managed, "{managed}: {marks:?}");
            assert!(is_balanced(&[Zone::new(managed, managed, Some(0), 1000)], 0, LOW, Policy::Any));
        }
    }

    #[test]
    fn a_zone_made_for_what_is_used_is_balanced_by_it_and_by_no_page_more() {
        for used in [NO, Pages(1), Pages(100), Pages(12_345), GIB, GIB * 300] {
            let managed = Marks::managed_for(used, 250);
            let is_balanced = |used: Pages| {
                is_balanced(&[Zone::new(managed, managed.saturating_sub(used), Some(0), 250)], 0, LOW, Policy::Any)
            };
            assert!(is_balanced(used) && !is_balanced(used + Pages(2)), "{used} of {managed}");
            assert!(managed <= used + used / 9 + Pages(256), "{used} of {managed}");
        }
    }

    fn zone(managed: Pages, free: Pages) -> Zone {
        Zone::new(managed, free, free.0.checked_ilog2().map(|order| order.min(10)), 10)
    }

    #[test]
    fn a_zone_of_zero_pages_is_not_looked_at_and_a_node_of_none_is_balanced() {
        let nothing = [zone(NO, NO), zone(NO, NO)];
        for policy in [Policy::Any, Policy::All, Policy::Quarter] {
            for order in [0, 3] {
                assert!(is_balanced(&nothing, order, NORMAL, policy));
                assert!(!is_below(&nothing, order, NORMAL, |marks| marks.low));
                let beside = [zone(NO, NO), zone(GIB, GIB / 2)];
                assert!(
                    is_balanced(&beside, order, NORMAL, policy),
                    "commit 4746efded84d: an empty zone was never balanced"
                );
                assert!(!is_balanced(&[zone(NO, NO), zone(GIB, Pages(100))], order, NORMAL, policy));
            }
        }
    }

    #[test]
    fn exactly_a_quarter_is_enough() {
        let zones = [zone(GIB, GIB / 2), zone(GIB * 3, NO)];
        assert!(is_balanced(&zones, 3, NORMAL, Policy::Quarter), "commit 4746efded84d: > became >=");
        let less = [zone(GIB - Pages(1), GIB / 2), zone(GIB * 3, NO)];
        assert!(!is_balanced(&less, 3, NORMAL, Policy::Quarter) && is_balanced(&less, 3, NORMAL, Policy::Any));
    }

    #[test]
    fn order_0_wants_every_zone_whatever_the_policy() {
        let zones = [zone(GIB, NO), zone(GIB * 8, GIB)];
        for policy in [Policy::Any, Policy::All, Policy::Quarter] {
            assert!(!is_balanced(&zones, 0, NORMAL, policy));
        }
        assert!(is_balanced(&zones, 3, NORMAL, Policy::Any) && !is_balanced(&zones, 3, NORMAL, Policy::All));
    }

    #[test]
    fn a_zone_that_the_request_cannot_use_does_not_count() {
        // The large zone is above the request's highest.
        let zones = [zone(GIB, NO), zone(GIB * 8, GIB)];
        assert!(!is_balanced(&zones, 3, LOW, Policy::Any), "commit e716f2eb24de: mismatched class, premature sleep");
        // What the low zone keeps from requests that could use the high one does not serve these.
        let reserved = [zone(GIB, Marks::of(GIB, 10).high + Pages(100)), zone(GIB * 64, NO)];
        assert!(is_balanced(&reserved, 3, LOW, Policy::Any) && !is_balanced(&reserved, 3, NORMAL, Policy::Any));
        // A zone serves the requests of its own lists: those that name it alone use no other, those that fall back do.
        let zones = [zone(GIB, GIB / 2), zone(GIB, NO), zone(GIB, NO)];
        assert!(!is_balanced(&zones, 3, ZoneList::Pinned, Policy::Any));
        assert!(is_balanced(&zones, 3, ZoneList::PinnedFirst, Policy::Any));
        assert!(!is_eligible(&zones, 2, 0, NORMAL) && is_eligible(&zones, 2, 0, ZoneList::PinnedFirst));
        assert!(!is_eligible(&zones, 2, 0, ZoneList::HugetlbFirst), "locked memory is no fallback");
        // What NORMAL and LOW32 keep is a part of the zones before them on the list.
        let reserves = |list| [0, 1, 2].map(|zone| lowmem_reserve(&zones, zone, list));
        assert_eq!(reserves(ZoneList::PinnedFirst), [GIB * 2 / 256, GIB / 256, NO]);
        assert_eq!((reserves(NORMAL), reserves(ZoneList::Pinned)[2]), ([GIB / 256, NO, NO], NO));
    }

    #[test]
    fn a_high_order_wants_a_block_of_that_order() {
        assert!(is_balanced(&[zone(Pages(7), NO)], 3, LOW, Policy::Any), "nothing makes a block of 8 pages of 7");
        let pieces = Zone { largest: Some(2), ..zone(GIB, GIB / 2) };
        assert!(is_balanced(&[pieces], 2, LOW, Policy::Any) && !is_balanced(&[pieces], 3, LOW, Policy::Any));
        assert_eq!(shortfall(&[pieces], 0, 2, LOW), NO);
        assert_eq!(shortfall(&[pieces], 0, 3, LOW), Pages(16));
    }

    #[test]
    fn the_balancer_wakes_below_low_and_stops_above_high() {
        let marks = Marks::of(GIB, 10);
        let at = |free| [zone(GIB, free)];
        assert!(is_below(&at(marks.low), 0, LOW, |m| m.low) && !is_below(&at(marks.low + Pages(1)), 0, LOW, |m| m.low));
        assert!(!is_balanced(&at(marks.low + Pages(1)), 0, LOW, Policy::Any), "hysteresis: between the two it goes on");
        assert!(
            !is_balanced(&at(marks.high), 0, LOW, Policy::Any)
                && is_balanced(&at(marks.high + Pages(1)), 0, LOW, Policy::Any)
        );
        assert_eq!(shortfall(&at(marks.high), 0, 0, LOW), Pages(1));
    }

    #[test]
    fn a_boost_raises_every_mark_is_capped_and_fades() {
        let free = Marks::of(GIB, 10).high + Pages(100);
        let boosted = [Zone { boost: Pages(100), ..zone(GIB, free) }];
        assert!(!is_balanced(&boosted, 0, LOW, Policy::Any) && is_balanced(&[zone(GIB, free)], 0, LOW, Policy::Any));
        assert_eq!(boost_cap(GIB, Marks::of(GIB, 10), NO), Pages(2322));
        assert_eq!(boost_cap(Pages(2000), Marks::of(Pages(2000), 10), NO), Pages::BLOCK);
        assert_eq!(boost_cap(GIB, Marks::of(GIB, 10), Pages(5000)), Pages(5000));
        assert_eq!(boost_cap(NO, Marks::default(), Pages(5000)), Pages(5000), "no limit is known");
        assert_eq!((boost_step(NO, false), boost_step(GIB, true)), (Pages::BLOCK, GIB / 16));
        let faded = |age, life| decayed(Pages(100), Nanos(age), Nanos(life)).0;
        assert_eq!([faded(0, 10), faded(5, 10), faded(10, 10), faded(0, 0)], [100, 50, 0, 0]);
    }

    #[test]
    fn a_zone_smaller_than_a_boost_can_still_be_balanced() {
        for managed in (1..5000).map(Pages) {
            let all = Zone::new(managed, managed, Some(0), 1000);
            let boost = boost_cap(managed, all.marks, boost_step(managed, true));
            assert!(is_balanced(&[Zone { boost, ..all }], 0, LOW, Policy::Any), "{managed} pages, {boost} more");
        }
    }

    proptest! {
        /// A zone that is given what it lacks is balanced, and it never lacks less than nothing: no figures make the predicate
        /// contradict itself.
        #[test]
        fn what_a_zone_lacks_balances_it(
            zones: [(u32, u32, u16); 4],
            order in 0u32..=10,
            scale in 0usize..=1000,
            list in 0..ZoneList::COUNT,
        ) {
            let mut zones: Vec<Zone> = zones
                .iter()
                .map(|&(managed, free, boost)| Zone {
                    boost: Pages(boost.into()),
                    ..Zone::new(Pages(managed as usize), Pages(free.min(managed) as usize), Some(10), scale)
                })
                .collect();
            let list = ZoneList::ALL[list];
            for i in 0..zones.len() {
                let lacks = shortfall(&zones, i, order, list);
                prop_assert_eq!(lacks.is_zero(), is_zone_balanced(&zones, i, order, list));
                zones[i].free += lacks;
            }
            prop_assert!(is_balanced(&zones, order, list, Policy::All));
            prop_assert!(is_balanced(&zones, order, list, Policy::Quarter));
            prop_assert!(is_balanced(&zones, order, list, Policy::Any));
        }
    }
}
