//! The steps that a slow path takes do not grow with the heap: counted in looks at pageblocks, not in time.
#![cfg(debug_assertions)]

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::heap::Heap;

use crate::fake::Fake;

const MIB: usize = 1 << 20;
/// Calls that an average is taken over.
const CALLS: usize = 200;

/// Looks at pageblocks. They are for an allocation of a run, a free of one, and a growth by one run. A calm window
/// in which nothing moved, and a reported pageblock have theirs as well.
#[derive(Debug)]
struct Costs([f64; 5]);

/// A heap of `gib` GiB in runs of 4 MiB, of which every second is free, on a machine of [`CPUS`](crate::fake::CPUS)
/// CPUs. Nothing is touched.
fn costs(gib: usize) -> Costs {
    let runs = gib * 256;
    let mut fake = Fake::new();
    fake.window = (gib << 30) + (1 << 30);
    let heap = Box::new(Heap::new(fake));
    let alloc = |size| {
        let block = heap.alloc(size);
        assert!(!block.is_null());
        block
    };
    // SAFETY: each block is freed once, and never used.
    let free = |block| unsafe { heap.free(block) };
    let visits = |f: &mut dyn FnMut()| {
        let before = heap.figures().pageblock_visits();
        f();
        (heap.figures().pageblock_visits() - before) as f64
    };
    let mut blocks = Vec::new();
    let grow = visits(&mut || (0..runs).for_each(|_| blocks.push(alloc(4 * MIB)))) / runs as f64;
    heap.reclaim().balance_calm(); // The window of the peak.
    blocks.iter().step_by(2).for_each(|&block| free(block));
    let mut small = Vec::new();
    let take = visits(&mut || (0..CALLS).for_each(|i| small.push(alloc(40_000 + i * 1000)))) / CALLS as f64;
    let give = visits(&mut || small.drain(..).for_each(free)) / CALLS as f64;
    let calm = visits(&mut || assert!(heap.reclaim().balance_calm()));
    let mut bytes = 0;
    let report = visits(&mut || bytes = heap.reclaim().balance_pressure(Level::Some, Cause::Pressure)) / runs as f64;
    assert_eq!(bytes, gib << 29);
    Costs([grow, take, give, calm, report])
}

fn hold(sizes: &[usize]) {
    let curve: Vec<Costs> = sizes.iter().map(|&gib| costs(gib)).collect();
    for (gib, costs) in sizes.iter().zip(&curve) {
        println!("{gib:5} GiB: {costs:?}");
        for (now, least) in costs.0.into_iter().zip(curve[0].0) {
            assert!(now <= least * 1.2 + 1.0, "{gib} GiB: {costs:?}, {} GiB: {:?}", sizes[0], curve[0]);
        }
    }
}

#[test]
fn a_step_costs_the_same_in_a_heap_of_128_gib_as_in_one_of_1_gib() {
    hold(&[1, 8, 128]);
}

/// Needs 6 GiB of memory: `cargo test -p weir-memory-core --test engine -- --ignored --nocapture tib`.
#[test]
#[ignore = "nightly: 6 GiB of metadata; a minute"]
fn a_step_costs_the_same_in_a_heap_of_4_tib_as_in_one_of_1_gib() {
    hold(&[1, 16, 256, 4095]);
}
