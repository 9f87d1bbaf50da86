//! Invariants that always hold.

use crate::fake::{FakeNode, FakeZone, GIB, LARGE, MS, SMALL, zone};
use weir_core::base::time::{Nanos, Time};
use weir_core::base::units::Pages;
use weir_core::base::zone_class::{ZoneClass, ZoneList};
use weir_core::policy::scan_priority::{FIRST, LAST, LAST_BOOSTED};
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::balancer_turn::Next;
use weir_core::reclaim::node_balancer::{DOZE_NS, MOST_FAILURES, Node, OTHERS_NS};

#[test]
fn it_wakes_below_low_and_stops_above_high() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, zone(GIB, marks.low.0 + 1))]);
    assert!(!node.wake(0, ZoneList::Normal, false), "between low and high it is not woken");
    assert_eq!(node.step(), Next::Asleep);
    node.change(LARGE, |zone| zone.free = marks.low.0);
    assert!(node.wake(0, ZoneList::Normal, false));
    node.sleep();
    let free = node.zone(LARGE).free;
    assert!(
        free > marks.high.0 && free <= marks.high.0 + 32,
        "{free} of {marks:?}: up to high, and no more than a batch beyond"
    );
}

#[test]
fn waking_stopping_and_sleeping_say_the_same() {
    // Whatever is free: it is woken only where the predicate says that something is missing, and sleeps only where nothing is.
    let marks = Marks::of(Pages(GIB), 10);
    for free in (0..2 * marks.high.0).step_by(37) {
        let node = FakeNode::new(&[(LARGE, zone(GIB, free))]);
        let was_balanced = node.is_balanced(0, ZoneList::Normal);
        let is_woken = node.wake(0, ZoneList::Normal, true);
        assert_eq!(is_woken, !was_balanced, "{free}");
        node.sleep();
        assert!(node.is_balanced(0, ZoneList::Normal), "{free}");
        assert_eq!(node.scans.borrow().is_empty(), was_balanced);
    }
}

#[test]
fn requests_that_arrive_while_it_is_awake_are_all_seen_to_before_it_sleeps() {
    let node = FakeNode::new(&[(LARGE, FakeZone { largest: 2, until_block: 3000, ..zone(GIB, GIB / 2) })]);
    assert!(node.wake(3, ZoneList::Normal, true));
    assert_eq!(node.step(), Next::Again);
    // Two more while it is awake: neither wakes it, the larger one counts.
    assert!(!node.wake(9, ZoneList::Normal, true) && !node.wake(5, ZoneList::Normal, true));
    node.sleep();
    let orders: Vec<u32> = node.scans.borrow().iter().map(|scan| scan.order).collect();
    assert!(orders.contains(&3) && orders.contains(&9) && !orders.contains(&5), "{orders:?}");
    assert!(!node.balancer.is_asked());
}

#[test]
fn it_dozes_first_and_sleeps_only_if_the_balance_lasts() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, zone(GIB, marks.low.0))]);
    node.wake(0, ZoneList::Normal, false);
    let (next, _) = node.settle();
    assert_eq!(next, Next::At(node.now() + DOZE_NS));
    assert!(!node.is_asleep());
    // Too early, and for no reason.
    node.pass_ms(50);
    assert_eq!(node.step(), Next::At(node.now() + DOZE_NS - Nanos(50 * MS)));
    // Others took it all meanwhile.
    node.change(LARGE, |zone| zone.free = 0);
    node.pass_ms(50);
    let scans = node.scans.borrow().len();
    let (next, _) = node.settle();
    assert!(matches!(next, Next::At(_)) && node.scans.borrow().len() > scans && node.zone(LARGE).free > marks.high.0);
    node.pass_ms(100);
    assert_eq!(node.settle().0, Next::Asleep);
    assert!(node.is_asleep() && !node.balancer.is_awake());
}

