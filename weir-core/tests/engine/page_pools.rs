//! Page pools: what is idle in them goes back in time, what is in flight never does.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::units::{MAX_RUN, PAGE, PAGEBLOCK};
use weir_core::heap::Heap;
use weir_core::heap::page_pools::InFlight;
use weir_core::platform::{Clock, Diagnostics};
use weir_core::pools::page_pool::{PagePool, PoolSpec, PoolStats};

use crate::fake::{Call, Fake};

const TENDED: PoolSpec<'_> = PoolSpec { name: b"tended", max_idle_pages: None, squeeze_ms: None, is_tended: true };

/// The runs that are in flight from a pool: address, and pages and byte.
type Runs = BTreeMap<usize, (usize, u8)>;

/// A heap with pools.
struct World {
    heap: Box<Heap<Fake>>,
    pools: Vec<(Box<PagePool>, Runs)>,
    next_byte: u8,
}

impl World {
    fn new(specs: &[PoolSpec<'_>]) -> Self {
        let mut world = Self { heap: Box::new(Heap::new(Fake::new())), pools: Vec::new(), next_byte: 0 };
        world.heap.prepare();
        specs.iter().for_each(|spec| world.add(spec));
        world
    }

    fn add(&mut self, spec: &PoolSpec<'_>) {
        let pool = Box::new(PagePool::new(spec));
        // SAFETY: it stays in its box until it is taken off the list.
        unsafe { self.heap.add_pool(NonNull::from(&*pool)) };
        self.pools.push((pool, BTreeMap::new()));
    }

    fn fake(&self) -> &Fake {
        self.heap.platform()
    }

    fn stats(&self, pool: usize) -> PoolStats {
        self.heap.pool_stats(&self.pools[pool].0)
    }

    fn idle(&self, pool: usize) -> usize {
        self.stats(pool).idle_pages
    }

    /// Takes a run and fills it; `None`: refused.
    fn get(&mut self, pool: usize, pages: usize) -> Option<usize> {
        let run = self.heap.pool_get(&self.pools[pool].0, pages);
        if run.is_null() {
            return None;
        }
        assert!(run.addr().is_multiple_of(PAGE));
        let len = Heap::<Fake>::pool_run_pages(pages) * PAGE;
        self.next_byte = self.next_byte % 250 + 1;
        // SAFETY: just handed out.
        unsafe { run.write_bytes(self.next_byte, len) };
        self.fake().hold(run.addr(), len);
        let before = self.pools[pool].1.insert(run.addr(), (len / PAGE, self.next_byte));
        assert_eq!(before, None, "a run that is in flight was handed out again");
        Some(run.addr())
    }

    fn check(&self, addr: usize, pages: usize, byte: u8) {
        // SAFETY: in flight.
        let bytes = unsafe { std::slice::from_raw_parts(addr as *const u8, pages * PAGE) };
        assert!(bytes.iter().step_by(512).all(|&found| found == byte), "a run in flight lost its contents");
    }

    fn put(&mut self, pool: usize, runs: &[usize]) {
        for &addr in runs {
            let (pages, byte) = self.pools[pool].1.remove(&addr).unwrap();
            self.check(addr, pages, byte);
            self.fake().let_go(addr);
        }
        let runs: Vec<*mut u8> = runs.iter().map(|&run| run as *mut u8).collect();
        // SAFETY: in flight, and not used any more.
        unsafe { self.heap.pool_put(&self.pools[pool].0, &runs) };
    }

    /// Takes `count` single pages and puts them back.
    fn fill(&mut self, pool: usize, count: usize) {
        let pages: Vec<usize> = (0..count).map(|_| self.get(pool, 1).unwrap()).collect();
        self.put(pool, &pages);
    }

    fn signal(&self) {
        self.heap.note_pressure(Level::Some, Cause::Pressure);
    }

    /// A pressure event as the background thread has it.
    fn pressure(&self, level: Level) {
        self.heap.note_pressure(level, Cause::Pressure);
        self.heap.balance_pressure(level, Cause::Pressure);
    }

    fn calm(&self) {
        self.fake().pass_ms(self.fake().tunables().idle_ms.get());
        self.heap.balance_calm();
    }

    /// The balancer's thread does what is due at the time.
    fn balancer(&self) {
        self.heap.tend_pools();
        self.audit();
    }

    fn audit(&self) {
        self.heap.audit().unwrap();
        for (pool, runs) in &self.pools {
            assert_eq!(self.heap.pool_stats(pool).in_flight_pages, runs.values().map(|run| run.0).sum::<usize>());
            runs.iter().for_each(|(&addr, &(pages, byte))| self.check(addr, pages, byte));
        }
    }

    /// Bytes that were released since the last call.
    fn released(&self) -> usize {
        self.fake().take_released().concat().iter().map(|run| run.len).sum()
    }

    fn finish(mut self) {
        for pool in 0..self.pools.len() {
            let runs: Vec<usize> = self.pools[pool].1.keys().copied().collect();
            self.put(pool, &runs);
            self.heap.remove_pool(&self.pools[pool].0).unwrap();
        }
        assert_eq!(self.heap.audit().unwrap().runs, 0, "pages of pools that have ended");
    }
}

#[test]
fn a_pool_starts_from_zero_and_grows_on_demand() {
    let mut world = World::new(&[PoolSpec::default()]);
    assert_eq!(world.stats(0), PoolStats::default());
    assert_eq!(world.fake().calls(Call::MapAt), 0, "nothing is mapped for a pool that is not used");
    let run = world.get(0, 8).unwrap();
    assert_eq!(world.stats(0), PoolStats { in_flight_pages: 8, gets: 1, misses: 1, ..PoolStats::default() });
    world.put(0, &[run]);
    assert_eq!((world.idle(0), world.stats(0).in_flight_pages), (8, 0));
    assert_eq!(world.get(0, 8), Some(run), "what was put last is taken first");
    assert_eq!((world.stats(0).gets, world.stats(0).misses), (2, 1));
    let usage = world.heap.usage();
    assert!(usage.live >= 8 * PAGE);
    world.put(0, &[run]);
    let idle = world.heap.usage().idle - usage.idle;
    assert_eq!((usage.live - world.heap.usage().live, idle), (8 * PAGE, 8 * PAGE), "idle in a pool is idle");
    world.finish();
}

#[test]
fn a_run_is_of_a_length_that_a_put_finds_again() {
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(usize::MAX), ..PoolSpec::default() }]);
    for pages in [1, 2, 3, 5, 9, 17, 100, 129, 1000, MAX_RUN] {
        let run = world.get(0, pages).unwrap();
        assert_ne!(world.get(0, pages), Some(run));
        let idle = world.idle(0);
        world.put(0, &[run]);
        let own = Heap::<Fake>::pool_run_pages(pages);
        assert_eq!(world.idle(0) - idle, own);
        assert_eq!(world.get(0, own), Some(run));
    }
    let none = world.heap.pool_get(&world.pools[0].0, MAX_RUN + 1);
    assert!(none.is_null() && world.heap.pool_get(&world.pools[0].0, 0).is_null());
    world.finish();
}

