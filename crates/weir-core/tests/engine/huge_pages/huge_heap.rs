//! A heap that asks for huge pages: all of it, and nothing else.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::run::Run;

use crate::fake::{Fake, overlap};
use crate::held::World;
use weir_core::platform::Diagnostics;

const MIB: usize = 1 << 20;

/// A heap with a hole in it, in which another mapping is.
fn with_a_hole(huge_on_advice: bool) -> (World, Run) {
    let mut fake = Fake::new();
    fake.huge_on_advice = huge_on_advice.into();
    fake.skipped = 100;
    let mut world = World::new(fake);
    let first = world.alloc(MIB).unwrap();
    let foreign = world.fake().put_behind(world.held[first].addr, 20 * MIB);
    (0..100).for_each(|_| assert!(world.alloc(MIB).is_some()));
    (world, foreign)
}

fn taken(runs: &std::sync::Mutex<Vec<Run>>) -> Vec<Run> {
    std::mem::take(&mut *runs.lock().unwrap())
}

/// The runs have every block, and nothing of what is not the heap's.
fn cover(world: &World, runs: &[Run], foreign: Run) {
    let has = |addr: usize| runs.iter().any(|run| (run.addr..run.addr + run.len).contains(&addr));
    assert!(world.held.iter().all(|block| has(block.addr) && has(block.addr + block.len - 1)), "{runs:x?}");
    assert!(runs.iter().all(|&run| !overlap(run, foreign) && world.fake().is_mapped(run)), "{runs:x?}");
}

#[test]
fn what_is_mapped_and_what_comes_asks_while_it_is_on() {
    let (mut world, foreign) = with_a_hole(true);
    assert!(taken(&world.fake().advised).is_empty(), "it is off");
    world.fake().tunables().huge_heap.set(1);
    world.heap.reclaim().follow_huge_heap();
    cover(&world, &taken(&world.fake().advised), foreign);
    assert!(world.fake().huge.load(Relaxed));
    let before = world.held.len();
    while world.fake().advised.lock().unwrap().is_empty() {
        world.alloc(MIB).unwrap();
    }
    let grown = taken(&world.fake().advised);
    let last = world.held.last().unwrap().addr;
    assert!(world.held.len() > before && grown.iter().any(|run| (run.addr..run.addr + run.len).contains(&last)));
    world.audit();
    world.fake().tunables().huge_heap.set(0);
    world.heap.reclaim().follow_huge_heap();
    cover(&world, &taken(&world.fake().advised_small), foreign);
    assert!(!world.fake().huge.load(Relaxed));
    (0..50).for_each(|_| assert!(world.alloc(MIB).is_some()));
    assert!(taken(&world.fake().advised).is_empty(), "what is new asks no more");
}

#[test]
fn a_system_that_gives_none_on_advice_is_not_asked() {
    let (world, _) = with_a_hole(false);
    world.fake().tunables().huge_heap.set(1);
    world.heap.reclaim().follow_huge_heap();
    assert!(taken(&world.fake().advised).is_empty() && !world.fake().huge.load(Relaxed));
}

#[test]
fn a_value_that_is_there_before_the_heap_counts_from_its_first_page() {
    let mut fake = Fake::new();
    fake.huge_on_advice = true.into();
    let mut world = World::new(fake);
    world.fake().tunables().huge_heap.set(1);
    world.heap.reclaim().follow_huge_heap();
    world.alloc(MIB).unwrap();
    assert!(world.fake().huge.load(Relaxed));
    assert!(!taken(&world.fake().advised).is_empty());
}