#[test]
fn scans_go_from_priority_12_to_1_and_take_no_more_than_is_missing() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    node.wake(0, ZoneList::Normal, false);
    node.settle();
    let priorities: Vec<u32> = node.scans.borrow().iter().map(|scan| scan.priority).collect();
    assert_eq!(priorities, (LAST..=FIRST).rev().collect::<Vec<_>>(), "one pass each, as nothing is reclaimed");
    // Plenty is found at once: one pass, of what is missing.
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, zone(GIB, marks.high.0 - 50))]);
    node.wake(0, ZoneList::Normal, true);
    node.settle();
    assert_eq!(node.reclaimed.get()[LARGE], 51);
    assert_eq!(node.scans.borrow().len(), 1);
}

#[test]
fn the_priority_falls_where_less_was_looked_at_than_was_wanted() {
    let marks = Marks::of(Pages(GIB), 10);
    // 64 pages are missing, of those that are looked at every second one is reclaimed.
    for (looked_at, second) in [(63, FIRST - 1), (64, FIRST), (65, FIRST)] {
        let cached = looked_at << FIRST;
        let node = FakeNode::new(&[(LARGE, FakeZone { yields: 2, cached, ..zone(GIB, marks.high.0 - 63) })]);
        node.wake(0, ZoneList::Normal, true);
        node.settle();
        let scans = node.scans.borrow();
        assert_eq!(scans[0].pages, Pages(64));
        assert_eq!([scans[0].priority, scans[1].priority], [FIRST, second], "{looked_at}");
    }
}

#[test]
fn of_a_shortage_that_others_share_a_run_takes_its_part_and_the_next_what_they_left() {
    let marks = Marks::of(Pages(GIB), 10);
    let low = || {
        let node = FakeNode::new(&[(LARGE, zone(GIB, marks.low.0))]);
        node.wake(0, ZoneList::Normal, false);
        node
    };
    let lacks = marks.high.0 + 1 - marks.low.0;
    for percent in [0, 1, 50] {
        let part = lacks * percent / 100;
        let near = |pages: usize| (pages..pages + 32).contains(&part) || pages >= part && pages <= part + 32;
        // The others give theirs while it dozes.
        let node = low();
        node.part.set(percent);
        let (next, _) = node.settle();
        assert_eq!(next, Next::At(Time(node.clock.get()) + OTHERS_NS));
        assert!(near(node.reclaimed.get()[LARGE]), "{percent} %");
        node.change(LARGE, |zone| zone.free = marks.high.0 + 1);
        node.sleep();
        assert!(near(node.reclaimed.get()[LARGE]), "{percent} %");
        // They do not: what is left is most of it, or a part is taken of it again.
        let node = low();
        node.part.set(percent);
        node.sleep();
        assert!(node.is_balanced(0, ZoneList::Normal) && !node.balancer.is_hopeless(LARGE));
        // Where it is urgent nobody is waited for. Of a severe level alone each takes its part.
        for is_urgent in [true, false] {
            let node = low();
            node.part.set(percent);
            node.severe.set(true);
            node.urgent.set(is_urgent);
            node.settle();
            assert_eq!(node.is_balanced(0, ZoneList::Normal), is_urgent, "{percent} %");
        }
    }
}

#[test]
fn only_what_comes_of_normal_counts_as_its_part() {
    let marks = Marks::of(Pages(GIB), 10);
    let lacks = marks.high.0 + 1 - marks.low.0;
    let part = lacks / 2;
    let taken = |small_lacks: bool| {
        let small = if small_lacks { 0 } else { GIB / 2 };
        let node = FakeNode::new(&[(SMALL, zone(GIB, small)), (LARGE, zone(GIB, marks.low.0))]);
        node.part.set(50);
        if small_lacks {
            node.wake(0, ZoneList::Low32, false);
        }
        node.wake(0, ZoneList::Normal, false);
        node.settle();
        node.reclaimed.get()
    };
    let alone = taken(false)[LARGE];
    assert!((part..part + 64).contains(&alone), "{alone} of {part}");
    let beside = taken(true);
    assert!(beside[SMALL] > part);
    assert_eq!(beside[LARGE], alone, "what comes of another zone is none of it");
}

