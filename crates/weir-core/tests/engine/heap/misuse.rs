//! Wrong frees: each is named, none is obeyed, and the heap is whole afterwards.

use std::sync::atomic::Ordering::Relaxed;

use weir_core::base::invalid_free::InvalidFree::{self, DoubleFree, ForeignPointer, InteriorPointer, SizeOfNoBlock};
use weir_core::base::units::{Class, Pages, Span};
use weir_core::caches::user_cache::Spec;
use weir_core::pages::window::unchecked;
use weir_core::pages::window::{LARGE, Window};
use weir_core::platform::{Diagnostics, Reach};

use crate::fake::Fake;
use crate::held::World;

const MODES: [bool; 2] = [true, false];

fn world(lockless: bool) -> World {
    let mut fake = Fake::new();
    fake.lockless = lockless;
    World::new(fake)
}

/// Frees an address as a wrong program would.
fn free(world: &World, addr: usize) {
    // SAFETY: it is not: that is what is tested. The engine must not touch what is held.
    unsafe { world.heap.free(addr as *mut u8) };
}

/// The misuses that were recorded, after everything cached went back to its slab.
fn misuses(world: &World) -> Vec<(InvalidFree, usize)> {
    world.heap.purge();
    world.fake().take_misuses()
}

#[test]
fn an_object_freed_twice_in_a_row() {
    for lockless in MODES {
        let mut world = world(lockless);
        world.alloc(100);
        let twice = world.alloc(100).unwrap();
        let addr = world.held[twice].addr;
        world.free(twice, false);
        free(&world, addr);
        assert_eq!(world.fake().take_misuses(), [(DoubleFree, addr)]);
        assert_eq!(misuses(&world), []);
    }
}

#[test]
fn an_object_freed_again_later() {
    for (lockless, keeper) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let mut world = world(lockless);
        if keeper {
            // Its slab stays; without it the slab is gone when the second free is looked at.
            world.alloc(100);
        }
        let (twice, other) = (world.alloc(100).unwrap(), world.alloc(100).unwrap());
        let addr = world.held[twice].addr;
        // Backwards, so that the indices stay.
        let other = world.give_up(other).addr;
        world.free(twice, false);
        free(&world, other);
        free(&world, addr);
        assert_eq!(misuses(&world), [(DoubleFree, addr)]);
    }
}

/// A batch is checked as it leaves a CPU's bucket: nothing of it is handed out twice, nor a part of something.
#[test]
fn what_is_wrong_in_a_batch() {
    const OBJECTS: usize = 1000;
    for (lockless, inside) in MODES.into_iter().flat_map(|mode| [(mode, 0), (mode, 16)]) {
        let mut world = world(lockless);
        for _ in 0..OBJECTS {
            world.alloc(100);
        }
        let kept = world.held[OBJECTS / 4].addr;
        let wrong = if inside > 0 { kept + inside } else { world.held[OBJECTS / 2].addr };
        // Every few frees the same wrong one: for the object itself, all but the first.
        for i in (OBJECTS / 4 + 1..OBJECTS).rev() {
            let addr = world.give_up(i).addr;
            if addr != wrong {
                free(&world, addr);
            }
            if i % 7 == 0 {
                free(&world, wrong);
            }
        }
        let seen = world.fake().take_misuses();
        let what = if inside > 0 { InteriorPointer } else { DoubleFree };
        assert!(!seen.is_empty() && seen.iter().all(|&misuse| misuse == (what, wrong)), "{seen:?}");
        // One a batch got through at most, and waits for its slab's look.
        let rest = misuses(&world);
        assert!(rest.iter().all(|&misuse| misuse == (what, wrong)), "{rest:?}");
        let objects = OBJECTS * 3 / 4 / 7;
        assert!(seen.len() + rest.len() + usize::from(inside == 0) >= objects, "{} and {}", seen.len(), rest.len());
    }
}

