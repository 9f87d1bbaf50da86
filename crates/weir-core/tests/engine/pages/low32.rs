//! Runs below 4 GiB: those that were asked for there, and those that fell back because NORMAL had no pages.

use weir_core::reclaim::budget::Room;

use crate::fake::{Call, Fake};
use crate::held::World;

const GIB: u64 = 1 << 30;
const PAGES: usize = 10;

/// A heap with a run of [`PAGES`] pages below 4 GiB that could have been of NORMAL, and one that could not.
fn world() -> (World, usize, usize) {
    let mut world = World::new(Fake::new());
    let asked = world.alloc_low(PAGES << 12).unwrap();
    world.may_fail = true;
    world.fake().fail(Call::Window, u64::MAX);
    let fell_back = world.alloc(PAGES << 12).expect("of the zone below");
    world.fake().fail_nothing();
    world.may_fail = false;
    assert!(world.held[asked].addr < 4 << 30 && world.held[fell_back].addr < 4 << 30);
    (world, asked, fell_back)
}

#[test]
fn a_run_that_fell_back_grows_where_it_is_while_the_zone_has_more_than_it_keeps() {
    let (mut world, _, fell_back) = world();
    let before = world.held[fell_back].addr;
    world.realloc(fell_back, (PAGES + 2) << 12);
    assert!(world.held.iter().any(|held| held.addr == before && held.len == (PAGES + 2) << 12));
}

#[test]
fn a_run_that_fell_back_does_not_grow_by_what_the_zone_keeps_for_requests_that_can_use_no_other() {
    let (mut world, _, fell_back) = world();
    // Of a NORMAL of so many pages the reserve, a 256th, is more than there are below 4 GiB.
    world.heap.reclaim().read_room(Room::shared(1024 * GIB, 0));
    world.realloc(fell_back, (PAGES + 2) << 12);
    assert!(world.held.iter().any(|held| held.addr >= 4 << 30 && held.len == (PAGES + 2) << 12));
}

#[test]
fn a_run_that_was_asked_for_below_4_gib_grows_by_what_the_zone_keeps() {
    let (mut world, asked, _) = world();
    world.heap.reclaim().read_room(Room::shared(1024 * GIB, 0));
    world.realloc(asked, (PAGES + 2) << 12);
    assert!(world.held.iter().any(|held| held.addr < 4 << 30 && held.len == (PAGES + 2) << 12));
}
