//! Zones of the program's own: handed out, given back, reported, taken out of use, and inherited by a child.

use proptest::prelude::*;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{BlockNo, Order, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, Pages};
use weir_core::heap::Heap;
use weir_core::pages::pageblock::Pageblock;
use weir_core::pages::user_zone::{InUse, MemoryKind, UserZone};
use weir_core::platform::{Contents, Diagnostics, Host, Memory as _, Released};
use weir_core::telemetry::trace::Place;

use crate::fake::Fake;

pub const PRIVATE: MemoryKind = MemoryKind { zero: true, huge: false, reported: true, shared: false };

/// A zone of `blocks` pageblocks on `heap`, and its first address. Whoever made it removes it before it drops it.
pub fn zone_of(
    heap: &Heap<Fake>,
    blocks: usize,
    memory: MemoryKind,
    below: NonNull<dyn Host>,
) -> (Box<UserZone>, usize) {
    let fake: &Fake = heap.platform();
    let base = fake.map(blocks * PAGEBLOCK, Order::BLOCK).unwrap();
    let described =
        fake.map(UserZone::descriptor_bytes(blocks * PAGEBLOCK).next_multiple_of(PAGE), Order::PAGE).unwrap();
    let run = Run { addr: base, len: blocks * PAGEBLOCK };
    // SAFETY: all of it lives as long as the heap, from whose list the zone is taken before it goes.
    let zone = Box::new(unsafe { UserZone::new(run, described as *mut Pageblock, below, memory) });
    // SAFETY: it stays in its box, used through shared references, until it is taken off the list.
    unsafe { heap.zones().add(NonNull::from(&*zone)) };
    (zone, base)
}

/// A heap with one zone.
struct World {
    heap: Box<Heap<Fake>>,
    zone: Box<UserZone>,
    base: usize,
    held: Vec<(usize, usize, u8)>,
}

impl World {
    fn new(blocks: usize, memory: MemoryKind) -> Self {
        Self::on(Fake::new(), blocks, memory)
    }

    fn on(fake: Fake, blocks: usize, memory: MemoryKind) -> Self {
        let heap = Box::new(Heap::new(fake));
        let (zone, base) = zone_of(&heap, blocks, memory, NonNull::from(heap.platform()));
        Self { heap, zone, base, held: Vec::new() }
    }

    fn take(&mut self, pages: usize) -> Option<usize> {
        let run = self.heap.pages().zone_take(&self.zone, Pages(pages), Order::PAGE).ok()?;
        let addr = self.heap.pages().zone_addr(&self.zone, run);
        // SAFETY: just handed out.
        let bytes = unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, pages * PAGE) };
        assert!(!run.zero || bytes.iter().all(|&b| b == 0), "not zero");
        let byte = (self.held.len() % 255) as u8 + 1;
        bytes.fill(byte);
        self.heap.platform().hold(addr, pages * PAGE);
        self.held.push((addr, pages, byte));
        Some(addr)
    }

    fn give(&mut self, i: usize) {
        let (addr, pages, byte) = self.held.swap_remove(i);
        // SAFETY: handed out before.
        let bytes = unsafe { std::slice::from_raw_parts(addr as *const u8, pages * PAGE) };
        assert!(bytes.iter().all(|&b| b == byte), "lost its contents");
        self.heap.platform().let_go(addr);
        self.heap.pages().zone_give(&self.zone, addr, Pages(pages)).unwrap();
    }

    fn pressure(&self) -> usize {
        self.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure)
    }

    fn check(&self) {
        self.heap.pages().zone_audit(&self.zone).unwrap();
        let held: usize = self.held.iter().map(|(_, pages, _)| pages).sum();
        assert_eq!(self.heap.pages().zone_usage(&self.zone).used, Pages(held));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.heap.pages().remove_zone(&self.zone);
    }
}

