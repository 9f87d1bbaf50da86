//! Page pools: what is idle in them goes back in time, what is in flight never does.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::time::Nanos;
use weir_core::base::units::{MAX_RUN, PAGE, PAGEBLOCK};
use weir_core::heap::Heap;
use weir_core::heap::page_pools::InFlight;
use weir_core::platform::{Clock, Diagnostics};
use weir_core::pools::page_pool::{PagePool, PoolSpec, PoolStats};

use crate::fake::{Call, Fake};

mod model;
mod squeeze;
mod threads;

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
        unsafe { self.heap.page_pools().add(NonNull::from(&*pool)) };
        self.pools.push((pool, BTreeMap::new()));
    }

    fn fake(&self) -> &Fake {
        self.heap.platform()
    }

    fn stats(&self, pool: usize) -> PoolStats {
        self.heap.page_pools().stats(&self.pools[pool].0)
    }

    fn idle(&self, pool: usize) -> usize {
        self.stats(pool).idle_pages
    }

    /// Takes a run and fills it; `None`: refused.
    fn get(&mut self, pool: usize, pages: usize) -> Option<usize> {
        let run = self.heap.page_pools().get(&self.pools[pool].0, pages);
        if run.is_null() {
            return None;
        }
        assert!(run.addr().is_multiple_of(PAGE));
        let len = PagePool::run_pages(pages) * PAGE;
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
        unsafe { self.heap.page_pools().put(&self.pools[pool].0, &runs) };
    }

    /// Takes `count` single pages and puts them back.
    fn fill(&mut self, pool: usize, count: usize) {
        let pages: Vec<usize> = (0..count).map(|_| self.get(pool, 1).unwrap()).collect();
        self.put(pool, &pages);
    }

    fn signal(&self) {
        self.heap.reclaim().note_pressure(Level::Some, Cause::Pressure);
    }

    /// A pressure event as the background thread has it.
    fn pressure(&self, level: Level) {
        self.heap.reclaim().note_pressure(level, Cause::Pressure);
        self.heap.reclaim().balance_pressure(level, Cause::Pressure);
    }

    fn calm(&self) {
        self.fake().pass_ms(self.fake().tunables().idle_ms.get());
        self.heap.reclaim().balance_calm();
    }

    /// The balancer's thread does what is due at the time.
    fn balancer(&self) {
        self.heap.page_pools().tend_due();
        self.audit();
    }

    fn audit(&self) {
        self.heap.audit().unwrap();
        for (pool, runs) in &self.pools {
            assert_eq!(
                self.heap.page_pools().stats(pool).in_flight_pages,
                runs.values().map(|run| run.0).sum::<usize>()
            );
            runs.iter().for_each(|(&addr, &(pages, byte))| self.check(addr, pages, byte));
        }
    }

    /// Bytes that were released since the last call.
    fn released(&self) -> usize {
        self.fake().take_released().concat().iter().map(|run| run.len).sum()
    }
}

/// Puts everything back, and ends the pools: nothing of theirs is in use then.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for pool in 0..self.pools.len() {
            let runs: Vec<usize> = self.pools[pool].1.keys().copied().collect();
            self.put(pool, &runs);
            self.heap.page_pools().remove(&self.pools[pool].0).unwrap();
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
    let stats = world.stats(0);
    assert_eq!((stats.in_flight_pages, stats.gets, stats.misses), (8, 1, 1));
    assert_eq!((stats.idle_pages, stats.squeezes, stats.squeezed_pages, stats.misses_after_squeeze), (0, 0, 0, 0));
    world.put(0, &[run]);
    assert_eq!((world.idle(0), world.stats(0).in_flight_pages), (8, 0));
    assert_eq!(world.get(0, 8), Some(run), "what was put last is taken first");
    assert_eq!((world.stats(0).gets, world.stats(0).misses), (2, 1));
    let usage = world.heap.figures().usage();
    assert!(usage.live >= 8 * PAGE);
    world.put(0, &[run]);
    let idle = world.heap.figures().usage().idle - usage.idle;
    assert_eq!((usage.live - world.heap.figures().usage().live, idle), (8 * PAGE, 8 * PAGE), "idle in a pool is idle");
}

#[test]
fn a_run_is_of_a_length_that_a_put_finds_again() {
    let mut world = World::new(&[PoolSpec { max_idle_pages: Some(usize::MAX), ..PoolSpec::default() }]);
    for pages in [1, 2, 3, 5, 9, 17, 100, 129, 1000, MAX_RUN.0] {
        let run = world.get(0, pages).unwrap();
        assert_ne!(world.get(0, pages), Some(run));
        let idle = world.idle(0);
        world.put(0, &[run]);
        let own = PagePool::run_pages(pages);
        assert_eq!(world.idle(0) - idle, own);
        assert_eq!(world.get(0, own), Some(run));
    }
    let none = world.heap.page_pools().get(&world.pools[0].0, MAX_RUN.0 + 1);
    assert!(none.is_null() && world.heap.page_pools().get(&world.pools[0].0, 0).is_null());
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
}