#[test]
fn others_have_not_given_theirs_where_three_quarters_are_left() {
    let marks = Marks::of(Pages(GIB), 10);
    let lacks = marks.high.0 + 1 - marks.low.0;
    // What is missing then, and what the others gave of nine tenths meanwhile.
    let (most, quarter) = ((lacks * 3).div_ceil(4), (lacks - lacks / 10) / 4);
    let cases = [(lacks.div_ceil(2), 0, false), (most, 0, true), (lacks, 0, true)];
    // As much was taken as they gave.
    for (left, given, takes_all) in cases.into_iter().chain([(lacks, quarter, false), (lacks, quarter - 1, true)]) {
        let node = FakeNode::new(&[(LARGE, zone(GIB, marks.low.0))]);
        node.part.set(10);
        node.wake(0, ZoneList::Normal, false);
        let (Next::At(Time(until)), _) = node.settle() else { panic!("it dozes for the others") };
        let before = node.reclaimed.get()[LARGE];
        node.change(LARGE, |zone| zone.free = marks.high.0 + 1 - left);
        node.given.set(given);
        node.clock.set(until);
        node.settle();
        let taken = node.reclaimed.get()[LARGE] - before;
        assert_eq!(taken >= left, takes_all, "{taken} of {left}");
        assert!(takes_all || (left / 10..left / 10 + 64).contains(&taken), "{taken} of {left}");
    }
}

#[test]
fn the_next_shortage_is_another_one() {
    let marks = Marks::of(Pages(GIB), 10);
    let lacks = marks.high.0 + 1 - marks.low.0;
    let node = FakeNode::new(&[(LARGE, zone(GIB, marks.low.0))]);
    node.part.set(10);
    for shortage in 0..4 {
        node.change(LARGE, |zone| zone.free = marks.low.0);
        let before = node.reclaimed.get()[LARGE];
        node.wake(0, ZoneList::Normal, false);
        node.settle();
        // The others give theirs while it dozes, and a minute passes.
        node.change(LARGE, |zone| zone.free = marks.high.0 + 1);
        node.sleep();
        node.pass_ms(60_000);
        let taken = node.reclaimed.get()[LARGE] - before;
        assert!((lacks / 10..lacks / 10 + 64).contains(&taken), "shortage {shortage}: {taken} of {lacks}");
    }
}

#[test]
fn after_16_fruitless_runs_it_gives_up_until_balance_has_returned() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    node.wake(0, ZoneList::Normal, false);
    let begin = node.now();
    node.sleep();
    let runs = node.scans.borrow().iter().filter(|scan| scan.priority == FIRST).count();
    assert_eq!(runs, MOST_FAILURES as usize);
    assert!(node.balancer.is_hopeless(LARGE) && !node.balancer.is_awake());
    assert!(node.now() - begin >= DOZE_NS * u64::from(MOST_FAILURES), "it dozes between failures");
    assert!(!node.wake(0, ZoneList::Normal, false), "hopeless: nothing wakes it");
    // A little is freed, and can be reclaimed now: not enough to try again.
    node.change(LARGE, |zone| (zone.free, zone.yields) = (marks.low.0 / 2, 1));
    assert!(!node.wake(0, ZoneList::Normal, false) && node.balancer.is_hopeless(LARGE));
    // The balance has returned, by itself.
    node.change(LARGE, |zone| zone.free = marks.high.0 + 1);
    assert!(!node.wake(0, ZoneList::Normal, false) && !node.balancer.is_hopeless(LARGE));
    node.change(LARGE, |zone| zone.free = 0);
    assert!(node.wake(0, ZoneList::Normal, false));
    node.sleep();
    assert!(node.zone(LARGE).free > marks.high.0);
}

