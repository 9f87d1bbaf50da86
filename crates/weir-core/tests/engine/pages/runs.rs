//! Where runs lie: what is cut in place, what moves, and which hole is found again.

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::units::PAGE;

use crate::fake::Fake;
use crate::held::World;

/// A run of this many pages is of no class, no power of two, and long enough for its hole to be remembered.
const PAGES: usize = 600;

#[test]
fn a_run_is_cut_in_place_down_to_its_half_and_moves_below_that() {
    for (left, is_cut) in [(PAGES / 2, true), (PAGES / 2 - 1, false), (PAGES / 16, false)] {
        let mut world = World::new(Fake::new());
        world.alloc(PAGES * PAGE).unwrap();
        // It stays, so that a smaller run does not find the place of the longer one.
        world.alloc(PAGES * PAGE).unwrap();
        let before = world.held[0].addr;
        world.realloc(0, left * PAGE);
        let moved = world.held.iter().all(|block| block.addr != before);
        assert_eq!(!moved, is_cut, "{left} of {PAGES} pages are left");
    }
}

#[test]
fn a_hole_is_forgotten_as_soon_as_its_memory_is_released() {
    let mut world = World::new(Fake::new());
    let hole = world.alloc(PAGES * PAGE).unwrap();
    let hole = world.held[hole].addr;
    // Runs of another length, whose holes are remembered apart.
    (0..4).for_each(|_| assert!(world.alloc((PAGES + 1) * PAGE).is_some()));
    let free = |world: &mut World, pages: usize, count: usize| {
        world.past_buckets(|world| {
            for _ in 0..count {
                let i = world.held.iter().position(|block| block.len == pages * PAGE).unwrap();
                world.free(i, false);
            }
        });
    };
    free(&mut world, PAGES, 1);
    assert!(world.heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure) >= PAGES * PAGE);
    free(&mut world, PAGES + 1, 2);
    let idle = world.audit().idle_pages;
    assert!(idle >= 2 * PAGES);
    let again = world.alloc(PAGES * PAGE).unwrap();
    assert_ne!(world.held[again].addr, hole, "its memory is gone, and other pages have some");
    assert_eq!(world.audit().idle_pages, idle - PAGES);
}
