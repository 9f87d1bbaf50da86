//! The heap grows around what others mapped behind it.

use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::platform::Platform;

use crate::fake::Fake;
use crate::held::World;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

#[test]
fn somebody_elses_mapping_is_left_alone_however_long_it_is() {
    let mut fake = Fake::new();
    fake.window = 64 * GIB;
    let mut world = World::new(fake);
    for len in [2 * MIB, 300 * MIB, 5 * GIB] {
        let first = world.alloc(MIB).expect("there is room");
        let foreign = world.fake().put_behind(world.held[first].addr, len);
        for _ in 0..200 {
            let block = world.alloc(MIB).expect("there is room behind it");
            let addr = world.held[block].addr;
            assert!(addr + MIB <= foreign.addr || addr >= foreign.addr + foreign.len);
        }
        let behind = world.held.iter().filter(|block| block.addr > foreign.addr).count();
        assert!(behind > 0, "the heap did not grow past {foreign:x?}");
    }
    world.finish();
}

#[test]
fn threads_that_run_short_together_grow_the_heap_once() {
    const THREADS: usize = 48;
    let world = World::new(Fake::new());
    world.fake().is_slow.store(true, Relaxed);
    let (heap, start) = (&*world.heap, Barrier::new(THREADS));
    std::thread::scope(|scope| {
        let one = || {
            start.wait();
            let block = heap.alloc(40_000);
            assert!(!block.is_null());
            // SAFETY: this thread's, not used any more.
            unsafe { heap.free(block) };
        };
        (0..THREADS).for_each(|_| drop(scope.spawn(one)));
    });
    // One growth is 8 MiB, and 48 blocks are 2.
    let bytes = world.fake().stats().heap_bytes.load(Relaxed) as usize;
    assert!(bytes <= 32 * MIB, "{} MiB for 2", bytes / MIB);
    world.finish();
}