#[test]
fn when_the_requests_are_done_max_idle_pages_are_left() {
    let mut world = World::new(&[PoolSpec::default()]);
    let pages: Vec<usize> = (0..3000).map(|_| world.get(0, 1).unwrap()).collect();
    world.put(0, &pages[1..]);
    assert_eq!(world.idle(0), 2999, "requests are under way: the next ones may want as much");
    world.put(0, &pages[..1]);
    assert_eq!(world.idle(0), 1024);
    world.fake().tunables().set("max_idle_pages", "10").unwrap();
    world.fill(0, 1);
    assert_eq!(world.idle(0), 10, "the setting of all counts from the next put on");
    world.pools[0].0.set_max_idle_pages(Some(3));
    world.fill(0, 1);
    assert_eq!(world.idle(0), 3, "the pool's own goes before it");
    world.pools[0].0.set_max_idle_pages(None);
    world.fill(0, 40);
    assert_eq!(world.idle(0), 10);
    world.finish();
}

#[test]
fn with_runs_in_flight_too_many_idle_pages_stay_for_100_ms() {
    let mut world = World::new(&[PoolSpec::default()]);
    let long = world.get(0, 1).unwrap();
    let notices = world.fake().notices.load(Relaxed);
    world.fill(0, 3000);
    assert_eq!(world.idle(0), 3000);
    assert!(world.fake().notices.load(Relaxed) > notices, "the balancer sleeps without a time to wake up: it is woken");
    let due = world.heap.pools_due().unwrap();
    assert_eq!(due, world.fake().now() + 100_000_000);
    // It does not begin anew with each put.
    world.fake().pass_ms(99);
    world.fill(0, 2000);
    assert_eq!(world.heap.pools_due(), Some(due));
    world.balancer();
    assert_eq!(world.idle(0), 3000);
    world.fake().pass_ms(1);
    world.balancer();
    assert_eq!((world.idle(0), world.heap.pools_due()), (1024, None));
    assert_eq!(world.stats(0).squeezed_pages, 0);
    world.put(0, &[long]);
    world.finish();
}