#[test]
fn what_is_free_goes_back_under_pressure_and_above_the_peak_in_calm_times() {
    let mut world = World::new(8, PRIVATE);
    (0..64).for_each(|_| assert!(world.take(64).is_some()));
    assert!(world.take(1).is_none());
    (0..60).for_each(|_| world.give(0));
    world.heap.reclaim().balance_calm();
    assert_eq!(
        world.heap.pages().zone_usage(&world.zone).idle,
        Pages(60 * 64),
        "the peak of the window that ended was all of it"
    );
    world.heap.reclaim().balance_calm();
    assert!(world.heap.pages().zone_usage(&world.zone).idle <= Pages(16));
    (0..60).for_each(|_| assert!(world.take(64).is_some()));
    (0..60).for_each(|_| world.give(0));
    assert_eq!(world.pressure(), 60 * 64 * PAGE);
    let trace = &world.heap.platform().stats().trace;
    assert!((0..trace.recorded()).filter_map(|n| trace.read(n)).all(|e| e.place == Some(Place::User) && e.zone == 1));
    world.check();
}

/// A zone of one pageblock on a system whose pages have `unit` bytes.
fn with_pages_of(unit: usize) -> World {
    let mut fake = Fake::new();
    fake.unit = unit;
    World::on(fake, 1, PRIVATE)
}

#[test]
fn memory_comes_and_goes_in_the_pages_of_the_system_below() {
    for unit in [16 << 10, 64 << 10] {
        let mut world = with_pages_of(unit);
        let usage = |world: &World| {
            let usage = world.heap.pages().zone_usage(&world.zone);
            (usage.used.bytes().0, usage.idle.bytes().0)
        };
        (0..3 * unit / PAGE).for_each(|_| assert!(world.take(1).is_some()));
        assert_eq!(usage(&world), (3 * unit, 0));
        // All but the first page of the first and the last of the second: the third alone is free.
        let [first, last] = [world.base, world.base + 2 * unit - PAGE];
        while let Some(i) = world.held.iter().position(|&(addr, ..)| addr != first && addr != last) {
            world.give(i);
        }
        assert_eq!((world.pressure(), usage(&world)), (unit, (2 * PAGE, 2 * (unit - PAGE))));
        assert_eq!(world.pressure(), 0, "nothing of it can go");
        // What has memory is handed out before what has none.
        assert!((first..=last).contains(&world.take(1).unwrap()));
        while !world.held.is_empty() {
            world.give(0);
        }
        assert_eq!((world.pressure(), usage(&world)), (2 * unit, (0, 0)));
        // One page that is touched brings a whole one of the system's.
        world.take(1).unwrap();
        assert_eq!(usage(&world), (PAGE, unit - PAGE));
        assert_eq!(world.pressure(), 0);
        world.give(0);
        assert_eq!(world.pressure(), unit);
        world.check();
    }
}

#[test]
fn several_zones_together_release_what_is_wanted_and_no_more() {
    let mut world = World::new(4, PRIVATE);
    let (heap, second) = (&world.heap, NonNull::from(world.heap.platform()));
    let (second, _) = zone_of(heap, 4, PRIVATE, second);
    for zone in [&world.zone, &second] {
        let pages = heap.pages();
        let runs = [0; 2].map(|_| pages.zone_take(zone, Pages::BLOCK * 2, Order::PAGE).unwrap());
        for run in runs {
            pages.zone_give(zone, pages.zone_addr(zone, run), Pages::BLOCK * 2).unwrap();
        }
    }
    let idle =
        || [&world.zone, &second].map(|zone| world.heap.pages().zone_usage(zone).idle).into_iter().sum::<Pages>();
    assert_eq!(idle(), Pages::BLOCK * 8);
    // It cannot use what is idle in zones: as much goes in exchange.
    let block = world.heap.alloc(3 * PAGEBLOCK);
    assert!(!block.is_null());
    assert_eq!(idle(), Pages::BLOCK * 5);
    world.heap.pages().remove_zone(&second);
    world.check();
    assert!(world.take(4 * PAGEBLOCK_PAGES / 2).is_some());
}

#[test]
fn locked_memory_is_never_offered() {
    let mut world = World::new(4, MemoryKind { reported: false, ..PRIVATE });
    world.take(1024).unwrap();
    world.give(0);
    assert_eq!(world.pressure() + world.heap.purge(), 0);
    assert_eq!(world.heap.platform().take_released(), Vec::<Vec<Run>>::new());
    assert_eq!(world.heap.pages().zone_usage(&world.zone).idle, Pages(1024));
}