#[test]
fn a_hopeless_zone_is_tried_again_though_nobody_asks() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    node.wake(0, ZoneList::Normal, false);
    node.sleep();
    let mut runs = Vec::new();
    for _ in 0..10 {
        let (Next::At(until), before) = (node.step(), node.now()) else { panic!("it gave up") };
        assert!(node.is_asleep() && !node.balancer.is_awake() && !node.balancer.is_throttled(&node, ZoneClass::Normal));
        runs.push((until - before).0 / MS);
        node.clock.set(until.0);
        let scans = node.scans.borrow().len();
        node.sleep();
        assert_eq!(node.scans.borrow()[scans..].iter().filter(|scan| scan.priority == FIRST).count(), 1);
        // The time asleep is none in which it was awake.
        assert!(node.awake.get().0 < 100 * DOZE_NS.0);
    }
    // The doze after a run is a part of the pause.
    assert_eq!(runs, [900, 1900, 3900, 7900, 15_900, 31_900, 63_900, 63_900, 63_900, 63_900]);
    // Something can be had, in two parts: it is taken, and then the pause is a second again.
    node.change(LARGE, |zone| zone.yields = 1);
    node.change(LARGE, |zone| zone.cached = 100);
    node.clock.set(node.clock.get() + 64_000 * MS);
    node.sleep();
    assert_eq!(node.reclaimed.get()[LARGE], 100);
    assert_eq!(node.step(), Next::Asleep, "nothing is left to be reclaimed");
    node.change(LARGE, |zone| zone.cached = GIB);
    node.wake(0, ZoneList::Normal, false);
    node.sleep();
    assert!(node.zone(LARGE).free > marks.high.0 && !node.balancer.is_hopeless(LARGE));
    assert_eq!(node.step(), Next::Asleep);
}

#[test]
fn a_hopeless_zone_does_not_keep_another_from_being_balanced() {
    let marks = Marks::of(Pages(GIB), 10);
    let pinned = ZoneClass::Pinned as usize;
    let full = FakeZone { yields: 0, ..zone(GIB, 0) };
    let node = FakeNode::new(&[(LARGE, zone(GIB, marks.high.0 + 10)), (pinned, full)]);
    node.wake(0, ZoneList::Pinned, true);
    node.sleep();
    assert!(node.balancer.is_hopeless(pinned) && !node.balancer.is_hopeless(LARGE));
    node.change(LARGE, |zone| zone.free = 0);
    assert!(node.wake(0, ZoneList::Normal, false));
    node.sleep();
    assert!(node.zone(LARGE).free > marks.high.0);
}

#[test]
fn a_zone_without_anything_to_reclaim_is_no_reason_to_wake_and_no_failure() {
    let node = FakeNode::new(&[(LARGE, FakeZone { cached: 0, ..zone(GIB, 0) })]);
    for _ in 0..100 {
        assert!(!node.wake(0, ZoneList::Normal, false));
    }
    assert_eq!(node.step(), Next::Asleep);
    assert!(node.scans.borrow().is_empty() && !node.balancer.is_hopeless(LARGE));
}

#[test]
fn a_boost_of_a_balanced_node_is_reclaimed_gently() {
    let node = FakeNode::new(&[(LARGE, zone(GIB, GIB / 2))]);
    assert!(node.boost(ZoneClass::Normal, Pages(GIB / 128)));
    let boost = node.view()[LARGE].boost.0;
    assert_eq!(boost, GIB / 2 / 64);
    node.sleep();
    assert_eq!(node.reclaimed.get()[LARGE], boost);
    assert!(node.scans.borrow().iter().all(|scan| !scan.is_short && scan.priority >= LAST_BOOSTED));
    assert!(node.view()[LARGE].boost.is_zero());
}

