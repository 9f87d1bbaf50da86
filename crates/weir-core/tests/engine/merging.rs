//! Sparse pages made equal, and merged by a fake kernel.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::level::Level;
use weir_core::base::units::PAGE;
use weir_core::caches::user_cache::{Flags, Spec};
use weir_core::platform::Diagnostics;

use crate::fake::Fake;
use crate::heap::model::{Step, apply, config, step, variant, world};
use crate::held::World;
use crate::reclaim::order::{calm, pressure};
use crate::reclaim::refaults::{REST, pulses};

/// A world in which pages are merged.
fn merging(mode: u64) -> World {
    let fake = Fake::new();
    switch_on(&fake, mode);
    World::new(fake)
}

fn switch_on(fake: &Fake, mode: u64) {
    fake.merges.store(true, Relaxed);
    fake.tunables().merge.set(mode);
}

/// Blocks of `sizes` bytes in turn, of which one in `every` is kept at random.
fn thinned(world: &mut World, sizes: &[usize], count: usize, every: u64) {
    let begin = world.held.len();
    for size in (0..count).map(|i| sizes[i % sizes.len()]) {
        assert!(world.alloc(size).is_some());
    }
    let mut random = 88_172_645_463_325_252u64;
    for i in (begin..world.held.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if !random.is_multiple_of(every) {
            world.free(i, false);
        }
    }
}

/// Calm windows until the balancer wants no more of them.
fn rest(world: &World) {
    let windows = (0..400).take_while(|_| {
        world.fake().pass_ms(world.fake().tunables().idle_ms.get());
        world.fake().merge_equal();
        world.heap.reclaim().balance_calm()
    });
    assert!(windows.count() < 200, "the balancer does not sleep");
    world.check_contents();
}

/// Pages that hold a part of what is held.
fn pages(world: &World) -> usize {
    let pages = |(addr, len): (usize, usize)| addr / PAGE..(addr + len - 1) / PAGE + 1;
    world.usable().flat_map(pages).collect::<BTreeSet<_>>().len()
}

/// Holds what the heap says of merged pages against what the fake kernel finds; returns pages that share memory, and those that
/// they share.
fn check(world: &World) -> (usize, usize) {
    let (sharing, of) = world.fake().merge_equal();
    // The audit reads metadata that was never written, so that it is resident from then on.
    let (audit, usage) = (world.audit(), world.heap.figures().usage());
    assert_eq!((sharing, (sharing - of) * PAGE), (audit.merged_pages, usage.merged), "{usage:?}");
    let (resident, _) = world.fake().resident_bytes();
    assert_eq!(usage.resident(), resident, "the sum of the parts: {usage:?}");
    (sharing, of)
}

#[test]
fn sparse_pages_become_equal_and_nothing_else_is_asked_for() {
    for (sizes, every, most_percent) in [
        (&[64usize][..], 16, 130),
        (&[128], 16, 130),
        (&[256], 16, 130),
        (&[512], 20, 130),
        (&[1024], 20, 145),
        (&[80, 112, 176, 320, 384, 896], 16, 170),
    ] {
        let mut world = merging(1);
        thinned(&mut world, sizes, 24_000_000 / sizes.iter().sum::<usize>() * sizes.len(), every);
        rest(&world);
        let (sharing, of) = check(&world);
        let live: usize = world.usable().map(|(_, len)| len).sum();
        let left = (pages(&world) - sharing + of) * PAGE;
        assert!(left * 100 <= live * most_percent, "{sizes:?}: {left} bytes for {live} live");
        let resident = |&page: &usize| {
            let run = weir_core::base::run::Run { addr: page, len: PAGE };
            weir_core::platform::Memory::resident_pages(world.fake(), run).unwrap()[0] == 1
        };
        let asked_for = world.fake().mergeable_pages();
        assert_eq!(asked_for.iter().filter(|page| resident(page)).count(), sharing, "another page may be merged");
        let should_move = world.held.iter().filter(|block| world.heap.should_move(block.addr as *const u8)).count();
        assert!(should_move * 4 < world.held.len(), "{should_move} blocks on merged pages had better move");
    }
}

#[test]
fn pages_without_room_for_random_words_are_merged_only_where_the_setting_says_so() {
    for (mode, any) in [(1, false), (2, true)] {
        let mut world = merging(mode);
        thinned(&mut world, &[2048], 20_000, 20);
        rest(&world);
        // Without random words groups may be equal by chance, here of few contents.
        assert_eq!((world.fake().merge_equal().0 > 0, world.audit().merged_pages > 0), (any, any));
    }
}

