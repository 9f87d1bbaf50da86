//! The estimate of what is left below a limit, between two readings of it.

use weir_core::base::level::Level;
use weir_core::base::units::{PAGE, PAGEBLOCK};
use weir_core::platform::Diagnostics;
use weir_core::reclaim::budget::Room;

use crate::held::World;
use crate::reclaim::order::{RUN, free_where, pressure, runs, world};

const MIB: usize = 1 << 20;

fn read(world: &World, capacity: usize, free: usize) {
    world.heap.reclaim().read_room(Room::shared(capacity as u64, (capacity - free) as u64));
}

fn free(world: &World) -> usize {
    world.heap.reclaim().budget_figures().free
}

#[test]
fn below_a_small_limit_memory_is_counted_before_what_has_to_stay_free_is_gone() {
    let mut world = world(false);
    read(&world, 80 * MIB, 20 * MIB);
    let min = world.heap.reclaim().budget_figures().min;
    assert!(min < PAGEBLOCK);
    for taken in (RUN..16 * MIB).step_by(RUN) {
        runs(&mut world, 1);
        let (left, counted) = (20 * MIB - taken, free(&world));
        assert!(counted >= left && counted < left + min / 2, "{counted} seem to be left of {left}, min is {min}");
    }
}

#[test]
fn what_was_released_and_is_taken_again_counts() {
    let mut world = world(false);
    (0..4000).for_each(|_| assert!(world.alloc(1000).is_some()));
    runs(&mut world, 16 * MIB / RUN);
    let base = world.held.iter().map(|block| block.addr).min().unwrap();
    // All runs, and pages inside slabs.
    free_where(&mut world, |addr| (addr - base) % (32 << 10) >= 4096);
    pressure(&world, Level::Severe);
    read(&world, 80 * MIB, 40 * MIB);
    runs(&mut world, 14 * MIB / RUN);
    (0..3500).for_each(|_| assert!(world.alloc(1000).is_some()));
    let left = free(&world);
    assert!(
        (19 * MIB..25 * MIB).contains(&left),
        "{left} seem to be left of 40 MiB less 14 of runs and some of objects"
    );
}

#[test]
fn what_was_released_long_ago_and_is_taken_again_counts() {
    let mut world = world(false);
    (0..16_000).for_each(|_| assert!(world.alloc(1000).is_some()));
    // Every other page stays in use, and so each slab.
    free_where(&mut world, |addr| [2, 4, 6].contains(&(addr / PAGE % 8)));
    let long_ago = pressure(&world, Level::Severe);
    world.fake().pass_ms(2 * world.fake().tunables().refault_ms.get());
    free_where(&mut world, |addr| (addr / PAGE).is_multiple_of(16));
    let lately = pressure(&world, Level::Severe);
    assert!(long_ago > 11 * MIB / 2 && (MIB / 2..MIB).contains(&lately), "{long_ago} and {lately} released");
    read(&world, 80 * MIB, 40 * MIB);
    (0..5500).for_each(|_| assert!(world.alloc(1000).is_some()));
    let left = free(&world);
    assert!(left < 36 * MIB, "{left} seem to be left of 40 MiB less 5.4");
}
