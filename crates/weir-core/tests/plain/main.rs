//! The engine on plain allocations, in steps so few that Miri ends in minutes: `.ci/miri`. It shows accesses beyond an
//! allocation, of what was freed or is not there yet, references that overlap, and data races.
//!
//! Addresses are numbers in the engine, so pointers are made of exposed ones: strict provenance does not hold, and
//! `-Zmiri-permissive-provenance` says so.

mod mechanisms;
mod platform;

use platform::{Plain, run_on};
use std::alloc::Layout;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::units::PAGE;
use weir_core::caches::user_cache::Spec;
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;
use weir_core::reclaim::Audit;

/// Blocks of the test's, filled and checked: address, length and byte.
struct Held<'a> {
    heap: &'a Heap<Plain>,
    blocks: Vec<(*mut u8, usize, u8)>,
}

impl Held<'_> {
    fn take(&mut self, block: *mut u8, len: usize) {
        assert!(!block.is_null(), "no memory for {len} bytes");
        let byte = self.blocks.len() as u8 + 1;
        // SAFETY: just allocated, with that many bytes.
        unsafe { block.write_bytes(byte, len) };
        self.blocks.push((block, len, byte));
    }

    /// Checks the ends of block `i`, and forgets it.
    fn give_up(&mut self, i: usize) -> (*mut u8, usize, u8) {
        let (block, len, byte) = self.blocks.swap_remove(i);
        // SAFETY: the test holds the block, all of which it has written.
        assert_eq!(unsafe { (*block, *block.add(len - 1)) }, (byte, byte));
        (block, len, byte)
    }

    fn free(&mut self, i: usize) {
        let (block, ..) = self.give_up(i);
        // SAFETY: the test held it and has forgotten it.
        unsafe { self.heap.free(block) };
    }

    fn realloc(&mut self, i: usize, len: usize) {
        let (block, old, byte) = self.give_up(i);
        // SAFETY: the test held it and has forgotten it.
        let new = unsafe { self.heap.realloc(block, len) };
        // SAFETY: that many bytes were kept.
        assert_eq!(unsafe { (*new, *new.add(old.min(len) - 1)) }, (byte, byte));
        self.take(new, len);
    }

    fn free_all(&mut self) {
        while !self.blocks.is_empty() {
            self.free(self.blocks.len() / 2);
        }
    }
}

fn with_heap(work: impl Fn(&Heap<Plain>)) {
    for lockless in [true, false] {
        run_on(0);
        let heap = Box::new(Heap::new(Plain::new(lockless)));
        heap.prepare();
        work(&heap);
        finish(&heap);
    }
}

/// Nothing is held any more, and nothing is left of it.
fn finish(heap: &Heap<Plain>) {
    heap.purge();
    let audit = heap.audit().unwrap_or_else(|fault| panic!("{fault:?}"));
    let hollow = Audit { reported_pages: audit.reported_pages, hole_pages: audit.hole_pages, ..Audit::default() };
    assert_eq!(audit, hollow);
    assert_eq!(*heap.platform().misuses.lock().unwrap(), []);
}

#[test]
fn objects_of_many_classes() {
    with_heap(|heap| {
        let mut held = Held { heap, blocks: Vec::new() };
        for size in [1, 16, 100, 1000, 9000, 30_000] {
            for _ in 0..10 {
                held.take(heap.alloc(size), size);
            }
        }
        (0..20).for_each(|i| held.free(i));
        for size in [100, 1000] {
            held.take(heap.alloc_zeroed(size), size);
            held.take(heap.alloc_aligned(Layout::from_size_align(size, 256).unwrap()), size);
        }
        held.realloc(0, 5000);
        held.realloc(1, 5);
        heap.audit().unwrap();
        held.free_all();
    });
}

#[test]
fn runs_and_blocks_of_their_own() {
    with_heap(|heap| {
        let mut held = Held { heap, blocks: Vec::new() };
        for size in [10 * PAGE, 40 * PAGE, 300 * PAGE] {
            held.take(heap.alloc(size), size);
            held.take(heap.alloc_zeroed(size), size);
        }
        held.realloc(1, 30 * PAGE);
        held.realloc(0, 12 * PAGE);
        held.free(2);
        held.take(heap.alloc_aligned(Layout::from_size_align(5 * PAGE, 16 * PAGE).unwrap()), 5 * PAGE);
        held.take(heap.alloc(5 << 20), 5 << 20);
        let last = held.blocks.len() - 1;
        held.realloc(last, 6 << 20);
        held.free_all();
        held.take(heap.alloc(5 << 20), 5 << 20);
        held.free_all();
    });
}

#[test]
fn reclaim_of_all_kinds_while_some_is_in_use() {
    with_heap(|heap| {
        let mut held = Held { heap, blocks: Vec::new() };
        for round in 0..3 {
            (0..60).for_each(|i| held.take(heap.alloc(100 + 50 * i), 100 + 50 * i));
            (0..4).for_each(|_| held.take(heap.alloc(64 << 10), 64 << 10));
            (0..40).for_each(|i| held.free(i % held.blocks.len()));
            heap.platform().pass_ms(heap.platform().tunables().idle_ms.get());
            match round {
                0 => assert!(heap.reclaim().balance_calm(), "there was work"),
                1 => assert!(heap.reclaim().balance_pressure(Level::Some, Cause::Pressure) > 0),
                _ => assert!(heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure) > 0),
            }
            heap.audit().unwrap();
        }
        held.free_all();
    });
}

#[test]
fn caches_of_the_programs_own() {
    with_heap(|heap| {
        let id = heap.user_caches().make(&Spec { name: b"pictures", size: 700, ..Spec::default() }).unwrap();
        let mut objects = [std::ptr::null_mut(); 40];
        assert_eq!(heap.user_caches().alloc_batch(id, &mut objects), 40);
        // SAFETY: allocated just now, with that many bytes.
        objects.iter().for_each(|object| unsafe { object.write_bytes(7, 700) });
        // SAFETY: allocated above, and not used any more.
        unsafe { heap.user_caches().free_batch(id, &objects[1..]) };
        // SAFETY: as above.
        unsafe { heap.user_caches().free(id, objects[0]) };
        // SAFETY: the cache is not used any more.
        unsafe { heap.user_caches().destroy(id) }.unwrap();
    });
}

#[test]
fn wrong_frees_are_named_and_break_nothing() {
    with_heap(|heap| {
        let (run, foreign) = (heap.alloc(40 * PAGE), &mut 0u64 as *mut u64);
        // SAFETY: not what is asked for: neither call may touch any memory, which is what is tested.
        unsafe {
            heap.free(run.wrapping_add(PAGE));
            heap.free(foreign.cast());
        }
        let named = std::mem::take(&mut *heap.platform().misuses.lock().unwrap());
        assert_eq!(named, [InvalidFree::InteriorPointer, InvalidFree::ForeignPointer]);
        // SAFETY: allocated above.
        unsafe { heap.free(run) };
    });
}

#[test]
fn threads_free_what_others_allocated() {
    with_heap(|heap| {
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel::<usize>();
            scope.spawn(move || {
                run_on(1);
                for block in receive {
                    let block = std::ptr::with_exposed_provenance_mut::<u8>(block);
                    // SAFETY: the other thread gave it up.
                    unsafe { heap.free(block) };
                }
            });
            for i in 0..80 {
                let block = heap.alloc(50 + 100 * i);
                // SAFETY: just allocated.
                unsafe { block.write_bytes(1, 50) };
                send.send(block.expose_provenance()).unwrap();
                if i == 40 {
                    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
                }
            }
        });
    });
}