#[test]
fn a_dry_run_says_what_merging_will_release() {
    let mut world = merging(0);
    thinned(&mut world, &[100, 1000], 20_000, 16);
    (0..5).for_each(|_| calm(&world));
    let would = world.heap.reclaim().mergeable();
    assert_eq!(check(&world), (0, 0), "nothing was done");
    world.fake().tunables().merge.set(1);
    rest(&world);
    let (sharing, of) = check(&world);
    assert!(would > 0 && would == (sharing - of) * PAGE, "{would} for {sharing} - {of} pages");
    assert_eq!(world.heap.reclaim().mergeable(), 0);
}

#[test]
fn what_another_process_has_too_is_left_alone() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 20_000, 16);
    let is_shared = |page: &usize| (page / PAGE).is_multiple_of(2);
    let all: BTreeSet<_> = world.usable().map(|(addr, _)| addr / PAGE * PAGE).collect();
    let shared: BTreeSet<_> = all.iter().copied().filter(is_shared).collect();
    assert!(shared.len() > 100 && all.len() > shared.len() + 100);
    *world.fake().shared.lock().unwrap() = shared.clone();
    rest(&world);
    let asked_for = world.fake().mergeable_pages();
    assert!(asked_for.len() > 100 && asked_for.iter().all(|page| !shared.contains(page)));
    let (sharing, _) = check(&world);
    assert!(sharing > 100, "the others are merged");
    assert_eq!(world.heap.reclaim().mergeable(), 0);
    // The other process has ended, and something has changed.
    world.fake().shared.lock().unwrap().clear();
    (0..world.held.len()).rev().step_by(50).for_each(|i| world.free(i, false));
    rest(&world);
    assert!(check(&world).0 > sharing + 50);
}

#[test]
fn a_range_that_is_asked_for_again_counts_once() {
    let mut world = merging(1);
    // Pages of the second size lie between those of the first, and are not merged.
    thinned(&mut world, &[256, 2048], 12_000, 16);
    rest(&world);
    let first = world.fake().asked_to_merge();
    assert!(first > 50, "{first}");
    // More often in all than there may be ranges.
    for round in 0.. {
        assert!(round < 200, "{} calls", world.fake().asked_to_merge());
        let merged = world.audit().merged_pages;
        assert!(merged > 200, "round {round}: {merged} pages");
        if world.fake().asked_to_merge() > 5_000 {
            break;
        }
        // Blocks in free places part pages, and leave them.
        let begin = world.held.len();
        (0..2_000).for_each(|_| assert!(world.alloc(256).is_some()));
        (begin..world.held.len()).rev().for_each(|i| world.free(i, false));
        rest(&world);
    }
}

#[test]
fn a_slab_that_is_merged_still_gives_its_whole_free_pages() {
    let mut world = World::new(Fake::new());
    // It keeps what is idle for longer than slabs have to be unchanged.
    pulses(&mut world, 700, 30_000);
    assert_eq!(world.fake().stats().patience.load(Relaxed), 2);
    switch_on(world.fake(), 1);
    world.fake().tunables().merge_windows.set(1);
    thinned(&mut world, &[512], 40_000, 20);
    rest(&world);
    assert!(check(&world).0 > 100);
    let idle = world.heap.figures().usage().idle;
    assert!(idle <= REST, "{idle} bytes are idle at rest");
}

#[test]
fn what_the_kernel_cannot_be_asked_for_any_more_is_in_no_ring() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 200_000, 8);
    // Each page that another process has too parts the ranges beside it.
    let shared: BTreeSet<_> =
        world.usable().map(|(addr, _)| addr / PAGE * PAGE).filter(|page| (*page / PAGE).is_multiple_of(2)).collect();
    *world.fake().shared.lock().unwrap() = shared;
    rest(&world);
    assert_eq!(world.fake().asked_to_merge(), 4096);
    check(&world);
}

#[test]
fn what_else_of_the_process_is_merged_does_not_count() {
    let mut world = merging(1);
    world.fake().merged_elsewhere.store(100_000, Relaxed);
    thinned(&mut world, &[256], 20_000, 16);
    for _ in 0..10 {
        calm(&world);
    }
    assert!(world.audit().merged_pages > 0);
    assert_eq!(world.heap.figures().usage().merged, 0, "the kernel has not come by");
    rest(&world);
    assert!(check(&world).0 > 0);
}

#[test]
fn with_the_setting_at_0_or_a_kernel_that_merges_nothing_nothing_happens() {
    let mut world = merging(0);
    thinned(&mut world, &[256], 20_000, 16);
    rest(&world);
    world.fake().merges.store(false, Relaxed);
    world.fake().tunables().merge.set(1);
    rest(&world);
    pressure(&world, Level::Severe);
    world.heap.purge();
    assert_eq!((world.fake().mergeable_pages().len(), world.audit().merged_pages), (0, 0));
}