#[test]
fn what_was_asked_for_longest_ago_goes_first() {
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(64), ..PoolSpec::default() }]);
    world.fill(0, 64);
    // The load changes to longer runs: single pages make room for them.
    for _ in 0..3 {
        let runs: Vec<usize> = (0..4).map(|_| world.get(0, 16).unwrap()).collect();
        world.put(0, &runs);
        assert_eq!(world.idle(0), 64);
    }
    let misses = world.stats(0).misses;
    let runs: Vec<usize> = (0..4).map(|_| world.get(0, 16).unwrap()).collect();
    assert_eq!(world.stats(0).misses, misses, "the runs stayed, the pages went");
    world.put(0, &runs);
    world.finish();
}

#[test]
fn a_pressure_event_takes_what_is_idle_and_releases_it() {
    for level in [Level::Some, Level::Severe] {
        let mut world = World::new(&[PoolSpec::default(), PoolSpec::default()]);
        let held = world.get(0, 100).unwrap();
        world.fill(0, 1000);
        world.fill(1, 1000);
        world.released();
        world.pressure(level);
        assert_eq!((world.idle(0), world.idle(1)), (0, 0));
        assert!(world.released() >= 2000 * PAGE);
        let stats = world.stats(0);
        assert_eq!((stats.squeezes, stats.squeezed_pages, stats.in_flight_pages), (1, 1000, 112));
        world.audit();
        // Taken anew: that is what the squeeze cost.
        world.fake().pass_ms(11);
        world.fill(0, 1200);
        assert_eq!(world.stats(0).misses_after_squeeze, 1000);
        world.put(0, &[held]);
        world.finish();
    }
}

#[test]
fn in_the_window_a_put_leaves_nothing_and_each_event_extends_it() {
    let mut world = World::new(&[PoolSpec::default()]);
    let long = world.get(0, 1).unwrap();
    world.pressure(Level::Some);
    world.fake().pass_ms(9);
    world.fill(0, 50);
    assert_eq!((world.idle(0), world.stats(0).squeezed_pages), (0, 50));
    world.pressure(Level::Some);
    world.fake().pass_ms(9);
    world.fill(0, 50);
    assert_eq!((world.idle(0), world.stats(0).squeezed_pages), (0, 100));
    assert_eq!(world.stats(0).squeezes, 2, "counted once an event");
    world.fake().pass_ms(1);
    world.fill(0, 50);
    assert_eq!(world.idle(0), 50, "the window has passed");
    // A longer window for this pool counts at once, from the same event.
    world.pools[0].0.set_squeeze_ms(Some(20));
    world.fill(0, 1);
    assert_eq!(world.idle(0), 0);
    world.put(0, &[long]);
    world.finish();
}