/// The system's pool may have a huge page for one pageblock of a run, and none for the next.
#[test]
fn a_pageblock_that_got_no_memory_is_as_before() {
    let mut world = World::new(4, MemoryKind { huge: true, ..PRIVATE });
    let take_in_vain = |world: &World, pages: usize, bare: u32| {
        let (heap, zone) = (world.heap.pages(), &*world.zone);
        let run = heap.zone_take(zone, Pages(pages), Order::PAGE).unwrap();
        heap.zone_give_bare(zone, heap.zone_addr(zone, run), Pages(pages), bare).unwrap();
        world.check();
        heap.zone_usage(zone).idle
    };
    assert_eq!(take_in_vain(&world, 1, 0b1), Pages::ZERO);
    assert_eq!(take_in_vain(&world, 1024, 0b11), Pages::ZERO);
    assert_eq!(take_in_vain(&world, 1024, 0b10), Pages::BLOCK);
    // Memory came behind it meanwhile, as another thread took pages of it.
    world.take(1).unwrap();
    assert_eq!(take_in_vain(&world, 10, 0b1), Pages(511));
}

#[test]
fn an_allocation_waits_for_the_batch_in_flight_and_does_not_fail() {
    let mut world = World::new(1, PRIVATE);
    world.take(512).unwrap();
    world.give(0);
    // All there is is isolated while somebody wants some of it.
    let wanted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (heap, zone) = (&raw const *world.heap as usize, &raw const *world.zone as usize);
    let by = wanted.clone();
    world.heap.platform().during_release(move || {
        let by = by.clone();
        std::thread::spawn(move || {
            // SAFETY: the test waits for this thread before the world goes.
            let (heap, zone) = unsafe { (&*(heap as *const Heap<Fake>), &*(zone as *const UserZone)) };
            let got = heap.pages().zone_take(zone, Pages(512), Order::PAGE);
            by.store(1 + usize::from(got.is_ok()), std::sync::atomic::Ordering::SeqCst);
        });
        // Time to fail with the batch in flight; a thread that has no CPU in this time allocates after it.
        std::thread::sleep(std::time::Duration::from_millis(30));
    });
    assert_eq!(world.pressure(), PAGEBLOCK);
    while wanted.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(wanted.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn a_range_goes_out_of_use_only_if_none_of_it_is_in_use() {
    let mut world = World::new(4, PRIVATE);
    (0..4).for_each(|_| assert!(world.take(PAGEBLOCK_PAGES).is_some()));
    let in_block = |world: &World, block: usize| {
        world.held.iter().position(|held| (held.0 - world.base) / PAGEBLOCK == block).unwrap()
    };
    (0..3).for_each(|block| world.give(in_block(&world, block)));
    assert_eq!(
        world.heap.pages().zone_offline(&world.zone, BlockNo(1)..BlockNo(4)),
        Err(InUse { pages: Pages::BLOCK })
    );
    assert_eq!(world.heap.pages().zone_usage(&world.zone).closed, Pages::ZERO, "it stays as it was");
    assert_eq!(world.heap.pages().zone_offline(&world.zone, BlockNo(1)..BlockNo(3)), Ok(()));
    world.check();
    assert!(world.take(PAGEBLOCK_PAGES).is_some());
    assert!(world.take(1).is_none(), "nothing is handed out of what is out of use");
    assert_eq!(world.pressure(), 0, "and nothing is done with it");
    assert_eq!(world.heap.pages().zone_close(&world.zone, BlockNo(3)..BlockNo(4)), Pages::BLOCK);
    world.give(in_block(&world, 3));
    assert_eq!(world.heap.pages().zone_close(&world.zone, BlockNo(3)..BlockNo(4)), Pages::ZERO, "it emptied");
    assert!(world.take(1).is_none());
    world.heap.pages().zone_open(&world.zone, BlockNo(1)..BlockNo(4));
    world.check();
    (0..3).for_each(|_| assert!(world.take(PAGEBLOCK_PAGES).is_some()));
}

/// Its memory may be unmapped: it is not handed out again because a later call over more of the zone fails.
#[test]
fn a_range_that_is_out_of_use_stays_so_when_a_wider_one_is_in_use() {
    let mut world = World::new(3, PRIVATE);
    (0..3).for_each(|_| assert!(world.take(PAGEBLOCK_PAGES).is_some()));
    for block in 0..2 {
        let held = world.held.iter().position(|held| (held.0 - world.base) / PAGEBLOCK == block);
        world.give(held.unwrap());
    }
    assert_eq!(world.heap.pages().zone_offline(&world.zone, BlockNo(0)..BlockNo(1)), Ok(()));
    assert_eq!(
        world.heap.pages().zone_offline(&world.zone, BlockNo(0)..BlockNo(3)),
        Err(InUse { pages: Pages::BLOCK })
    );
    assert_eq!(world.heap.pages().zone_usage(&world.zone).closed, Pages::BLOCK);
    assert_eq!(world.take(1).map(|addr| (addr - world.base) / PAGEBLOCK), Some(1));
    world.check();
}

/// Pages that requests get of a zone which could use NORMAL as well.
fn taken_first(world: &World) -> usize {
    (0..).take_while(|_| world.heap.zones().take_first(&world.zone, Pages(1), Order::PAGE).is_ok()).count()
}

#[test]
fn what_is_out_of_use_is_not_free_for_requests_that_fall_back() {
    let (small, large) = (World::new(1, PRIVATE), World::new(8, PRIVATE));
    large.heap.pages().zone_offline(&large.zone, BlockNo(1)..BlockNo(8)).unwrap();
    let taken = taken_first(&small);
    assert!((PAGEBLOCK_PAGES / 2..PAGEBLOCK_PAGES).contains(&taken), "{taken}");
    assert_eq!(taken_first(&large), taken);
}

#[test]
fn what_is_in_use_in_a_closed_range_is_not_missing_outside_of_it() {
    let mut world = World::new(4, PRIVATE);
    let blocks = [0; 2].map(|_| BlockNo(((world.take(PAGEBLOCK_PAGES).unwrap() - world.base) / PAGEBLOCK) as u32));
    blocks.into_iter().for_each(|block| drop(world.heap.pages().zone_close(&world.zone, block.row(1))));
    world.check();
    assert!(world.heap.zones().has_room(&world.zone, PAGEBLOCK), "two pageblocks are free");
    assert!(!world.heap.zones().has_room(&world.zone, 2 * PAGEBLOCK), "and no more");
    world.give(0);
    world.check();
    world.heap.pages().zone_open(&world.zone, BlockNo(0)..BlockNo(4));
    world.check();
    assert!(world.heap.zones().has_room(&world.zone, 2 * PAGEBLOCK));
}

#[cfg(debug_assertions)]
#[test]
fn a_request_that_fails_costs_the_same_in_a_zone_of_any_size() {
    let visits = [2, 64].map(|blocks| {
        let world = World::new(blocks, MemoryKind { reported: false, ..PRIVATE });
        world.heap.platform().tunables().background.set(1);
        world.heap.pages().zone_offline(&world.zone, BlockNo(0).row(blocks)).unwrap();
        let before = world.heap.figures().pageblock_visits();
        assert!(world.heap.zones().take(&world.zone, Pages(1), Order::PAGE).is_err());
        assert!(world.heap.zones().take_first(&world.zone, Pages(1), Order::PAGE).is_err());
        assert_eq!(world.heap.pages().zone_usage(&world.zone).closed, Pages::BLOCK * blocks);
        world.heap.figures().pageblock_visits() - before
    });
    assert_eq!(visits[0], visits[1]);
}

#[test]
fn a_child_leaves_its_parents_shared_zone_alone() {
    for shared in [false, true] {
        let mut world = World::new(2, MemoryKind { shared, ..PRIVATE });
        let first = world.take(8).unwrap();
        world.take(8).unwrap();
        world.give(1);
        world.heap.fork().freeze();
        // SAFETY: frozen just now; this test is the child.
        unsafe { world.heap.fork().thaw_child() };
        assert_eq!(world.zone.is_foreign(), shared);
        assert_eq!(world.heap.pages().zone_take(&world.zone, Pages(1), Order::PAGE).is_err(), shared);
        assert_eq!(world.pressure() == 0, shared);
        assert_eq!(world.heap.pages().zone_give(&world.zone, first, Pages(8)), Ok(()));
    }
}

#[test]
fn wrong_gives_are_named() {
    let mut world = World::new(2, PRIVATE);
    let at = world.take(8).unwrap();
    let give = |addr, pages| world.heap.pages().zone_give(&world.zone, addr, Pages(pages));
    assert_eq!(give(at - PAGE, 1).err(), Some(InvalidFree::ForeignPointer));
    assert_eq!(give(at + 1, 1).err(), Some(InvalidFree::InteriorPointer));
    assert_eq!(give(at, 9).err(), Some(InvalidFree::DoubleFree));
    assert_eq!(give(usize::MAX - 5, 3).err(), Some(InvalidFree::ForeignPointer));
    assert_eq!(give(at, 8), Ok(()));
    assert_eq!(give(at, 8).err(), Some(InvalidFree::DoubleFree));
    world.held.clear();
    world.check();
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Give(usize),
    Calm,
    Pressure,
    Close(u32),
    Open(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..1100).prop_map(Step::Take),
        5 => any::<usize>().prop_map(Step::Give),
        2 => Just(Step::Calm),
        2 => Just(Step::Pressure),
        1 => (0u32..8).prop_map(Step::Close),
        2 => (0u32..8).prop_map(Step::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_every_page(
        steps in prop::collection::vec(step(), 1..80),
        plan in prop_oneof![Just(0), any::<u64>()],
        zero in any::<bool>(),
        huge in any::<bool>(),
        unit in prop_oneof![Just(PAGE), Just(16 << 10), Just(64 << 10)],
    ) {
        let mut fake = Fake::new();
        fake.unit = unit;
        let mut world = World::on(fake, 8, MemoryKind { zero, huge, ..PRIVATE });
        world.heap.platform().fail(crate::fake::Call::Release, plan);
        for step in steps {
            match step {
                Step::Take(pages) => drop(world.take(pages)),
                Step::Give(i) if !world.held.is_empty() => world.give(i % world.held.len()),
                Step::Give(_) => {}
                Step::Calm => {
                    world.heap.platform().pass_ms(300);
                    world.heap.reclaim().balance_calm();
                }
                Step::Pressure => drop(world.pressure()),
                Step::Close(block) => drop(world.heap.pages().zone_close(&world.zone, BlockNo(block).row(2))),
                Step::Open(block) => world.heap.pages().zone_open(&world.zone, BlockNo(block).row(2)),
            }
            world.check();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

/// Holds up the next thread that asks for the unit, which has the zone pinned then, between two batches. It says so, and goes on
/// when it may; whether it might.
struct HoldsUp(Mutex<Option<(Sender<()>, Receiver<()>)>>, AtomicBool);

impl Host for HoldsUp {
    fn release(&self, runs: &[Run], _calm: bool) -> Released {
        Released { runs: runs.len(), contents: Contents::Undefined, error: 0 }
    }

    fn release_unit(&self) -> usize {
        if let Some((say, may_go_on)) = self.0.lock().unwrap().take() {
            say.send(()).unwrap();
            self.1.store(may_go_on.recv_timeout(PATIENCE).is_ok(), Relaxed);
        }
        PAGE
    }
}

#[test]
fn who_removes_a_zone_that_is_pinned_between_two_batches_sleeps() {
    let heap: &'static Heap<Fake> = Box::leak(Box::new(Heap::new(Fake::new())));
    let host: &'static HoldsUp = Box::leak(Box::new(HoldsUp(Mutex::default(), AtomicBool::new(false))));
    let (zone, _) = zone_of(heap, 2, PRIVATE, NonNull::from(host));
    let ((say, said), (let_go, may_go_on)) = (channel(), channel());
    *host.0.lock().unwrap() = Some((say, may_go_on));
    heap.platform().while_callbacks_are_waited_for(move || _ = let_go.send(()));
    std::thread::scope(|scope| {
        scope.spawn(|| heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure));
        said.recv_timeout(PATIENCE).expect("the zone is visited");
        heap.pages().remove_zone(&zone);
    });
    assert!(host.1.load(Relaxed), "who removes the zone does not sleep");
}

fn drop<T>(_: T) {}
