//! Zone lists through the heap: a small locked zone, full of a cache's pages, before NORMAL. Each rule of the node balancer is
//! seen by what leaves the small zone.

use super::*;
use std::collections::VecDeque;
use weir_core::base::time::Nanos;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK_PAGES, Pages};
use weir_core::pages::Short;
use weir_core::pages::user_zone::{MemoryKind, UserZone};
use weir_core::pages::zone::PageRun;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;

use crate::pages::zones::{PRIVATE, zone_of};

const GIB: u64 = 1 << 30;
const PAGES: usize = 4 * PAGEBLOCK_PAGES;
const ANY: u64 = 0;
const ALL: u64 = 1;
const QUARTER: u64 = 2;
/// Pages of a request of order 5.
const BLOCK: usize = 32;

/// A locked zone of [`PAGES`] pages, in a heap that has 32 MiB idle in NORMAL.
struct Small {
    heap: TheHeap,
    queue: &'static Queue,
    zone: &'static UserZone,
    /// The cache's pages in the zone, those first that go first.
    cached: Arc<Mutex<VecDeque<usize>>>,
    cache: Option<Registered>,
}

fn marks() -> Marks {
    Marks::of(Pages(PAGES), 250)
}

fn small() -> Small {
    let (heap, queue) = (heap(), queue());
    heap.platform().tunables().background.set(1);
    serve_always(heap, queue);
    let locked = MemoryKind { reported: false, ..PRIVATE };
    let zone = Box::leak(zone_of(heap, 4, locked, NonNull::from(heap.platform())).0);
    let blocks: Vec<_> = (0..40).map(|_| heap.alloc(1 << 20)).collect();
    // SAFETY: allocated just now.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block) });
    Small { heap, queue, zone, cached: Arc::default(), cache: None }
}

impl Small {
    fn free_pages(&self) -> usize {
        PAGES - self.heap.pages().zone_usage(self.zone).used.0
    }

    fn take_first(&self, pages: usize) -> Result<PageRun, Short> {
        self.heap.zones().take_first(self.zone, Pages(pages), Order::PAGE)
    }

    /// Fills the zone with pages of a cache, but for `free` pages that do not lie side by side. What goes first lies apart, as
    /// what was not used for longest does. With `keeps` none of them can be evicted.
    fn fill(&mut self, free: usize, keeps: bool) {
        let (heap, zone) = (self.heap, self.zone);
        let take = |_| heap.pages().zone_addr(zone, heap.zones().take(zone, Pages(1), Order::PAGE).unwrap());
        let mut pages: Vec<usize> = (0..PAGES).map(take).collect();
        pages.sort_by_key(|page| (page / PAGE % 8, *page));
        pages.drain(..free).for_each(|page| heap.pages().zone_give(zone, page, Pages(1)).unwrap());
        *self.cached.lock().unwrap() = pages.into();
        let cached = self.cached.clone();
        let evict: OnScan = Box::new(move |bytes| {
            let mut cached = cached.lock().unwrap();
            let count = if keeps { 0 } else { bytes.div_ceil(PAGE).min(cached.len()) };
            cached.drain(..count).for_each(|page| heap.pages().zone_give(zone, page, Pages(1)).unwrap());
            Ok(if count == 0 { STOP } else { count * PAGE })
        });
        let (zone, zone_number) = (ZoneClass::Pinned, zone.number());
        let spec = CallbackSpec { zone, zone_number, ..shrinker("small", Class::Cache) };
        self.cache = Some(register(heap, self.queue, spec, PAGES * PAGE, Some(evict)).0);
    }

    /// The cache gives up what it has in the first pageblock.
    fn empty_a_pageblock(&self) {
        let mut cached = self.cached.lock().unwrap();
        let first = cached.iter().min().unwrap() / PAGEBLOCK;
        let (gone, left) = cached.drain(..).partition::<VecDeque<_>, _>(|page| page / PAGEBLOCK == first);
        *cached = left;
        gone.into_iter().for_each(|page| self.heap.pages().zone_give(self.zone, page, Pages(1)).unwrap());
    }

    /// NORMAL has `capacity` bytes, and so many above its low mark are free.
    fn normal_at_low(&self, capacity: u64, above: usize) {
        let free = Marks::of(Pages::in_bytes(capacity as usize), 250).low.bytes().0 + above;
        self.heap.reclaim().read_room(Room::shared(capacity, capacity - free as u64));
    }