#[test]
fn what_puts_give_up_in_a_window_is_released_10_ms_later_in_one_go() {
    let mut world = World::new(&[PoolSpec::default()]);
    let pages: Vec<usize> = (0..1000).map(|_| world.get(0, 1).unwrap()).collect();
    world.pressure(Level::Some);
    world.fake().pass_ms(5);
    world.released();
    pages.iter().for_each(|&page| world.put(0, &[page]));
    assert_eq!((world.idle(0), world.released()), (0, 0), "a put makes no system call for it");
    let due = world.heap.pools_due().unwrap();
    assert_eq!(due, world.fake().now() + 10_000_000);
    world.fake().pass_ms(10);
    world.balancer();
    assert!(world.released() >= 1000 * PAGE);
    assert_eq!(world.heap.pools_due(), None);
    world.finish();
}

#[test]
fn a_pool_that_is_not_squeezed_keeps_its_pages_under_pressure() {
    let mut world = World::new(&[PoolSpec { squeeze_ms: Some(0), ..PoolSpec::default() }]);
    world.fill(0, 500);
    world.pressure(Level::Severe);
    world.fill(0, 500);
    assert_eq!((world.idle(0), world.stats(0).squeezes), (500, 0));
    world.heap.trim();
    assert_eq!((world.idle(0), world.stats(0).squeezes), (0, 0), "malloc_trim takes all that is idle");
    world.finish();
}

/// An I/O buffer is not idle because its queue is quiet: a request may be under way below for as long as it likes (the
/// corruption for which two ublk libraries took the release of idle buffers out again).
#[test]
fn the_ring_is_silent_is_not_its_buffers_are_idle() {
    let mut world = World::new(&[PoolSpec::default(), TENDED]);
    for pool in 0..2 {
        // A page, a run, a run of more than a huge page; and as much that is idle.
        for pages in [1, 1, 8, 8, 600, 600] {
            world.get(pool, pages).unwrap();
        }
        let idle: Vec<usize> = world.pools[pool].1.keys().copied().step_by(2).collect();
        world.put(pool, &idle);
    }
    world.fake().tunables().set("hard_limit", "64M").unwrap();
    for round in 0..4 {
        // No get and no put from here on. The platform refuses a release of what is held.
        world.fake().pass_ms(1000);
        world.pressure(if round % 2 == 0 { Level::Some } else { Level::Severe });
        world.balancer();
        world.pools.iter().for_each(|(pool, _)| _ = world.heap.tend_pool(pool));
        world.calm();
        world.heap.balance_rest();
        world.heap.trim();
        assert!(world.heap.alloc(65 << 20).is_null(), "direct reclaim takes all that is idle");
        world.audit();
        for pool in 0..2 {
            assert_eq!(world.idle(pool), 0);
            assert!(world.stats(pool).in_flight_pages > 600);
        }
    }
    world.finish();
}