/// A batch is checked as well where a program gives it to a cache of its own, and the bucket has no room for
/// it.
#[test]
fn what_is_wrong_in_a_batch_of_a_programs() {
    for lockless in MODES {
        let world = world(lockless);
        let spec = Spec { name: b"batches", size: 200, ..Spec::default() };
        let id = world.heap.user_caches().make(&spec).unwrap();
        let mut objects = vec![std::ptr::null_mut(); 1000];
        assert_eq!(world.heap.user_caches().alloc_batch(id, &mut objects), 1000);
        let twice = objects[900];
        (901..1000).step_by(7).for_each(|i| objects[i] = twice);
        // SAFETY: it is wrong: that is what is tested.
        unsafe { world.heap.user_caches().free_batch(id, &objects) };
        let seen = world.fake().take_misuses();
        assert!(!seen.is_empty() && seen.iter().all(|&misuse| misuse == (DoubleFree, twice as usize)), "{seen:?}");
        world.leak();
    }
}

#[test]
fn a_pointer_into_an_object() {
    for (lockless, offset) in MODES.into_iter().flat_map(|mode| [(mode, 1), (mode, 8), (mode, 16)]) {
        let mut world = world(lockless);
        let addr = world.alloc(100).map(|i| world.held[i].addr).unwrap();
        free(&world, addr + offset);
        assert_eq!(misuses(&world), [(InteriorPointer, addr + offset)]);
    }
}

#[test]
fn a_run_freed_twice_and_pointers_into_runs() {
    for lockless in MODES {
        let mut world = world(lockless);
        for low in [false, true] {
            let run = if low { world.alloc_low(200_000) } else { world.alloc(200_000) }.unwrap();
            let addr = world.held[run].addr;
            for inside in [1, 16, 4096, 4097, 196_608] {
                free(&world, addr + inside);
                assert_eq!(misuses(&world), [(InteriorPointer, addr + inside)]);
            }
            world.check_contents();
            world.audit();
            world.free(run, false);
            for again in [addr, addr + 4096] {
                free(&world, again);
                assert_eq!(misuses(&world), [(DoubleFree, again)]);
            }
            world.audit();
        }
    }
}

#[test]
fn pointers_of_others() {
    for lockless in MODES {
        let mut world = world(lockless);
        let on_stack = 0u8;
        let stack = &raw const on_stack as usize;
        let mapped = world.alloc(5 << 20).unwrap();
        let addr = world.held[mapped].addr;
        for foreign in [stack, 16, usize::MAX, addr + 4096] {
            free(&world, foreign);
            assert_eq!(misuses(&world), [(ForeignPointer, foreign)]);
        }
        // SAFETY: wrong on purpose, as above.
        let (size, moved) =
            unsafe { (world.heap.usable_size(stack as *mut u8), world.heap.realloc(stack as *mut u8, 10)) };
        assert_eq!((size, moved), (0, std::ptr::null_mut()));
        assert_eq!(misuses(&world), [(SizeOfNoBlock, stack), (ForeignPointer, stack)]);
        world.free(mapped, false);
        free(&world, addr);
        assert_eq!(misuses(&world), [(DoubleFree, addr)], "it is kept");
    }
}

#[test]
fn an_address_names_the_programs_cache_that_it_is_in() {
    for lockless in MODES {
        let world = world(lockless);
        let cache = world.heap.user_caches().make(&Spec { size: 5000, ..Spec::default() }).unwrap();
        let object = world.heap.user_caches().alloc(cache).addr();
        let block = world.heap.alloc(5000).addr();
        let local = 0u8;
        assert_eq!([0, 1, 4999].map(|at| world.heap.user_caches().at(object + at)), [Some(cache); 3]);
        assert_eq!(
            [block, 0, usize::MAX, (&raw const local).addr()].map(|at| world.heap.user_caches().at(at)),
            [None; 4]
        );
        // SAFETY: allocated above, freed once; the cache is not used afterwards.
        unsafe {
            world.heap.user_caches().free(cache, object as *mut u8);
            world.heap.free(block as *mut u8);
            world.heap.user_caches().destroy(cache).unwrap();
        }
        assert_eq!(world.heap.user_caches().at(object), None, "its slab is another's now, or free");
    }
}