    /// Steps until the balancer sleeps; lets the time of dozes and waits pass.
    fn balance(&self) {
        let mut turn = Turn::default();
        for _ in 0..10_000 {
            match self.heap.reclaim().balance_zones(&mut turn) {
                Next::Again => {}
                Next::At(at) if !turn.is_asleep() => {
                    self.heap.platform().pass_ms(at.since(self.heap.platform().now()).0.div_ceil(1_000_000))
                }
                _ => return,
            }
        }
        panic!("the balancer never sleeps");
    }

    fn wakeups(&self) -> u64 {
        self.heap.platform().stats().wakeups.load(SeqCst)
    }

    fn evicted(&self, before: usize) -> usize {
        before - self.cached.lock().unwrap().len()
    }

    fn end(self) {
        if let Some(cache) = self.cache {
            cache.unregister(self.heap);
        }
        self.heap.pages().zone_audit(self.zone).unwrap();
        self.heap.pages().remove_zone(self.zone);
    }
}

#[test]
fn a_request_falls_back_at_low_and_the_zone_serves_down_to_min_where_normal_is_low_too() {
    let small = small();
    small.heap.reclaim().read_room(Room::shared(GIB, GIB / 2));
    while small.take_first(1).is_ok() {}
    assert_eq!((small.free_pages(), small.wakeups()), (marks().low.0 + 1, 0), "NORMAL is next, and has plenty");
    // What is left is for requests that use no other zone.
    small.heap.zones().take(small.zone, Pages(1), Order::PAGE).unwrap();
    small.normal_at_low(GIB, 1);
    let wakeups = small.wakeups();
    while small.take_first(1).is_ok() {}
    assert_eq!(small.free_pages(), marks().min.0 + 1);
    assert_eq!(wakeups, 1, "by the reading, for the idle pages of NORMAL");
    small.end();
}

/// Pages that leave the small zone for one request of order 5 along the list, which NORMAL could serve as well.
fn needless(policy: u64, capacity: u64) -> usize {
    let mut small = small();
    small.fill(PAGES / 8, false);
    let cached = small.cached.lock().unwrap().len();
    small.heap.platform().tunables().balance_policy.set(policy);
    small.normal_at_low(capacity, 1);
    assert!(small.take_first(BLOCK).is_err(), "free pages, and no block");
    assert_eq!(small.wakeups(), 1, "no zone of the list is above low for the order");
    small.balance();
    let normal = small.heap.reclaim().budget_figures();
    assert!(normal.free > normal.high, "NORMAL serves the request: {normal:?}");
    let evicted = small.evicted(cached);
    small.end();
    evicted
}

#[test]
fn a_high_order_that_normal_serves_takes_nothing_from_the_small_zone_unless_all_must_be_balanced() {
    let [any, all, quarter] = [ANY, ALL, QUARTER].map(|policy| needless(policy, GIB));
    println!("pages that leave the small zone: any {any}, all {all}, a quarter {quarter}");
    assert!(any <= 1 && quarter == any, "the first pass's batch: any {any}, a quarter {quarter}");
    assert!(all >= 2 * BLOCK, "as much as it may try for a block: {all}");
    // NORMAL is less than a quarter of the two now.
    let [any, quarter] = [ANY, QUARTER].map(|policy| needless(policy, 2 << 20));
    println!("where NORMAL is less than a quarter: any {any}, a quarter {quarter}");
    assert!(any <= 1 && quarter >= 2 * BLOCK, "any {any}, a quarter {quarter}");
}

#[test]
fn a_block_that_does_not_come_costs_the_small_zone_twice_its_pages_whatever_another_zone_lacks() {
    for policy in [ANY, ALL, QUARTER] {
        let mut small = small();
        small.heap.purge();
        small.fill(PAGES / 8, false);
        small.heap.platform().tunables().balance_policy.set(policy);
        // What lies in NORMAL is dirty, and none of it goes.
        let (dirty, _) =
            register(small.heap, small.queue, shrinker("dirty", Class::Cache), SIZE, Some(Box::new(|_| Ok(0))));
        let cached = small.cached.lock().unwrap().len();
        small.normal_at_low(GIB, 1);
        assert!(small.take_first(BLOCK).is_err());
        small.balance();
        let evicted = small.evicted(cached);
        assert!((2 * BLOCK..=4 * BLOCK).contains(&evicted), "policy {policy}: {evicted}");
        dirty.unregister(small.heap);
        small.end();
    }
}