#[test]
fn at_the_severe_level_a_boost_is_a_shortage_and_goes_to_priority_1() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 1000, ..zone(GIB, GIB / 2) })]);
    node.severe.set(true);
    assert!(node.boost(ZoneClass::Normal, Pages(GIB / 32)));
    node.sleep();
    let scans = node.scans.borrow();
    assert!(scans.iter().all(|scan| scan.is_short) && scans.iter().any(|scan| scan.priority < LAST_BOOSTED));
}

#[test]
fn runs_for_a_boost_are_no_failures_and_end() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, GIB / 2) })]);
    for _ in 0..2 * MOST_FAILURES {
        assert!(node.boost(ZoneClass::Normal, Pages(GIB / 128)));
        node.sleep();
    }
    assert!(!node.balancer.is_hopeless(LARGE));
    assert_eq!(node.scans.borrow().len(), (2 * MOST_FAILURES * 3) as usize, "priorities 12, 11, 10 each time");
}

#[test]
fn a_run_takes_off_only_the_boost_that_it_began_with() {
    let node = FakeNode::new(&[(LARGE, zone(GIB, GIB / 2))]);
    node.boost(ZoneClass::Normal, Pages(GIB / 4096));
    let first = node.view()[LARGE].boost.0;
    // Another event comes during the run's first scan.
    let came = std::cell::Cell::new(false);
    *node.during.borrow_mut() = Some(Box::new(move |node| {
        if !came.replace(true) {
            node.boost(ZoneClass::Normal, Pages(GIB / 4096));
        }
    }));
    while node.reclaimed.get()[LARGE] < first {
        assert_eq!(node.step(), Next::Again);
    }
    assert!(node.view()[LARGE].boost.0 >= first);
    node.sleep();
    assert_eq!(node.reclaimed.get()[LARGE], 2 * first, "the second event's share was not lost, nor reclaimed twice");
    assert!(node.view()[LARGE].boost.is_zero());
}

#[test]
fn a_low_node_that_is_boosted_is_balanced_as_any_other() {
    let marks = Marks::of(Pages(GIB), 10);
    let node = FakeNode::new(&[(LARGE, zone(GIB, 0))]);
    node.boost(ZoneClass::Normal, Pages(GIB / 4096));
    node.sleep();
    assert!(node.scans.borrow()[0].is_short && node.zone(LARGE).free > marks.high.0);
}

#[test]
fn congested_flags_are_cleared_and_throttled_allocations_let_go_before_it_sleeps() {
    let marks = Marks::of(Pages(GIB), 10);
    for yields in [0, 1] {
        let node = FakeNode::new(&[(LARGE, FakeZone { yields, ..zone(GIB, marks.min.0 / 2) })]);
        node.balancer.set_congested(ZoneClass::Normal, true);
        node.balancer.set_congested(ZoneClass::Low32, true);
        node.wake(0, ZoneList::Normal, false);
        // It waits for write-back nine times at most.
        for _ in 0..=9 {
            node.settle();
            node.pass_ms(if node.balancer.is_awake() { 100 } else { 0 });
        }
        assert!(!node.balancer.is_awake() && node.releases.get() > 0, "also before it dozes after a failure");
        assert!(!node.balancer.is_congested(ZoneClass::Normal) && !node.balancer.is_congested(ZoneClass::Low32));
    }
}

#[test]
fn it_keeps_to_its_share_of_the_cpu_but_at_the_severe_level() {
    for (severe, least, most) in [(false, 20, 26), (true, 99, 100)] {
        let node = FakeNode::new(&[(LARGE, FakeZone { yields: 200, ..zone(GIB, 0) })]);
        node.percent.set(25);
        node.severe.set(severe);
        node.scan_ns.set((3 * MS, 3 * MS));
        node.wake(0, ZoneList::Normal, false);
        let begin = node.now();
        while node.zone(LARGE).free <= Marks::of(Pages(GIB), 10).high.0 {
            if let Next::At(Time(at)) = node.step() {
                node.clock.set(node.now().0.max(at));
            }
        }
        let share = node.cpu.get() * 100 / (node.now() - begin).0;
        assert!((least..=most).contains(&share), "{share} %");
    }
}

