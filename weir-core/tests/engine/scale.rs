//! The steps that a slow path takes do not grow with the heap: counted in looks at pageblocks, not in time.
#![cfg(debug_assertions)]

use weir_core::heap::Heap;
use weir_core::pressure::Level;
use weir_core::stats::Cause;

use crate::fake::Fake;

const MIB: usize = 1 << 20;
/// Calls that an average is taken over.
const CALLS: usize = 200;

/// Looks at pageblocks: for an allocation of a run, a free of one, a growth by one MiB, and a reported pageblock.
#[derive(Debug)]
struct Costs([f64; 4]);

/// A heap of `gib` GiB in runs of 1 MiB, of which every second is free. Nothing is touched.
fn costs(gib: usize) -> Costs {
    let mut fake = Fake::new();
    fake.window = gib << 31;
    let heap = Box::new(Heap::new(fake));
    let alloc = |size| {
        let block = heap.alloc(size);
        assert!(!block.is_null());
        block
    };
    // SAFETY: each block is freed once, and never used.
    let free = |block| unsafe { heap.free(block) };
    let visits = |f: &mut dyn FnMut()| {
        let before = heap.pageblock_visits();
        f();
        (heap.pageblock_visits() - before) as f64
    };
    let mut blocks = Vec::new();
    let grow = visits(&mut || (0..gib * 1024).for_each(|_| blocks.push(alloc(MIB)))) / (gib * 1024) as f64;
    blocks.iter().step_by(2).for_each(|&block| free(block));
    let mut small = Vec::new();
    let take = visits(&mut || (0..CALLS).for_each(|i| small.push(alloc(40_000 + i * 1000)))) / CALLS as f64;
    let give = visits(&mut || small.drain(..).for_each(free)) / CALLS as f64;
    let mut bytes = 0;
    let report = visits(&mut || bytes = heap.balance_pressure(Level::Some, Cause::Pressure)) / (gib * 512) as f64;
    assert_eq!(bytes, gib << 29);
    Costs([grow, take, give, report])
}

#[test]
fn a_step_costs_the_same_in_a_heap_of_64_gib_as_in_one_of_1_gib() {
    let (small, large) = (costs(1), costs(64));
    for (s, l) in small.0.into_iter().zip(large.0) {
        assert!(l <= s * 1.2 + 1.0, "{small:?} {large:?}");
    }
}