#[test]
fn an_order_that_was_given_up_is_tried_again_in_100_ms_and_not_for_each_request() {
    let mut small = small();
    small.heap.purge();
    small.fill(PAGES / 4, false);
    let cached = small.cached.lock().unwrap().len();
    small.normal_at_low(GIB, 1);
    let mut turn = Turn::default();
    let mut evicted = || {
        assert!(small.take_first(BLOCK).is_err());
        while small.heap.reclaim().balance_zones(&mut turn) == Next::Again {}
        small.evicted(cached)
    };
    let first = evicted();
    assert!((2 * BLOCK..=4 * BLOCK).contains(&first), "{first}");
    assert_eq!([evicted(), evicted()], [first; 2]);
    small.heap.platform().pass_ms(100);
    assert!(evicted() >= first + 2 * BLOCK);
    small.end();
}

#[test]
fn order_0_of_the_small_zone_is_seen_to_before_the_balancer_sleeps() {
    let mut small = small();
    small.fill(marks().low.0, false);
    small.normal_at_low(GIB, 1);
    assert!(small.take_first(BLOCK).is_err());
    small.balance();
    let free = small.free_pages();
    assert!(free > marks().high.0 && free <= marks().high.0 + 32, "{free} of {:?}: up to high, and no more", marks());
    small.end();
}

#[test]
fn a_zone_that_a_request_cannot_use_neither_ends_its_run_nor_gives_for_it() {
    let mut small = small();
    // The small zone is balanced, for a block of the order too. A zone that counts as NORMAL, and is full, asks for one along
    // NORMAL's list.
    small.fill(PAGES / 4, false);
    small.empty_a_pageblock();
    let cached = small.cached.lock().unwrap().len();
    let (heap, fake) = (small.heap, NonNull::from(small.heap.platform()));
    let (other, _) = zone_of(heap, 1, PRIVATE, fake);
    let run = heap.zones().take(&other, Pages::BLOCK, Order::PAGE).unwrap();
    // NORMAL is balanced for a page, and not for the block.
    let free = Marks::of(Pages::in_bytes(GIB as usize), 250).high.bytes().0 + 4 * PAGE;
    heap.reclaim().read_room(Room::shared(GIB, GIB - free as u64));
    assert!(heap.zones().take(&other, Pages(BLOCK), Order::PAGE).is_err());
    small.balance();
    let normal = heap.reclaim().budget_figures();
    assert!(normal.free > normal.high + BLOCK * PAGE - PAGE, "{normal:?}");
    assert_eq!(small.evicted(cached), 0);
    heap.pages().zone_give(&other, heap.pages().zone_addr(&other, run), Pages::BLOCK).unwrap();
    heap.pages().remove_zone(&other);
    small.end();
}

#[test]
fn a_request_for_the_small_zone_alone_is_not_ended_by_normal_and_reclaims_on_its_own_side() {
    let mut small = small();
    small.fill(marks().high.0 + BLOCK + 1, false);
    small.heap.reclaim().read_room(Room::shared(GIB, 0));
    let stats = small.heap.platform().stats();
    let sides = || [&stats.scanned_pages, &stats.reclaimed_pages].map(|all| [0, 1].map(|side| all[side].load(SeqCst)));
    let before = sides();
    assert!(small.heap.zones().take(small.zone, Pages(BLOCK), Order::PAGE).is_ok(), "however much of NORMAL is free");
    let [scanned, reclaimed] = sides();
    assert_eq!([scanned[0], reclaimed[0]], [before[0][0], before[1][0]], "the balancer has not run");
    assert!(reclaimed[1] > before[1][1] && scanned[1] >= reclaimed[1], "the allocation has: {scanned:?} {reclaimed:?}");
    assert_eq!(stats.direct_reclaims.load(SeqCst), 1);
    small.end();
}

#[test]
fn a_zone_of_which_nothing_can_be_reclaimed_wakes_nobody_until_it_is_balanced_again() {
    let mut small = small();
    small.heap.purge();
    small.fill(marks().low.0, true);
    small.normal_at_low(GIB, 1);
    let calls = |small: &Small| small.cache.map(|cache| cache.entry().stats().calls);
    let runs = |small: &Small| {
        assert!(small.take_first(BLOCK).is_err());
        let (calls_before, wakeups) = (calls(small), small.wakeups());
        small.balance();
        (calls(small).zip(calls_before).map(|(after, before)| after - before), wakeups)
    };
    assert_eq!(runs(&small), (Some(16 * 12), 1), "sixteen fruitless runs");
    assert_eq!(runs(&small), (Some(0), 1), "and no more");
    // Half of it is freed: it is balanced. Then others take it all.
    let more: Vec<usize> = small.cached.lock().unwrap().drain(..PAGES / 2).collect();
    more.into_iter().for_each(|page| small.heap.pages().zone_give(small.zone, page, Pages(1)).unwrap());
    small.normal_at_low(GIB, 1);
    while small.heap.pages().zone_take(small.zone, Pages(1), Order::PAGE).is_ok() {}
    assert_eq!(runs(&small), (Some(16 * 12), 2));
    small.end();
}