#[test]
fn the_program_is_the_owner_of_a_pool_that_it_tends() {
    let mut world = World::new(&[TENDED]);
    world.fill(0, 500);
    world.pressure(Level::Severe);
    world.balancer();
    assert_eq!(world.idle(0), 500, "the event frees nothing: the owner does");
    let notices = world.fake().notices.load(Relaxed);
    world.released();
    assert_eq!(world.heap.tend_pool(&world.pools[0].0), 500);
    assert_eq!((world.idle(0), world.stats(0).squeezes), (0, 1));
    assert_eq!(world.released(), 0, "the owner makes no system call but the one that wakes the balancer");
    assert!(world.fake().notices.load(Relaxed) > notices);
    assert_eq!(world.heap.pools_due(), Some(world.fake().now()), "which releases the pages at once");
    world.balancer();
    assert!(world.released() >= 500 * PAGE);
    // One that comes after the window sees that there was one.
    world.fake().pass_ms(1000);
    world.fill(0, 500);
    assert_eq!((world.heap.tend_pool(&world.pools[0].0), world.idle(0)), (0, 500));
    world.signal();
    world.fake().pass_ms(1000);
    assert_eq!((world.heap.tend_pool(&world.pools[0].0), world.idle(0)), (500, 0));
    // Where an allocation would fail otherwise, the pages are taken whoever the owner is.
    world.fill(0, 500);
    world.heap.trim();
    assert_eq!(world.idle(0), 0);
    // Its calm windows are the owner's too.
    world.fill(0, 500);
    world.pools[0].0.set_max_idle_pages(Some(20));
    world.calm();
    assert_eq!(world.idle(0), 500);
    world.heap.tend_pool(&world.pools[0].0);
    assert_eq!(world.idle(0), 20);
    world.finish();
}

#[test]
fn an_owner_does_not_sleep_through_an_event_that_came_before() {
    let world = World::new(&[TENDED]);
    let pool = &world.pools[0].0;
    let now = world.fake().now();
    world.heap.wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + 1000, "there was no event: the time passed");
    world.signal();
    world.heap.wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + 1000, "it did not sleep");
    world.heap.tend_pool(pool);
    world.heap.wait_for_squeeze(pool, Some(1000));
    assert_eq!(world.fake().now(), now + 2000);
    world.finish();
}

#[test]
fn a_calm_window_leaves_max_idle_pages() {
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(100), ..PoolSpec::default() }]);
    world.fake().tunables().background.set(0);
    let long = world.get(0, 1).unwrap();
    world.fill(0, 500);
    world.calm();
    assert_eq!((world.idle(0), world.stats(0).squeezes), (100, 0), "also where no balancer's thread is");
    world.put(0, &[long]);
    world.finish();
}

#[test]
fn an_allocation_that_finds_no_memory_gets_what_pools_keep_idle() {
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(usize::MAX), ..PoolSpec::default() }]);
    world.fill(0, 6 * PAGEBLOCK / PAGE);
    world.fake().fail(Call::MapAt, !0);
    world.fake().fail(Call::Map, !0);
    // More than is mapped besides: the window grows by 8 MiB at a time.
    let blocks: Vec<*mut u8> = (0..6).map(|_| world.heap.alloc(PAGEBLOCK)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    assert!(world.idle(0) < 6 * PAGEBLOCK / PAGE);
    world.fake().fail_nothing();
    // SAFETY: allocated here.
    blocks.into_iter().for_each(|block| unsafe { world.heap.free(block) });
    world.finish();
}

#[test]
fn refused_memory_leaves_the_pool_as_it_was() {
    let mut world = World::new(&[PoolSpec::default()]);
    world.fake().fail(Call::MapAt, !0);
    assert_eq!(world.get(0, 4), None);
    let mut out = [std::ptr::null_mut(); 3];
    assert_eq!(world.heap.pool_get_batch(&world.pools[0].0, 1, &mut out), 0);
    assert_eq!((world.idle(0), world.stats(0).in_flight_pages), (0, 0));
    world.fake().fail_nothing();
    assert_eq!(world.heap.pool_get_batch(&world.pools[0].0, 1, &mut out), 3);
    // SAFETY: handed out just now.
    unsafe { world.heap.pool_put(&world.pools[0].0, &out) };
    assert_eq!(world.idle(0), 3);
    world.finish();
}