/// The last pass of a run that fails is the longest, and the run does not wait for its end.
#[test]
fn a_run_that_failed_pays_for_its_last_pass_too() {
    let node = FakeNode::new(&[(LARGE, FakeZone { yields: 0, ..zone(GIB, 0) })]);
    node.percent.set(10);
    node.scan_ns.set((100 * MS, 100 * MS));
    let begin = node.now();
    for _ in 0..1000 {
        node.wake(0, ZoneList::Normal, false);
        if let Next::At(Time(at)) = node.step() {
            node.clock.set(node.now().0.max(at));
        }
        // But for the pass that was the last until now.
        assert!(node.cpu.get().saturating_sub(100 * MS) * 10 <= (node.now() - begin).0);
    }
    assert!(node.balancer.is_hopeless(LARGE));
}

#[test]
fn a_boost_of_a_small_zone_does_not_evict_all_of_it() {
    for severe in [false, true] {
        // 4 MiB, nearly all free but for a small cache.
        let node = FakeNode::new(&[(LARGE, zone(1000, 950))]);
        node.severe.set(severe);
        (0..3).for_each(|_| _ = node.boost(ZoneClass::Normal, Pages::BLOCK * if severe { 4 } else { 1 }));
        assert!(node.is_balanced(0, ZoneList::Normal), "a boosted zone can be balanced");
        // Its limit is lowered to a quarter meanwhile.
        node.change(LARGE, |zone| (zone.managed, zone.free) = (250, 200));
        assert!(node.is_balanced(0, ZoneList::Normal));
        node.sleep();
    }
}

#[test]
fn a_forked_child_begins_without_its_parents_boosts() {
    let node = FakeNode::new(&[(LARGE, zone(GIB, GIB / 2))]);
    node.boost(ZoneClass::Normal, Pages(GIB / 16));
    assert!(node.view()[LARGE].boost.0 > 0);
    node.balancer.inherit();
    assert!(node.view()[LARGE].boost.is_zero());
    assert_eq!(node.step(), Next::Asleep, "nor their requests");
}

#[test]
fn active_time_is_from_waking_to_sleeping_and_time_on_a_cpu_is_told_apart() {
    let node = FakeNode::new(&[(LARGE, zone(GIB, Marks::of(Pages(GIB), 10).high.0 - 10))]);
    // Of a scan of 5 ms the thread is scheduled out for 4.
    node.scan_ns.set((MS, 5 * MS));
    node.wake(0, ZoneList::Normal, true);
    node.sleep();
    assert_eq!(node.awake.get(), (5 * MS + DOZE_NS.0, MS));
    node.pass_ms(10_000);
    assert_eq!(node.step(), Next::Asleep);
    assert_eq!(node.awake.get(), (5 * MS + DOZE_NS.0, MS), "sleep is not counted");
}

#[test]
fn limits_below_what_is_in_use_and_zones_of_zero_pages_do_no_harm() {
    for (managed, free, cached) in [(0, 0, 0), (0, 0, 100), (1, 0, 1), (7, 0, 7), (64, 0, 10_000)] {
        let node = FakeNode::new(&[(
            LARGE,
            FakeZone { cached, yields: 1, ..FakeZone { managed, free, ..FakeZone::default() } },
        )]);
        node.wake(0, ZoneList::Normal, true);
        node.wake(10, ZoneList::Hugetlb, true);
        node.sleep();
        assert!(node.is_balanced(0, ZoneList::Normal), "{managed}");
        let reclaimed = node.reclaimed.get()[LARGE];
        assert!(reclaimed <= managed + 32, "{reclaimed} of {managed}");
    }
}