#[test]
fn switched_off_pages_get_their_own_memory_and_switched_on_they_are_merged_again() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 20_000, 16);
    rest(&world);
    let merged = check(&world);
    world.fake().tunables().merge.set(0);
    calm(&world);
    assert_eq!(world.fake().mergeable_pages().len(), 0);
    assert_eq!(world.heap.figures().usage().merged, 0);
    world.fake().tunables().merge.set(1);
    rest(&world);
    assert_eq!(check(&world), merged);
    world.free_all();
    rest(&world);
    assert_eq!(world.fake().mergeable_pages().len(), 0, "nothing is merged, so nothing is asked for");
}

/// The kernel has no memory for pages of their own at first.
#[test]
fn what_could_not_be_taken_back_is_taken_back_later() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 20_000, 16);
    rest(&world);
    assert!(check(&world).0 > 0);
    world.fake().tunables().merge.set(0);
    world.fake().unmerges_refused.store(1, Relaxed);
    world.fake().pass_ms(world.fake().tunables().idle_ms.get());
    assert!(world.heap.reclaim().balance_calm(), "another window is to come");
    assert!(!world.fake().mergeable_pages().is_empty());
    calm(&world);
    assert_eq!((world.fake().mergeable_pages().len(), world.heap.figures().usage().merged), (0, 0));
}

#[test]
fn slabs_that_change_wait() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 20_000, 16);
    for _ in 0..20 {
        // Not quiet.
        let i = world.alloc(256).unwrap();
        world.free(i, false);
        calm(&world);
    }
    assert_eq!(world.audit().merged_pages, 0);
    // Severe pressure merges what has not changed since it came before.
    pressure(&world, Level::Severe);
    assert_eq!(world.audit().merged_pages, 0);
    world.fake().pass_ms(2_000);
    pressure(&world, Level::Severe);
    assert!(world.audit().merged_pages > 0);
}

#[test]
fn merged_pages_are_taken_last_and_the_first_object_of_one_parts_it() {
    let mut world = merging(1);
    thinned(&mut world, &[256], 20_000, 16);
    rest(&world);
    let (before, _) = check(&world);
    // A slab that is fresh, and has room.
    let first = world.held.len();
    (0..1280).for_each(|_| assert!(world.alloc(256).is_some()));
    let after = world.audit().merged_pages;
    assert!(after < before, "there was no other room");
    (first..world.held.len()).rev().filter(|i| i % 2 == 0).for_each(|i| world.free(i, false));
    world.heap.purge();
    let parted = world.audit().merged_pages;
    (0..16).for_each(|_| assert!(world.alloc(256).is_some()));
    assert_eq!(world.audit().merged_pages, parted, "there was other room");
}

#[test]
fn caches_with_secrets_are_left_alone() {
    for no_merge in [false, true] {
        let world = merging(2);
        let spec = Spec { name: b"keys", size: 256, flags: Flags { no_merge, ..Flags::default() }, ..Spec::default() };
        let id = world.heap.user_caches().make(&spec).unwrap();
        let objects: Vec<_> = (0..4000).map(|_| world.heap.user_caches().alloc(id)).collect();
        for &object in &objects {
            // SAFETY: an object of 256 bytes, just allocated.
            unsafe { object.write_bytes(7, 256) };
        }
        // SAFETY: each object is freed once, and those that are kept below.
        let free = |object: *mut u8| unsafe { world.heap.free(object) };
        objects.iter().enumerate().filter(|(i, _)| i % 17 > 0).for_each(|(_, &object)| free(object));
        rest(&world);
        assert_eq!(world.heap.audit().unwrap().merged_pages > 0, !no_merge);
        objects.iter().step_by(17).for_each(|&object| free(object));
        // SAFETY: it is not used any more.
        unsafe { world.heap.user_caches().destroy(id) }.unwrap();
    }
}

proptest! {
    #![proptest_config(config())]

    /// Random histories, with writes to what is held, in which passes come as often as they can.
    #[test]
    fn no_object_changes_but_by_the_program(
        v in variant(),
        mode in 1u64..3,
        steps in prop::collection::vec((step(), any::<prop::sample::Index>(), 0usize..40), 1..60),
    ) {
        let mut world = world(v);
        switch_on(world.fake(), mode);
        world.fake().tunables().merge_windows.set(1);
        world.fake().tunables().severe_interval_ms.set(0);
        for (step, at, writes) in &steps {
            apply(&mut world, step);
            for i in 0..*writes {
                if !world.held.is_empty() {
                    let i = at.index(1 << 20).wrapping_mul(i + 1) % world.held.len();
                    world.rewrite(i);
                }
            }
            apply(&mut world, &Step::Pressure(Level::Severe));
            world.check_contents();
            world.audit();
            world.fake().merge_equal();
            crate::heap::usage::check_sum(&world);
        }
    }
}