#[test]
fn wrong_puts_and_frees_are_named_and_change_nothing() {
    let mut world = World::new(&[PoolSpec::default(), PoolSpec::default()]);
    let (run, block) = (world.get(0, 4).unwrap(), world.heap.alloc(100_000));
    let put = |world: &World, pool: usize, addr: usize| {
        // SAFETY: what is wrong with it is found before anything is done.
        unsafe { world.heap.pool_put(&world.pools[pool].0, &[addr as *mut u8]) };
        world.fake().take_misuses()
    };
    assert_eq!(put(&world, 0, 0), []);
    assert_eq!(put(&world, 1, run), [(InvalidFree::ForeignPointer, run)], "another pool's");
    assert_eq!(put(&world, 0, run + 1), [(InvalidFree::InteriorPointer, run + 1)]);
    assert_eq!(put(&world, 0, run + PAGE), [(InvalidFree::ForeignPointer, run + PAGE)]);
    assert_eq!(put(&world, 0, block.addr()), [(InvalidFree::ForeignPointer, block.addr())]);
    assert_eq!(put(&world, 0, 4096), [(InvalidFree::ForeignPointer, 4096)]);
    // SAFETY: it is found to be no block before anything is done.
    unsafe { world.heap.free(run as *mut u8) };
    assert_eq!(world.fake().take_misuses(), [(InvalidFree::PoolPages, run)]);
    // SAFETY: as before.
    unsafe { world.heap.free((run + PAGE) as *mut u8) };
    assert_eq!(world.fake().take_misuses(), [(InvalidFree::InteriorPointer, run + PAGE)]);
    world.audit();
    world.put(0, &[run]);
    assert_eq!(put(&world, 0, run), [(InvalidFree::DoubleFree, run)]);
    assert_eq!(world.idle(0), 4);
    // SAFETY: allocated here.
    unsafe { world.heap.free(block) };
    world.finish();
}

#[test]
fn a_pool_does_not_end_while_pages_are_in_flight() {
    let mut world = World::new(&[PoolSpec::default()]);
    let run = world.get(0, 3).unwrap();
    assert_eq!(world.heap.remove_pool(&world.pools[0].0), Err(InFlight { pages: 3 }));
    assert!(world.heap.page_pools().are_there());
    world.put(0, &[run]);
    let heap = &world.heap;
    assert_eq!(heap.remove_pool(&world.pools[0].0), Ok(()));
    assert!(!heap.page_pools().are_there());
    world.pools.clear();
    world.pressure(Level::Severe);
    world.finish();
}

#[test]
fn whichever_pools_end_the_others_are_squeezed() {
    let mut world = World::new(&[PoolSpec::default(); 6]);
    // The first, one between others, two in a row, and the last; then one more is added behind what is left.
    for gone in [0, 1, 1, 2] {
        let pool = world.pools.remove(gone);
        world.heap.remove_pool(&pool.0).unwrap();
    }
    world.add(&PoolSpec::default());
    for turn in 0..4 {
        assert!(!world.heap.has_idle_pool_pages());
        (0..3).for_each(|pool| world.fill(pool, 10));
        assert!(world.heap.has_idle_pool_pages());
        world.pressure(Level::Some);
        assert_eq!([0, 1, 2].map(|pool| world.idle(pool)), [0; 3], "turn {turn}");
        world.fake().pass_ms(11);
    }
    (0..3).for_each(|pool| assert_eq!(world.stats(pool).squeezes, 4));
    world.finish();
}

#[test]
fn a_forked_child_has_its_pools() {
    let mut world = World::new(&[PoolSpec::default(), TENDED]);
    let run = world.get(0, 3).unwrap();
    world.fill(0, 10);
    world.heap.freeze();
    // SAFETY: frozen just now on this thread, which plays the child's only one.
    unsafe { world.heap.thaw_child() };
    world.audit();
    world.put(0, &[run]);
    world.pressure(Level::Some);
    assert_eq!(world.idle(0), 0);
    world.finish();
}

