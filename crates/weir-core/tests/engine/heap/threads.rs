//! Threads that allocate and free while others report, trim, drain and fork.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::caches::geometry::{BUCKETED, FIRST_USER};
use weir_core::caches::user_cache::Spec;
use weir_core::heap::Heap;
use weir_core::platform::{Topology, Wait};

use crate::fake::{Fake, run_on, run_on_node};
use crate::held::World;

const THREADS: usize = 4;
const STEPS: usize = 6000;

/// A block in somebody's hands: address, length, contents.
#[derive(Clone, Copy)]
struct Block(usize, usize, u8);

impl Block {
    fn new(heap: &Heap<Fake>, len: usize, byte: u8) -> Self {
        let addr = heap.alloc(len);
        assert!(!addr.is_null());
        heap.platform().hold(addr as usize, len);
        // SAFETY: fresh, and that long.
        unsafe { addr.write_bytes(byte, len) };
        Self(addr as usize, len, byte)
    }

    fn check(&self) {
        // SAFETY: whoever has the block in hands owns it.
        let bytes = unsafe { std::slice::from_raw_parts(self.0 as *const u8, self.1) };
        assert!(bytes[0] == self.2 && bytes[1..] == bytes[..self.1 - 1], "{:#x} lost its contents", self.0);
    }

    /// The block where it should be, if that is elsewhere.
    fn moved(self, heap: &Heap<Fake>) -> Self {
        let old = self.0 as *mut u8;
        let new = if heap.should_move(old) { heap.alloc_to_move(old) } else { std::ptr::null_mut() };
        if new.is_null() {
            return self;
        }
        heap.platform().hold(new as usize, self.1);
        // SAFETY: both are this thread's, of one size class; the old one is not used any more.
        unsafe {
            new.copy_from_nonoverlapping(old, self.1);
            self.check();
            heap.platform().let_go(self.0);
            assert!(heap.free_moved(old));
        }
        Self(new as usize, self.1, self.2)
    }

    fn free(self, heap: &Heap<Fake>) {
        self.check();
        heap.platform().let_go(self.0);
        // SAFETY: nobody uses it any more.
        unsafe { heap.free(self.0 as *mut u8) };
    }
}

/// A small generator of numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn program(heap: &Heap<Fake>, me: usize, market: &Mutex<Vec<Block>>) {
    let mut dice = Dice(me as u64 + 1);
    let mut mine = Vec::new();
    for step in 0..STEPS {
        if step % 16 == 0 {
            run_on(dice.roll(3));
            run_on_node(dice.roll(heap.platform().nodes()));
        }
        if step % 64 == 0 {
            mine.iter_mut().for_each(|block: &mut Block| *block = block.moved(heap));
        }
        match dice.roll(10) {
            0..5 => {
                let len = [1 + dice.roll(200), 1 + dice.roll(20_000), 33_000 + dice.roll(200_000)][dice.roll(20) / 9];
                mine.push(Block::new(heap, len, (step % 255 + 1) as u8));
            }
            5..8 if !mine.is_empty() => {
                let at = dice.roll(mine.len());
                mine.swap_remove(at).free(heap);
            }
            8 => market.lock().unwrap().extend(mine.pop()),
            _ => {
                let bought = market.lock().unwrap().pop();
                bought.into_iter().for_each(|block| block.free(heap));
            }
        }
    }
    mine.into_iter().for_each(|block| block.free(heap));
}

fn balance(heap: &Heap<Fake>, until: &AtomicBool) {
    let mut dice = Dice(99);
    // Where the machine gives this thread no CPU, some rounds come when the others are done.
    for round in 0.. {
        if until.load(Acquire) && round >= 50 {
            break;
        }
        heap.platform().pass_ms(100);
        match dice.roll(6) {
            0 | 1 => drop(heap.reclaim().balance_calm()),
            2 => drop(heap.reclaim().balance_pressure(Level::Some, Cause::Pressure)),
            3 => drop(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure)),
            4 => drop(heap.purge()),
            _ => {
                heap.fork().freeze();
                // SAFETY: frozen just now.
                unsafe { heap.fork().thaw() };
            }
        }
        std::thread::yield_now();
    }
}

/// Workers of further nodes, all the time.
fn work(heap: &Heap<Fake>, until: &AtomicBool) {
    for severe in [false, true].into_iter().cycle() {
        (1..heap.platform().nodes()).for_each(|node| drop(heap.reclaim().balance_node(node, Cause::Pressure, severe)));
        if until.load(Acquire) {
            return;
        }
        std::thread::yield_now();
    }
}

fn drop<T>(_: T) {}

#[test]
fn threads_keep_their_blocks_while_the_balancer_works() {
    for (lockless, huge, nodes) in [(true, false, 1), (true, true, 1), (true, true, 3), (false, false, 2)] {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        fake.huge.store(huge, Relaxed);
        fake.node_count.store(nodes, Relaxed);
        let world = World::new(fake);
        let (heap, market, done) = (&*world.heap, Mutex::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| balance(heap, &done));
            scope.spawn(|| work(heap, &done));
            let programs: Vec<_> = (0..THREADS)
                .map(|me| {
                    let market = &market;
                    scope.spawn(move || program(heap, me, market))
                })
                .collect();
            let ends: Vec<_> = programs.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Release);
            ends.into_iter().for_each(|end| end.unwrap());
        });
        market.into_inner().unwrap().into_iter().for_each(|block: Block| block.free(heap));
        assert!(!world.fake().take_released().is_empty());
    }
}