#[test]
fn with_runs_in_flight_too_many_idle_pages_stay_for_100_ms() {
    let mut world = World::new(&[PoolSpec::default()]);
    let long = world.get(0, 1).unwrap();
    let notices = world.fake().notices.load(Relaxed);
    world.fill(0, 3000);
    assert_eq!(world.idle(0), 3000);
    assert!(world.fake().notices.load(Relaxed) > notices, "the balancer sleeps without a time to wake up: it is woken");
    let due = world.heap.page_pools().due().unwrap();
    assert_eq!(due, world.fake().now() + Nanos(100_000_000));
    // It does not begin anew with each put.
    world.fake().pass_ms(99);
    world.fill(0, 2000);
    assert_eq!(world.heap.page_pools().due(), Some(due));
    world.balancer();
    assert_eq!(world.idle(0), 3000);
    world.fake().pass_ms(1);
    world.balancer();
    assert_eq!((world.idle(0), world.heap.page_pools().due()), (1024, None));
    assert_eq!(world.stats(0).squeezed_pages, 0);
    world.put(0, &[long]);
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
}

#[test]
fn refused_memory_leaves_the_pool_as_it_was() {
    let mut world = World::new(&[PoolSpec::default()]);
    world.fake().fail(Call::MapAt, !0);
    assert_eq!(world.get(0, 4), None);
    let mut out = [std::ptr::null_mut(); 3];
    assert_eq!(world.heap.page_pools().get_batch(&world.pools[0].0, 1, &mut out), 0);
    assert_eq!((world.idle(0), world.stats(0).in_flight_pages), (0, 0));
    world.fake().fail_nothing();
    assert_eq!(world.heap.page_pools().get_batch(&world.pools[0].0, 1, &mut out), 3);
    // SAFETY: handed out just now.
    unsafe { world.heap.page_pools().put(&world.pools[0].0, &out) };
    assert_eq!(world.idle(0), 3);
}

#[test]
fn wrong_puts_and_frees_are_named_and_change_nothing() {
    let mut world = World::new(&[PoolSpec::default(), PoolSpec::default()]);
    let (run, block) = (world.get(0, 4).unwrap(), world.heap.alloc(100_000));
    let put = |world: &World, pool: usize, addr: usize| {
        // SAFETY: what is wrong with it is found before anything is done.
        unsafe { world.heap.page_pools().put(&world.pools[pool].0, &[addr as *mut u8]) };
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
    assert_eq!(unsafe { world.heap.usable_size(run as *mut u8) }, 0);
    assert_eq!(world.fake().take_misuses(), [(InvalidFree::SizeOfPoolPages, run)]);
    // SAFETY: as before.
    unsafe { world.heap.free((run + PAGE) as *mut u8) };
    assert_eq!(world.fake().take_misuses(), [(InvalidFree::InteriorPointer, run + PAGE)]);
    world.audit();
    world.put(0, &[run]);
    assert_eq!(put(&world, 0, run), [(InvalidFree::DoubleFree, run)]);
    assert_eq!(world.idle(0), 4);
    // SAFETY: allocated here.
    unsafe { world.heap.free(block) };
}

#[test]
fn a_pool_does_not_end_while_pages_are_in_flight() {
    let mut world = World::new(&[PoolSpec::default()]);
    let run = world.get(0, 3).unwrap();
    assert_eq!(world.heap.page_pools().remove(&world.pools[0].0), Err(InFlight { pages: 3 }));
    assert!(world.heap.reclaim().hears_pressure());
    world.put(0, &[run]);
    let heap = &world.heap;
    assert_eq!(heap.page_pools().remove(&world.pools[0].0), Ok(()));
    assert!(!heap.reclaim().hears_pressure());
    world.pools.clear();
    world.pressure(Level::Severe);
}

#[test]
fn whichever_pools_end_the_others_are_squeezed() {
    let mut world = World::new(&[PoolSpec::default(); 6]);
    // The first, one between others, two in a row, and the last; then one more is added behind what is left.
    for gone in [0, 1, 1, 2] {
        let pool = world.pools.remove(gone);
        // The second time it is on no list any more.
        (0..2).for_each(|_| world.heap.page_pools().remove(&pool.0).unwrap());
        world.audit();
    }
    world.heap.page_pools().remove(&PagePool::new(&PoolSpec::default())).expect("it was never added");
    world.add(&PoolSpec::default());
    world.audit();
    for turn in 0..4 {
        assert!(!world.heap.page_pools().has_idle_pages());
        (0..3).for_each(|pool| world.fill(pool, 10));
        assert!(world.heap.page_pools().has_idle_pages());
        world.pressure(Level::Some);
        assert_eq!([0, 1, 2].map(|pool| world.idle(pool)), [0; 3], "turn {turn}");
        world.fake().pass_ms(11);
    }
    (0..3).for_each(|pool| assert_eq!(world.stats(pool).squeezes, 4));
}

#[test]
fn a_forked_child_has_its_pools() {
    let mut world = World::new(&[PoolSpec::default(), TENDED]);
    let run = world.get(0, 3).unwrap();
    world.fill(0, 10);
    world.heap.fork().freeze();
    // SAFETY: frozen just now on this thread, which plays the child's only one.
    unsafe { world.heap.fork().thaw_child() };
    world.audit();
    world.put(0, &[run]);
    world.pressure(Level::Some);
    assert_eq!(world.idle(0), 0);
}