/// A wrong free that found a run comes so late that a slab is there: it must leave the slab's mark alone.
#[test]
fn a_late_free_of_a_run_leaves_a_slab_in_its_place_alone() {
    let (fake, window) = (Fake::new(), Window::new(Reach::Any));
    let page = window.growing(&fake).grow(1, 0).unwrap().start.first();
    // SAFETY: the window has grown by this page's block, and nobody else uses it.
    unsafe {
        unchecked::set_class(&window, Span::new(page, Pages(1)), LARGE);
        let unmark = || unchecked::unmark_run(&window, page, LARGE);
        assert!(unmark() && !unmark(), "one of two is the first");
        unchecked::set_class(&window, Span::new(page, Pages(1)), Class(7));
        assert!(!unmark());
        assert_eq!(unchecked::class_of(&window, page), Class(7));
    }
}

/// However much a cache has flushed, no batch leaves a bucket with a pointer into an object.
#[test]
fn a_pointer_into_an_object_leaves_no_bucket() {
    const OBJECTS: usize = 1000;
    for lockless in MODES {
        let mut world = world(lockless);
        let inside = world.alloc(100).map(|i| world.held[i].addr + 16).unwrap();
        for round in 0..120 {
            for _ in 0..OBJECTS {
                world.alloc(100);
            }
            for freed in 0..OBJECTS {
                world.free(world.held.len() - 1, false);
                // The bucket is full by then: it is flushed each batch, and its upper part goes.
                if round >= 100 && freed % 64 == 7 && (400..900).contains(&freed) {
                    free(&world, inside);
                }
            }
            let seen = world.fake().take_misuses();
            assert!(seen.iter().all(|&misuse| misuse == (InteriorPointer, inside)), "{seen:?}");
            assert!(round < 100 || seen.len() == 7, "{} in round {round}", seen.len());
        }
    }
}

/// With the setting `check` each wrong free is named where it happens.
#[test]
fn every_free_is_checked_if_asked_for() {
    let sizes = [100, 3000, 30_000, 50_000].into_iter().flat_map(|size| [(size, true), (size, false)]);
    for (lockless, (size, reports)) in MODES.into_iter().flat_map(|mode| sizes.clone().map(move |case| (mode, case))) {
        let mut world = world(lockless);
        world.heap.reclaim().set_reporting(reports);
        // Buckets that were filled before are emptied.
        for _ in 0..100 {
            world.alloc(size);
        }
        (0..50).for_each(|_| world.free(world.held.len() - 1, false));
        world.fake().tunables().check.set(1);
        world.heap.reclaim().follow_check();
        for _ in 0..20 {
            let [a, b] = [0, 1].map(|_| world.alloc(size).unwrap());
            let (b, a) = (world.give_up(b).addr, world.give_up(a).addr);
            free(&world, a);
            free(&world, b);
            assert_eq!(world.fake().take_misuses(), []);
            for again in [a, b] {
                free(&world, again);
                assert_eq!(world.fake().take_misuses(), [(DoubleFree, again)], "of {size} bytes");
            }
            let held = world.alloc(size).map(|i| world.held[i].addr).unwrap();
            for inside in [1, 8, 16] {
                free(&world, held + inside);
                assert_eq!(world.fake().take_misuses(), [(InteriorPointer, held + inside)], "of {size} bytes");
            }
        }
        world.check_contents();
        world.audit();
        // And back: a CPU keeps buckets again.
        world.fake().tunables().check.set(0);
        world.heap.reclaim().follow_check();
        let before = world.fake().stats().free_misses.load(Relaxed);
        (0..100).for_each(|_| {
            let block = world.alloc(100).unwrap();
            world.free(block, false);
        });
        if lockless {
            assert!(world.fake().stats().free_misses.load(Relaxed) - before < 50);
        }
    }
}