const MARK: u64 = 0x7765_6972;

unsafe extern "C-unwind" fn mark(object: *mut u8, _: usize, _: *mut u8) -> bool {
    // SAFETY: the object belongs to a new slab.
    unsafe { object.cast::<u64>().write(MARK) };
    true
}

unsafe extern "C" fn is_marked(object: *mut u8, _: usize, _: *mut u8) {
    // SAFETY: the object is free and initialised.
    unsafe { assert_eq!(object.cast::<u64>().read(), MARK) };
}

/// Makes caches, uses them and destroys them, over and over.
fn makes_caches(heap: &Heap<Fake>, me: usize) {
    let mut dice = Dice(me as u64 + 7);
    for round in 0..60 {
        let size = 16 + dice.roll(6000);
        let spec = Spec { name: b"made", size, ..Spec::default() };
        let kept = Spec { init: Some(mark), fini: Some(is_marked), ..spec };
        let id = heap.user_caches().make(if round % 2 == 0 { &spec } else { &kept }).unwrap();
        let mut held = Vec::new();
        for step in 0..400 {
            if step % 16 == 0 {
                run_on(dice.roll(3));
                run_on_node(dice.roll(heap.platform().nodes()));
            }
            if dice.roll(5) < 3 || held.is_empty() {
                let object = heap.user_caches().alloc(id);
                assert!(!object.is_null());
                held.push(object);
            } else {
                let at = dice.roll(held.len());
                let object = held.swap_remove(at);
                // SAFETY: this thread's, and forgotten. A cache's object may be freed as any other block.
                unsafe { if step % 2 == 0 { heap.user_caches().free(id, object) } else { heap.free(object) } };
            }
        }
        let [ceiling, least, most] = heap.user_caches().stats(id).bucket;
        assert!(
            least <= ceiling && ceiling <= most,
            "the ceiling of another cache: {ceiling} not in {least} to {most}"
        );
        // SAFETY: the objects are this thread's, and forgotten; so is the cache.
        unsafe {
            heap.user_caches().free_batch(id, &held);
            assert_eq!(heap.user_caches().destroy(id), Ok(()));
        }
    }
}

#[test]
fn caches_come_and_go_while_the_balancer_works() {
    for (lockless, nodes, buckets) in [(true, 1, true), (true, 2, true), (false, 1, true), (true, 2, false)] {
        let mut fake = Fake::new();
        fake.lockless = lockless;
        fake.node_count.store(nodes, Relaxed);
        let world = World::new(fake);
        let (heap, done) = (&*world.heap, AtomicBool::new(false));
        if !buckets {
            (FIRST_USER..BUCKETED).for_each(|_| drop(heap.user_caches().make(&Spec::default()).unwrap()));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| balance(heap, &done));
            scope.spawn(|| work(heap, &done));
            let finalizers = scope.spawn(|| {
                while !done.load(Acquire) {
                    heap.user_caches().run_finalizers();
                    std::thread::yield_now();
                }
            });
            let makers: Vec<_> = (0..3).map(|me| scope.spawn(move || makes_caches(heap, me))).collect();
            let ends: Vec<_> = makers.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Release);
            ends.into_iter().for_each(|end| end.unwrap());
            finalizers.join().unwrap();
        });
    }
}

#[test]
fn what_is_allocated_during_a_release_is_not_released() {
    for huge in [false, true] {
        let fake = Fake::new();
        fake.huge.store(huge, Relaxed);
        let mut world = World::new(fake);
        for size in [64, 1000, 9000, 70_000, 700_000] {
            (0..300_000 / size + 20).for_each(|_| assert!(world.alloc(size).is_some()));
        }
        // Most of it free, in every size of hole.
        for i in (0..world.held.len()).rev().filter(|i| i % 7 != 0) {
            world.free(i, false);
        }
        let taken: &'static Mutex<Vec<Block>> = Box::leak(Box::default());
        let rounds: &'static AtomicUsize = Box::leak(Box::default());
        let world = world.leak();
        let heap = &world.heap;
        heap.platform().during_release(move || {
            let round = rounds.fetch_add(1, Relaxed);
            let mut taken = taken.lock().unwrap();
            for size in [64, 1000, 9000, 70_000, 700_000] {
                (0..3).for_each(|i| taken.push(Block::new(heap, size + i, (round + i) as u8 | 1)));
            }
            let old = taken.len() / 3;
            taken.drain(..old).for_each(|block| block.free(heap));
        });
        heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
        heap.platform().pass_ms(5000);
        heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
        assert!(rounds.load(Relaxed) >= 3);
        taken.lock().unwrap().iter().for_each(Block::check);
        world.check_contents();
        heap.audit().unwrap();
        assert_eq!(heap.platform().take_misuses(), []);
    }
}

/// A handler that interrupts a fork may fork itself: only the outer fork's end lets go of the locks.
#[test]
fn forks_within_a_fork_leave_its_locks_alone() {
    let mut world = World::new(Fake::new());
    let held = || world.fake().held_ranks().unwrap().load(Relaxed);
    world.heap.fork().freeze();
    let all = held();
    for _ in 0..2 {
        world.heap.fork().freeze();
        world.heap.fork().freeze();
        // SAFETY: each follows one of the two above.
        assert!(unsafe { !world.heap.fork().thaw() && !world.heap.fork().thaw() });
        assert_eq!(held(), all);
    }
    // SAFETY: follows the first.
    assert!(unsafe { world.heap.fork().thaw() });
    assert_eq!(held(), 0);
    assert!(world.alloc(100_000).is_some());
}