#[test]
fn a_zone_in_which_no_cache_lies_takes_nothing_from_a_cache_in_another_one_of_the_class() {
    let mut small = small();
    // Of what both have together next to nothing is free, and a tenth of the small one is.
    small.fill(PAGES / 10, false);
    let (heap, cached) = (small.heap, small.cached.lock().unwrap().len());
    let locked = MemoryKind { reported: false, ..PRIVATE };
    let (full, _) = zone_of(heap, 16, locked, NonNull::from(heap.platform()));
    while heap.pages().zone_take(&full, Pages(1), Order::PAGE).is_ok() {}
    small.normal_at_low(GIB, 1);
    for pages in [1, BLOCK] {
        assert!(heap.zones().take(&full, Pages(pages), Order::PAGE).is_err());
        assert!(heap.zones().take_first(&full, Pages(pages), Order::PAGE).is_err());
        small.balance();
    }
    assert_eq!((small.evicted(cached), heap.callbacks().events().latest().generation), (0, 0));
    heap.pages().remove_zone(&full);
    small.end();
}

#[test]
fn a_zone_takes_nothing_from_caches_in_others_of_the_class_as_its_own_has_nothing_left() {
    let mut small = small();
    small.fill(PAGES / 2, false);
    let (heap, cached) = (small.heap, small.cached.lock().unwrap().len());
    let locked = MemoryKind { reported: false, ..PRIVATE };
    let (other, _) = zone_of(heap, 1, locked, NonNull::from(heap.platform()));
    let (zone, zone_number) = (ZoneClass::Pinned, other.number());
    let spec = CallbackSpec { zone, zone_number, ..shrinker("other", Class::Cache) };
    let (empty, told) = register(heap, small.queue, spec, SIZE, Some(Box::new(|_| Ok(STOP))));
    while heap.pages().zone_take(&other, Pages(1), Order::PAGE).is_ok() {}
    assert!(heap.zones().take(&other, Pages(1), Order::PAGE).is_err());
    assert!(!told.scans.lock().unwrap().is_empty());
    assert_eq!(small.evicted(cached), 0);
    empty.unregister(heap);
    heap.pages().remove_zone(&other);
    small.end();
}

#[test]
fn a_cache_below_4_gib_may_grow_down_to_the_low_mark_there_while_normal_has_room() {
    let heap = heap();
    const RUN: usize = 64 << 10;
    assert!(heap.reclaim().may_grow_low32(RUN), "there is no zone yet");
    let may_take = |_: &usize| heap.reclaim().may_grow_low32(RUN);
    let taken = (0..).take_while(may_take).map(|_| assert!(!heap.alloc_low32(RUN).is_null())).count();
    let left = (0..).take_while(|_| !heap.alloc_low32(RUN).is_null()).count();
    let low = Marks::of(Pages::in_bytes((taken + left) * RUN), 250).low.bytes().0;
    assert!(
        left > 0 && left * RUN <= low + RUN,
        "{taken} runs of {RUN} bytes and {left} more, where low is {low} bytes"
    );
    let heap = self::heap();
    heap.reclaim().read_room(Room::shared(GIB, GIB - (1 << 20)));
    assert!(!heap.reclaim().may_grow_low32(RUN));
}

#[test]
fn what_a_cache_holds_below_4_gib_goes_for_a_request_that_can_use_no_other_pages() {
    let (heap, queue) = served();
    let runs: Arc<Mutex<VecDeque<usize>>> = Arc::default();
    let cached = runs.clone();
    let evict: OnScan = Box::new(move |_| {
        let Some(run) = cached.lock().unwrap().pop_front() else { return Ok(STOP) };
        // SAFETY: the cache's run, which it gives up.
        unsafe { heap.free(run as *mut u8) };
        Ok(4 << 20)
    });
    let spec = CallbackSpec { zone: ZoneClass::Low32, ..shrinker("low", Class::Cache) };
    let (cache, _) = register(heap, queue, spec, SIZE, Some(evict));
    // More than there is below 4 GiB.
    for _ in 0..2000 {
        let run = heap.alloc_low32(4 << 20);
        assert!(!run.is_null() && (run as usize) < 4 << 30);
        runs.lock().unwrap().push_back(run as usize);
    }
    assert!(runs.lock().unwrap().len() < 1024);
    cache.unregister(heap);
}