/// Threads put while events come and the balancer tends: once all is quiet and the last event was tended for, nothing
/// that was put before it is idle.
#[test]
fn no_page_stays_idle_in_a_window() {
    let world = World::new(&[PoolSpec::default(), TENDED]);
    world.fake().tunables().set("squeeze_ms", "3600000").unwrap();
    let (heap, pools) = (&*world.heap, [&*world.pools[0].0, &*world.pools[1].0]);
    for round in 0..50 {
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    let pool = pools[thread % 2];
                    for pages in 1..20 {
                        let run = heap.pool_get(pool, pages);
                        assert!(!run.is_null());
                        // SAFETY: taken just now.
                        unsafe { heap.pool_put(pool, &[run]) };
                    }
                });
            }
            if round > 0 {
                scope.spawn(move || {
                    heap.note_pressure(Level::Some, Cause::Pressure);
                    heap.tend_pools();
                    heap.tend_pool(pools[1]);
                    heap.balance_pressure(Level::Some, Cause::Pressure);
                });
            }
        });
        if round > 0 {
            assert_eq!((world.idle(0), world.idle(1)), (0, 0), "round {round}");
        }
        world.audit();
    }
    world.finish();
}

/// Pools come and go while the balancer looks at them.
#[test]
fn pools_end_while_they_are_squeezed() {
    let world = World::new(&[PoolSpec::default()]);
    let heap = &*world.heap;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let pool = Box::new(PagePool::new(&PoolSpec::default()));
                        // SAFETY: it stays in its box until it is off the list.
                        unsafe { heap.add_pool(NonNull::from(&*pool)) };
                        let run = heap.pool_get(&pool, 5);
                        // SAFETY: taken just now.
                        unsafe { heap.pool_put(&pool, &[run]) };
                        heap.remove_pool(&pool).unwrap();
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            heap.note_pressure(Level::Some, Cause::Pressure);
            heap.balance_pressure(Level::Some, Cause::Pressure);
            heap.trim();
        }
    });
    world.finish();
}

/// What is done to two pools, of which the program tends the second.
#[derive(Clone, Debug)]
enum Act {
    Get(usize, usize),
    Put(usize, usize),
    PutAll(usize),
    Pass(u64),
    Pressure(bool),
    Tend(usize),
    Balancer,
    Calm,
    Trim,
    MaxIdle(usize, Option<usize>),
    SqueezeMs(usize, Option<u64>),
    Fork,
}

fn act() -> impl Strategy<Value = Act> {
    let pages = prop_oneof![4 => 1usize..5, 2 => 1usize..64, 1 => 1usize..=MAX_RUN];
    let index = || any::<prop::sample::Index>().prop_map(|i| i.index(1 << 20));
    prop_oneof![
        10 => (0usize..2, pages).prop_map(|(pool, pages)| Act::Get(pool, pages)),
        8 => (0usize..2, index()).prop_map(|(pool, i)| Act::Put(pool, i)),
        2 => (0usize..2).prop_map(Act::PutAll),
        3 => (0u64..120).prop_map(Act::Pass),
        3 => any::<bool>().prop_map(Act::Pressure),
        2 => (0usize..2).prop_map(Act::Tend),
        3 => Just(Act::Balancer),
        1 => Just(Act::Calm),
        1 => Just(Act::Trim),
        1 => (0usize..2, prop_oneof![Just(None), (0usize..200).prop_map(Some)]).prop_map(|(p, n)| Act::MaxIdle(p, n)),
        1 => (0usize..2, prop_oneof![Just(None), (0u64..50).prop_map(Some)]).prop_map(|(p, n)| Act::SqueezeMs(p, n)),
        1 => Just(Act::Fork),
    ]
}

/// What the documentation says of a pool, by a model that has no lists: bounds of what is idle.
struct Model {
    max_idle: usize,
    squeeze_ns: u64,
    in_flight: usize,
    /// The most that may be idle.
    idle: usize,
}

