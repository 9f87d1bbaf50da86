//! Bugs that were found in kswapd, each by the commit that mended it: none of them is here.

use crate::fake::{FakeNode, FakeZone, GIB, LARGE, SMALL, zone};
use weir_core::base::time::Time;
use weir_core::base::units::Pages;
use weir_core::base::zone_class::{ZoneClass, ZoneList};
use weir_core::policy::scan_priority::{FIRST, LAST};
use weir_core::policy::watermarks::{Marks, Policy};
use weir_core::reclaim::balancer_turn::Next;
use weir_core::reclaim::node_balancer::MOST_FAILURES;

/// The sleep check was given the highest zone of the request where a zone's index belonged, and looked at the wrong zone.
#[test]
fn da175d06b437_the_sleep_check_looks_at_the_zones_that_the_request_can_use() {
    let node = FakeNode::new(&[(SMALL, zone(GIB, 0)), (LARGE, zone(8 * GIB, GIB))]);
    assert!(node.wake(0, ZoneList::Low32, false));
    node.sleep();
    assert!(node.is_balanced(0, ZoneList::Low32));
}

/// A new request was read after reclaim had failed, taken for a wake-up, and kswapd span without sleeping.
#[test]
fn _215ddd6664ce_after_a_failed_run_it_dozes_although_there_is_a_request() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    // Allocations go on asking, all the time.
    *node.during.borrow_mut() = Some(Box::new(move |node| {
        node.wake(0, ZoneList::Normal, true);
    }));
    node.wake(0, ZoneList::Normal, true);
    for runs in 1..MOST_FAILURES {
        // The request that is pending does not end the doze at once: it is taken with the next look.
        let mut steps = 0;
        let next = loop {
            steps += 1;
            match node.step() {
                Next::Again if steps > 100 => panic!("it spins"),
                Next::Again => {}
                next => break next,
            }
        };
        let Next::At(Time(at)) = next else { panic!("{next:?}") };
        assert!(at > node.clock.get());
        let tried = node.scans.borrow().iter().filter(|scan| scan.priority == FIRST).count();
        assert_eq!(tried, runs as usize);
        node.clock.set(at);
    }
    node.sleep();
    assert!(node.balancer.is_hopeless(LARGE));
}

/// A zone without pages was never balanced, as 0 is not more than a quarter of 0: kswapd never slept.
#[test]
fn _4746efded84d_a_node_with_empty_zones_comes_to_rest() {
    for policy in [Policy::Any, Policy::All, Policy::Quarter] {
        let node = FakeNode::new(&[(LARGE, zone(GIB, 0))]);
        node.policy.set(policy);
        node.wake(3, ZoneList::Normal, true);
        node.sleep();
        assert!(node.is_asleep());
        let empty = FakeNode::new(&[]);
        empty.policy.set(policy);
        assert!(!empty.wake(3, ZoneList::Normal, true));
        empty.sleep();
        assert!(empty.scans.borrow().is_empty());
    }
}

/// The order that was balanced and the order that was asked for were mixed up. So the balancer slept although it had not done
/// what was asked, or asked itself for ever for an order that it had given up.
#[test]
fn d2ebd0f6b895_a_high_order_that_is_given_up_is_not_asked_for_again() {
    // Pages come free, but never a block of the order.
    let node = FakeNode::new(&[(LARGE, FakeZone { largest: 2, until_block: usize::MAX, ..zone(GIB, GIB / 2) })]);
    assert!(node.wake(9, ZoneList::Normal, true));
    node.sleep();
    let reclaimed = node.reclaimed.get()[LARGE];
    assert!((2 << 9..4 << 9).contains(&reclaimed), "{reclaimed}: compact_gap, and no more");
    assert!(node.is_asleep() && !node.balancer.is_asked());
    // The next request for it is tried anew, and no less.
    assert!(node.wake(9, ZoneList::Normal, true));
    node.sleep();
    assert!(node.reclaimed.get()[LARGE] >= 2 * (2 << 9));
}

/// Priority 0 scans everything: kswapd freed most of memory for one request.
#[test]
fn _9aa41348a8d1_the_balancer_never_scans_at_priority_0() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 100_000, ..zone(GIB, 0) })]);
    node.wake(0, ZoneList::Normal, false);
    node.sleep();
    assert_eq!(node.scans.borrow().iter().map(|scan| scan.priority).min(), Some(LAST));
}

/// Reclaim was scaled up by failures to compact, and burned CPUs for hours.
#[test]
fn _96710098ee12_what_is_scanned_does_not_grow_with_failures() {
    let node = FakeNode::new(&[(LARGE, FakeZone { largest: 2, until_block: usize::MAX, ..zone(64 * GIB, GIB) })]);
    let mut before = 0;
    for _ in 0..50 {
        node.wake(9, ZoneList::Normal, true);
        node.sleep();
        let reclaimed = node.reclaimed.get()[LARGE];
        assert!(reclaimed - before < 4 << 9, "{}", reclaimed - before);
        before = reclaimed;
    }
}

/// The highest zone of another request was compared with: kswapd slept though the request's own zone was not balanced.
#[test]
fn e716f2eb24de_a_request_for_a_low_zone_is_not_put_off_by_a_balanced_high_one() {
    let node = FakeNode::new(&[
        (SMALL, FakeZone { largest: 0, until_block: 16, ..zone(GIB, GIB / 4) }),
        (LARGE, zone(8 * GIB, GIB)),
    ]);
    node.wake(3, ZoneList::Normal, true);
    assert!(node.wake(3, ZoneList::Low32, true) || node.balancer.is_asked());
    node.sleep();
    assert!(node.is_balanced(3, ZoneList::Low32));
}