/// A small zone that is low, of which nothing that is clean is left.
fn dirty() -> Small {
    let mut small = small();
    small.heap.purge();
    small.fill(marks().low.0, true);
    small.normal_at_low(GIB, 1);
    assert!(small.take_first(BLOCK).is_err());
    small
}

#[test]
fn the_balancer_waits_for_write_back_before_it_takes_more() {
    let [ms, congested_ms] = [false, true].map(|is_congested| {
        let small = dirty();
        small.heap.reclaim().set_congested(ZoneClass::Pinned, is_congested);
        let begin = small.heap.platform().now();
        small.balance();
        let ms = (small.heap.platform().now() - begin).0 / 1_000_000;
        small.end();
        ms
    });
    assert_eq!(
        congested_ms,
        ms + 900,
        "100 ms at each of the priorities 9 to 1 of one run: it forgets before it sleeps"
    );
}

#[test]
fn the_balancer_goes_on_as_soon_as_write_back_has_caught_up() {
    let small = dirty();
    let (heap, mut turn, mut waits) = (small.heap, Turn::default(), 0);
    heap.reclaim().set_congested(ZoneClass::Pinned, true);
    while waits < 2 {
        if let Next::At(at) = heap.reclaim().balance_zones(&mut turn) {
            assert_eq!(at, heap.platform().now() + Nanos(100_000_000));
            waits += 1;
            heap.platform().pass_ms(if waits < 2 { 100 } else { 0 });
        }
    }
    heap.reclaim().set_congested(ZoneClass::Pinned, false);
    assert_eq!(heap.reclaim().balance_zones(&mut turn), Next::Again);
    small.end();
}

/// The pages that the balancer counts as reclaimed. A cache in NORMAL says that it evicted what was asked: into another
/// allocator's memory if so said. By each eviction the process becomes smaller by as much, if its size is known.
fn counted(is_elsewhere: bool, is_known: bool) -> u64 {
    let (heap, queue) = (heap(), queue());
    heap.platform().tunables().background.set(1);
    let elsewhere = &heap.platform().elsewhere;
    elsewhere.0.store(GIB, SeqCst);
    elsewhere.1.store(if is_known { GIB } else { 0 }, SeqCst);
    serve_always(heap, queue);
    let evict: OnScan = Box::new(move |bytes| {
        let pages = (bytes.div_ceil(PAGE) * PAGE) as u64;
        let elsewhere = &heap.platform().elsewhere;
        elsewhere.0.fetch_add(if is_elsewhere { pages } else { 0 }, SeqCst);
        elsewhere.1.fetch_sub(if is_known { pages } else { 0 }, SeqCst);
        Ok(pages as usize)
    });
    let (cache, told) = register(heap, queue, shrinker("values", Class::Cache), 64 << 20, Some(evict));
    let low = Marks::of(Pages::in_bytes(GIB as usize), 250).low.bytes().0;
    heap.reclaim().read_room(Room::shared(GIB, GIB - low as u64 + (1 << 20)));
    let mut turn = Turn::default();
    let mut steps = 0;
    while told.scans.lock().unwrap().is_empty() || steps < 4 {
        let next = heap.reclaim().balance_zones(&mut turn);
        let Next::At(at) = next else {
            assert_eq!(next, Next::Again, "NORMAL lacks memory");
            steps += 1;
            continue;
        };
        heap.platform().pass_ms(at.since(heap.platform().now()).0.div_ceil(1_000_000));
    }
    let asked: usize = told.scans.lock().unwrap().iter().map(|bytes| bytes.div_ceil(PAGE)).sum();
    let counted = heap.platform().stats().reclaimed_pages[0].load(SeqCst);
    assert!(counted == 0 || counted == asked as u64, "{counted} pages of {asked} that went");
    cache.unregister(heap);
    counted
}

#[test]
fn what_another_allocator_gave_back_counts_by_what_the_process_lost() {
    assert!(counted(true, true) > 0);
    assert_eq!(counted(true, false), 0, "the process may hold it still");
    assert_eq!(counted(false, true), 0, "the process became smaller by what others did");
}