fn run(acts: &[Act]) {
    let mut world = World::new(&[PoolSpec::default(), TENDED]);
    let model = || Model { max_idle: 1024, squeeze_ns: 10_000_000, in_flight: 0, idle: 0 };
    let (mut models, mut event) = ([model(), model()], None::<u64>);
    for act in acts {
        let now = world.fake().now();
        let is_open = |model: &Model| event.is_some_and(|at| now < at + model.squeeze_ns);
        match *act {
            Act::Get(pool, pages) => {
                let before = world.stats(pool);
                if world.get(pool, pages).is_some() {
                    let (own, is_miss) =
                        (Heap::<Fake>::pool_run_pages(pages), world.stats(pool).misses > before.misses);
                    models[pool].in_flight += own;
                    models[pool].idle -= if is_miss { 0 } else { own };
                }
            }
            Act::Put(pool, i) => {
                let runs: Vec<usize> = world.pools[pool].1.keys().copied().collect();
                if !runs.is_empty() {
                    let addr = runs[i % runs.len()];
                    let pages = world.pools[pool].1[&addr].0;
                    world.put(pool, &[addr]);
                    let model = &mut models[pool];
                    model.in_flight -= pages;
                    model.idle += pages;
                    if is_open(model) {
                        model.idle = 0;
                    } else if model.in_flight == 0 {
                        model.idle = model.idle.min(model.max_idle);
                    }
                }
            }
            Act::PutAll(pool) => {
                let runs: Vec<usize> = world.pools[pool].1.keys().copied().collect();
                world.put(pool, &runs);
                let model = &mut models[pool];
                model.idle += std::mem::take(&mut model.in_flight);
                // An empty put looks at the pool as well.
                model.idle = if is_open(model) { 0 } else { model.idle.min(model.max_idle) };
            }
            Act::Pass(ms) => world.fake().pass_ms(ms),
            Act::Pressure(is_severe) => {
                event = Some(now);
                world.pressure(if is_severe { Level::Severe } else { Level::Some });
                if models[0].squeeze_ns > 0 {
                    models[0].idle = 0;
                }
            }
            Act::Tend(pool) => {
                world.heap.tend_pool(&world.pools[pool].0);
                let model = &mut models[pool];
                model.idle = if is_open(model) { 0 } else { model.idle.min(model.max_idle) };
            }
            Act::Balancer => {
                let is_due = world.heap.pools_due().is_some_and(|due| due <= now);
                world.balancer();
                if is_due {
                    models[0].idle = models[0].idle.min(models[0].max_idle);
                }
            }
            Act::Calm => {
                world.calm();
                models[0].idle = models[0].idle.min(models[0].max_idle);
            }
            Act::Trim => {
                world.heap.trim();
                models.iter_mut().for_each(|model| model.idle = 0);
            }
            Act::MaxIdle(pool, pages) => {
                world.pools[pool].0.set_max_idle_pages(pages);
                models[pool].max_idle = pages.unwrap_or(1024);
            }
            Act::SqueezeMs(pool, ms) => {
                world.pools[pool].0.set_squeeze_ms(ms);
                models[pool].squeeze_ns = ms.unwrap_or(10) * 1_000_000;
            }
            Act::Fork => {
                world.heap.freeze();
                // SAFETY: frozen just now.
                unsafe { world.heap.thaw() };
            }
        }
        for (pool, model) in models.iter_mut().enumerate() {
            let stats = world.stats(pool);
            assert_eq!(stats.in_flight_pages, model.in_flight, "{act:?}");
            assert!(stats.idle_pages <= model.idle, "{act:?}: {stats:?}, not more than {} idle", model.idle);
            // Runs go whole, so that less than the bound may be left.
            model.idle = stats.idle_pages;
        }
        world.audit();
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_as_the_model_has_it(acts in prop::collection::vec(act(), 1..120)) {
        run(&acts);
    }
}
