//! A small zone beside a large one. The patch of 2010 is about it, and it is the case that its reviewer asked for and its
//! author could not set up. The three policies compared.

use crate::fake::{FakeNode, FakeZone, GIB, LARGE, SMALL, zone};
use weir_core::base::units::Pages;
use weir_core::base::zone_class::{ZoneClass, ZoneList};
use weir_core::policy::watermarks::{Marks, Policy};

const ORDER: u32 = 5;

/// 64 MiB in small blocks, well above its marks; 8 GiB beside it that has a block of the order after `until_block` pages.
fn small_beside_large(policy: Policy, until_block: usize) -> FakeNode {
    let small = FakeZone { largest: 1, until_block: 8000, ..zone(GIB / 16, GIB / 32) };
    let large = FakeZone { largest: 1, until_block, ..zone(8 * GIB, GIB) };
    let node = FakeNode::new(&[(SMALL, small), (LARGE, large)]);
    node.policy.set(policy);
    node
}

/// Pages reclaimed from the small zone and from the large one by `requests` requests of the order. After each request the
/// large zone has no such block left.
fn reclaimed(policy: Policy, requests: usize) -> [usize; 2] {
    let node = small_beside_large(policy, 40);
    for _ in 0..requests {
        assert!(node.wake(ORDER, ZoneList::Normal, true));
        node.sleep();
        assert!(node.is_balanced(ORDER, ZoneList::Normal) || policy == Policy::All);
        node.change(LARGE, |zone| (zone.largest, zone.until_block) = (1, 40));
    }
    [node.reclaimed.get()[SMALL], node.reclaimed.get()[LARGE]]
}

#[test]
fn high_orders_that_the_large_zone_serves_take_nothing_from_the_small_one() {
    let [any, all, quarter] = [Policy::Any, Policy::All, Policy::Quarter].map(|policy| reclaimed(policy, 20));
    println!("pages reclaimed from the small zone and the large one: any {any:?}, all {all:?}, a quarter {quarter:?}");
    assert_eq!(any[0], 0, "needlessly reclaimed from the small zone");
    assert_eq!(quarter, any, "the large zone is more than a quarter of the node");
    assert!(all[0] >= 640, "before the patch every request emptied the small zone as well: {all:?}");
    assert!(any[1] > 0 && any[1] <= 20 * 96, "the large zone is reclaimed from, and not too much: {any:?}");
}

#[test]
fn order_0_of_the_small_zone_is_seen_to_before_it_sleeps() {
    let node = small_beside_large(Policy::Any, 40);
    let marks = Marks::of(Pages(GIB / 16), 10);
    node.change(SMALL, |zone| (zone.free, zone.cached) = (marks.low.0, GIB / 16 - marks.low.0));
    node.balancer.set_congested(ZoneClass::Low32, true);
    node.wake(ORDER, ZoneList::Normal, true);
    node.sleep();
    let free = node.zone(SMALL).free;
    assert!(free > marks.high.0 && free <= marks.high.0 + 32, "{free}: order 0, and no more");
    assert!(!node.balancer.is_congested(ZoneClass::Low32));
}

/// `any` is a zone that the request cannot use: it is above the request's highest zone.
#[test]
fn a_zone_that_the_request_cannot_use_does_not_end_the_run() {
    for policy in [Policy::Any, Policy::All, Policy::Quarter] {
        let small = FakeZone { largest: 1, until_block: 60, ..zone(GIB / 16, GIB / 32) };
        let node = FakeNode::new(&[(SMALL, small), (LARGE, zone(8 * GIB, 4 * GIB))]);
        node.policy.set(policy);
        assert!(node.wake(ORDER, ZoneList::Low32, true));
        node.sleep();
        assert_eq!(node.zone(SMALL).largest, ORDER, "{policy:?}");
        assert_eq!(node.reclaimed.get()[LARGE], 0, "{policy:?}");
    }
}

/// `any` is a small low zone that is balanced, but keeps its pages from requests that could use the large one.
#[test]
fn a_small_balanced_zone_does_not_end_a_run_for_the_large_one_where_it_would_not_serve_the_request() {
    let marks = Marks::of(Pages(GIB / 16), 10);
    // As much as it wants for itself, and less than it keeps of 8 GiB (32 MiB).
    let small = zone(GIB / 16, marks.high.0 + 1000);
    let node =
        FakeNode::new(&[(SMALL, small), (LARGE, FakeZone { largest: 1, until_block: 40, ..zone(8 * GIB, GIB) })]);
    assert!(node.is_balanced(ORDER, ZoneList::Low32));
    assert!(node.wake(ORDER, ZoneList::Normal, true));
    node.sleep();
    assert_eq!(node.zone(LARGE).largest, ORDER);
    assert_eq!(node.reclaimed.get()[SMALL], 0);
}

/// The purpose of a quarter: a tiny zone is balanced and serves the request as long as it lasts.
#[test]
fn a_quarter_is_not_content_with_a_tiny_zone() {
    let run = |policy| {
        let tiny = zone(GIB / 16, GIB / 17);
        let node =
            FakeNode::new(&[(SMALL, tiny), (LARGE, FakeZone { largest: 1, until_block: 40, ..zone(GIB, GIB / 8) })]);
        node.policy.set(policy);
        node.wake(ORDER, ZoneList::Normal, true);
        node.sleep();
        node.reclaimed.get()[LARGE]
    };
    assert_eq!(run(Policy::Any), 0);
    assert!(run(Policy::Quarter) >= 40);
}

/// A request of order 0 says that something is low, and not what alone: each low zone counts from the first pass on.
#[test]
fn order_0_along_one_list_begins_with_every_zone_that_is_low() {
    let free = |size| Marks::of(Pages(size), 10).low.0;
    let (small, large) = (zone(GIB / 16, free(GIB / 16)), zone(8 * GIB, free(8 * GIB)));
    let node = FakeNode::new(&[(SMALL, small), (LARGE, large)]);
    assert!(node.wake(0, ZoneList::Low32, true));
    while node.scans.borrow().is_empty() {
        node.step();
    }
    let zones: Vec<usize> = node.scans.borrow().iter().map(|scan| scan.zone).collect();
    assert_eq!(zones, [LARGE, SMALL], "the highest first, in one pass");
}