/// kswapd was woken for boosted marks although boosting was switched off.
#[test]
fn _597c892038e0_without_a_boost_a_balanced_node_is_not_woken() {
    let node = FakeNode::new(&[(LARGE, zone(GIB, Marks::of(Pages(GIB), 10).high.0 + 100))]);
    for order in [0, 3] {
        assert!(!node.wake(order, ZoneList::Normal, true));
    }
    // A boost that has faded is none.
    node.boost(ZoneClass::Normal, Pages(GIB / 128));
    node.pass_ms(2000);
    node.sleep();
    assert!(node.scans.borrow().is_empty() && !node.wake(0, ZoneList::Normal, true));
}

/// Wake-ups were counted as new work while kswapd was hopeless, and boosted runs counted as failures (2026).
#[test]
fn _2026_hopelessness_is_ended_by_balance_and_by_no_request() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    node.wake(0, ZoneList::Normal, false);
    node.sleep();
    assert!(node.balancer.is_hopeless(LARGE));
    let scans = node.scans.borrow().len();
    for _ in 0..100 {
        assert!(!node.wake(0, ZoneList::Normal, true));
        node.pass_ms(1);
        node.step();
        assert!(node.is_asleep());
    }
    assert_eq!(node.scans.borrow().len(), scans);
    // Some progress that leaves the node unbalanced would have reset the count before 2026.
    node.change(LARGE, |zone| zone.free += 10);
    assert!(!node.wake(0, ZoneList::Normal, true) && node.balancer.is_hopeless(LARGE));
}

/// An allocation was throttled for a node without reclaimable pages, or with a kswapd that had given up, and waited for good.
#[test]
fn cve_2024_57884_an_allocation_is_throttled_only_while_the_balancer_may_make_progress() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, marks.min.0 / 2) })]);
    let is_throttled = |node: &FakeNode| node.balancer.is_throttled(node, ZoneClass::Normal);
    assert!(!is_throttled(&node), "the balancer sleeps");
    node.wake(0, ZoneList::Normal, false);
    assert!(is_throttled(&node));
    node.change(LARGE, |zone| zone.free += 1);
    assert!(!is_throttled(&node), "more than half of min is free");
    node.change(LARGE, |zone| zone.free -= 1);
    node.change(LARGE, |zone| zone.cached = 0);
    assert!(!is_throttled(&node), "nothing is left to reclaim");
    node.change(LARGE, |zone| zone.cached = 1000);
    // It fails: while it dozes, and after it gave up, none waits.
    while !node.balancer.is_hopeless(LARGE) {
        match node.step() {
            Next::At(Time(at)) => {
                assert!(!is_throttled(&node), "the balancer dozes");
                node.clock.set(at);
            }
            Next::Again => {}
            Next::Asleep => break,
        }
    }
    node.sleep();
    assert!(node.balancer.is_hopeless(LARGE) && !is_throttled(&node));
    node.wake(0, ZoneList::Normal, true);
    assert!(!is_throttled(&node), "hopeless, whoever asks");
    // A zone of no pages has nothing to wait for.
    let empty = FakeNode::new(&[]);
    assert!(!empty.balancer.is_throttled(&empty, ZoneClass::Normal));
}

/// Found here: all zones must be balanced, and a balanced zone had something to reclaim. It kept the balancer trying for
/// another that had nothing, ten times a second, for good.
#[test]
fn found_here_what_a_balanced_zone_holds_is_no_reason_to_try_for_another() {
    for policy in [Policy::All, Policy::Quarter] {
        let (low, high) = (FakeZone { cached: 0, ..zone(4 * GIB, 0) }, FakeZone { cached: 1000, ..zone(GIB, GIB / 2) });
        let node = FakeNode::new(&[(SMALL, low), (LARGE, high)]);
        node.policy.set(policy);
        assert!(!node.wake(3, ZoneList::Normal, true), "nothing can be done for what lacks");
        assert_eq!(node.settle().0, Next::Asleep);
        // The same once it is awake for something else.
        node.change(LARGE, |zone| zone.free = 0);
        assert!(node.wake(3, ZoneList::Normal, true));
        node.change(LARGE, |zone| zone.free = GIB / 2);
        node.sleep();
        assert!(node.scans.borrow().is_empty());
    }
}

/// Memory that a cache evicted into another allocator was no release of the heap's. So each pass lowered the priority until
/// the cache was empty, and after 16 runs the zone was hopeless.
#[test]
fn evictions_elsewhere_stop_at_what_is_missing() {
    let node = FakeNode::new(&[(LARGE, FakeZone { is_elsewhere: true, ..zone(GIB, 0) })]);
    for _ in 0..2 * MOST_FAILURES {
        node.change(LARGE, |zone| (zone.cached, zone.free) = (GIB, 0));
        node.wake(0, ZoneList::Normal, false);
        node.sleep();
        let (taken, lacks) = (GIB - node.zone(LARGE).cached, Marks::of(Pages(GIB), 10).high.0);
        assert!((3 * lacks..6 * lacks).contains(&taken), "{taken} pages went for {lacks}");
        assert!(node.is_balanced(0, ZoneList::Normal) && !node.balancer.is_hopeless(LARGE));
    }
    // A scan of a higher priority takes less than is missing.
    let lowest = node.scans.borrow().iter().map(|scan| scan.priority).min().unwrap();
    assert!(lowest >= FIRST - 6, "{lowest}");
}
