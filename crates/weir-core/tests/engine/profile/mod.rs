//! The heap profile: estimates, the ends of its tables, what fails, forks and threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::time::Time;
use weir_core::base::units::PAGE;
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;
use weir_core::profile::interval::{charge, draw, next_random};
use weir_core::profile::layout::{FRAMES, Profile, STACKS};
use weir_core::profile::recorder::Origin;

use crate::fake::{Call, Fake};
use crate::held::layout;

mod model;

const MIB: usize = 1 << 20;

/// Live objects and bytes, allocated objects and bytes.
pub type Counts = [u64; 4];

pub fn heap() -> Box<Heap<Fake>> {
    let heap = Box::new(Heap::new(Fake::new()));
    heap.prepare();
    heap
}

pub fn table(heap: &Heap<Fake>) -> &'static Profile {
    heap.profile().table().expect("sampling was on")
}

/// The counts that the table has of each stack, by its frames.
pub fn counted(heap: &Heap<Fake>) -> BTreeMap<Vec<usize>, Counts> {
    let used = table(heap).stacks.iter().filter(|stack| stack.depth.load(Relaxed) != 0);
    used.map(|stack| {
        let depth = stack.depth.load(Relaxed) as usize;
        let frames = stack.frames[..depth].iter().map(|frame| frame.load(Relaxed) as usize).collect();
        let counts = [&stack.live_objects, &stack.live_bytes, &stack.allocated_objects, &stack.allocated_bytes];
        (frames, counts.map(|count| count.load(Relaxed)))
    })
    .collect()
}

pub fn live(heap: &Heap<Fake>) -> [u64; 2] {
    counted(heap).values().fold([0, 0], |[objects, bytes], of| [objects + of[0], bytes + of[1]])
}

fn sampled(heap: &Heap<Fake>, size: usize, frames: &[usize]) -> *mut u8 {
    heap.samples().alloc(
        layout(16, size),
        false,
        Origin { frames, mean: heap.profile().mean().max(1), random: u64::MAX },
    )
}

#[test]
fn what_samples_stand_for_is_what_was_allocated() {
    const MEAN: u64 = 4096;
    // Size, allocations, and how many of ten are freed.
    let stacks = [(24, 60_000, 3), (300, 20_000, 5), (5000, 4000, 9)];
    let (heap, mut state) = (heap(), 42);
    heap.profile().switch(heap.platform(), MEAN, Time(0)).unwrap();
    let mut left = draw(next_random(&mut state), MEAN);
    for (stack, &(size, count, freed)) in stacks.iter().enumerate() {
        for number in 0..count {
            left -= charge(size);
            let addr = if left < 0 {
                left = draw(next_random(&mut state), MEAN);
                let random = next_random(&mut state);
                heap.samples().alloc(layout(16, size), false, Origin { frames: &[stack + 1], mean: MEAN, random })
            } else {
                heap.alloc(size)
            };
            if number % 10 < freed {
                // SAFETY: allocated just now.
                unsafe { heap.free(addr) };
            }
        }
    }
    let counted = counted(&heap);
    for (stack, &(size, count, freed)) in stacks.iter().enumerate() {
        let live = count / 10 * (10 - freed);
        let expected = [live, live * size as u64, count, count * size as u64];
        // Of n samples the deviation is below a root of n; the bound is five of them.
        let samples = |count: u64| count as f64 * (1.0 - (-(charge(size) as f64) / MEAN as f64).exp());
        for (&found, (expected, of)) in
            counted[&vec![stack + 1]].iter().zip(expected.into_iter().zip([live, live, count, count]))
        {
            let bound = expected as f64 * 5.0 / samples(of).sqrt();
            assert!((found as f64 - expected as f64).abs() < bound, "{size}: {found} for {expected}, bound {bound}");
        }
    }
}

#[test]
fn samples_are_followed_until_they_are_freed_also_after_the_end() {
    let heap = heap();
    assert!(heap.profile().table().is_none() && heap.platform().stats().profile.load(Relaxed) == 0);
    heap.profile().switch(heap.platform(), 0, Time(0)).unwrap();
    assert!(heap.profile().table().is_none(), "nothing is mapped for nothing");
    heap.profile().switch(heap.platform(), 64, Time(0)).unwrap();
    let at = heap.platform().stats().profile.load(Relaxed);
    assert_eq!(at, std::ptr::from_ref(table(&heap)) as u64);
    let [first, second] = [1000, 2000].map(|size| sampled(&heap, size, &[5]));
    heap.profile().switch(heap.platform(), 0, Time(0)).unwrap();
    let untracked = sampled(&heap, 4000, &[5]);
    assert_eq!((live(&heap), heap.profile().live()), ([2, 3000], 2));
    // SAFETY: allocated above.
    unsafe { heap.free(first) };
    heap.profile().switch(heap.platform(), 1 << 20, Time(0)).unwrap();
    assert_eq!(heap.platform().stats().profile.load(Relaxed), at, "the tables stay where they are");
    // What is taken off is what was added, whatever the mean is by now.
    // SAFETY: allocated above.
    unsafe { heap.free(second) };
    // SAFETY: allocated above.
    unsafe { heap.free(untracked) };
    assert_eq!((live(&heap), heap.profile().live()), ([0, 0], 0));
    assert_eq!(counted(&heap)[&vec![5]], [0, 0, 2, 3000]);
}

#[test]
fn a_stack_is_kept_up_to_its_bound_and_one_of_nothing_too() {
    let heap = heap();
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let long = Vec::from_iter(1..=FRAMES + 9);
    sampled(&heap, 100, &long);
    sampled(&heap, 100, &long[..FRAMES]);
    sampled(&heap, 100, &long[..FRAMES - 1]);
    sampled(&heap, 100, &[]);
    let counted = counted(&heap);
    assert_eq!(counted.len(), 3);
    assert_eq!(counted[&long[..FRAMES]][0], 2);
    assert_eq!((counted[&long[..FRAMES - 1]][0], counted[&vec![0]][0]), (1, 1));
}

#[test]
fn full_tables_lose_samples_and_no_memory() {
    let mut fake = Fake::new();
    fake.window = 1 << 30;
    let heap = Box::new(Heap::new(fake));
    heap.prepare();
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let header = &table(&heap).header;
    for stack in 0..2 * STACKS {
        let block = sampled(&heap, 100, &[stack + 1]);
        // SAFETY: allocated just now; a sample without a stack is a block as any other.
        unsafe { heap.free(block) };
    }
    let (stacks, lost) = (header.stacks.load(Relaxed) as usize, header.lost_stacks.load(Relaxed) as usize);
    assert_eq!(stacks + lost, 2 * STACKS);
    assert!(stacks > STACKS / 10 * 9 && stacks <= STACKS, "{stacks}");
    assert_eq!(heap.profile().live(), 0);
    // A stack that is in the table, and more live blocks than are kept.
    let most = (1 << 17) / 4 * 3;
    let blocks = Vec::from_iter((0..most + 100).map(|_| sampled(&heap, 100, &[1])));
    assert_eq!((heap.profile().live(), header.lost_blocks.load(Relaxed)), (most, 100));
    // SAFETY: allocated above.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block) });
    assert_eq!((heap.profile().live(), live(&heap)), (0, [0, 0]));
    assert_eq!(counted(&heap)[&vec![1]][2], most as u64 + 101);
    heap.audit().unwrap();
}

#[test]
fn without_memory_for_the_tables_sampling_stays_off() {
    let heap = heap();
    heap.platform().fail(Call::Map, u64::MAX);
    assert_eq!(heap.profile().switch(heap.platform(), 64, Time(0)).map_err(|why| why.error), Err(12));
    assert!(heap.profile().mean() == 0 && heap.profile().table().is_none());
    // Whoever decided before that is served all the same.
    let block = sampled(&heap, 100, &[1]);
    assert!(!block.is_null());
    heap.platform().fail_nothing();
    heap.profile().switch(heap.platform(), 64, Time(0)).unwrap();
    // SAFETY: allocated above.
    unsafe { heap.free(block) };
    assert!(heap.profile().mean() == 64 && live(&heap) == [0, 0]);
}

#[test]
fn a_resize_that_fails_leaves_the_sample_and_one_that_succeeds_does_not() {
    let heap = heap();
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let block = sampled(&heap, 5 * MIB, &[1]);
    heap.platform().fail(Call::Remap, u64::MAX);
    heap.platform().fail(Call::Map, u64::MAX);
    // SAFETY: allocated above; it is refused.
    assert!(unsafe { heap.realloc(block, 50 * MIB) }.is_null());
    assert_eq!((live(&heap), heap.profile().live()), ([1, 5 * MIB as u64], 1));
    heap.platform().fail_nothing();
    // SAFETY: the block is as it was.
    let block = unsafe { heap.realloc(block, 50 * MIB) };
    assert_eq!((live(&heap), heap.profile().live()), ([0, 0], 0));
    // SAFETY: live.
    unsafe { heap.free(block) };
}

/// What a sample stands for is rounded: here 13.3 blocks of 5 MiB are 13, with the bytes of 13.3.
#[test]
fn a_tracer_hears_the_size_that_was_asked_for_after_a_resize_that_fails_too() {
    let heap = heap();
    heap.profile().switch(heap.platform(), 64 * MIB as u64, Time(0)).unwrap();
    let block = sampled(&heap, 5 * MIB, &[1]);
    heap.platform().fail(Call::Remap, u64::MAX);
    heap.platform().fail(Call::Map, u64::MAX);
    // SAFETY: allocated above; it is refused.
    assert!(unsafe { heap.realloc(block, 50 * MIB) }.is_null());
    assert_eq!(*heap.platform().samples.lock().unwrap(), [(block.addr(), 5 * MIB); 2]);
    // SAFETY: the block is as it was.
    unsafe { heap.free(block) };
}

#[test]
fn a_double_free_takes_nothing_off_twice() {
    let heap = heap();
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let (kept, block) = (sampled(&heap, 100, &[1]), sampled(&heap, 100, &[1]));
    // SAFETY: freed twice on purpose: the platform hears of it, and nothing uses the block.
    unsafe {
        heap.free(block);
        heap.free(block);
    }
    assert_eq!(heap.platform().take_misuses(), [(InvalidFree::DoubleFree, block as usize)]);
    assert_eq!(live(&heap), [1, 100]);
    // SAFETY: live.
    unsafe { heap.free(kept) };
}

#[test]
fn a_forked_child_goes_on_with_the_tables() {
    let heap = heap();
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let block = sampled(&heap, 100, &[1]);
    heap.fork().freeze();
    // SAFETY: frozen just now on this thread, which plays the child's only one.
    unsafe { heap.fork().thaw_child() };
    // SAFETY: the parent's block, of which the child has a copy.
    unsafe { heap.free(block) };
    assert!(!sampled(&heap, 200, &[2]).is_null());
    assert_eq!(live(&heap), [1, 200]);
}

#[test]
fn threads_sample_and_free_while_sampling_is_switched() {
    let heap: Arc<Heap<Fake>> = Arc::from(heap());
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel::<usize>(64);
        let of_threads = (0..3).map(|thread| {
            let (heap, send) = (heap.clone(), send.clone());
            scope.spawn(move || {
                for number in 0..3000 {
                    send.send(sampled(&heap, 40 + number, &[thread + 1]) as usize).unwrap();
                }
            })
        });
        let of_threads = Vec::from_iter(of_threads);
        drop(send);
        let frees = heap.clone();
        let other = scope.spawn(move || {
            // SAFETY: a live block that its thread gave away.
            receive.into_iter().for_each(|block| unsafe { frees.free(block as *mut u8) });
        });
        while !of_threads.iter().all(|thread| thread.is_finished()) {
            heap.profile().switch(heap.platform(), 0, Time(0)).unwrap();
            heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
        }
        other.join().unwrap();
    });
    assert_eq!((live(&heap), heap.profile().live()), ([0, 0], 0));
    heap.audit().unwrap();
}

#[test]
fn several_that_switch_it_on_at_once_have_one_table() {
    for _ in 0..50 {
        let heap: Arc<Heap<Fake>> = Arc::from(heap());
        let tables = std::thread::scope(|scope| {
            let switch = || {
                heap.profile().switch(heap.platform(), 64, Time(0)).unwrap();
                std::ptr::from_ref(table(&heap)) as usize
            };
            let threads = [scope.spawn(switch), scope.spawn(switch), scope.spawn(switch)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(tables.iter().all(|&at| at == tables[0]));
        assert_eq!(heap.platform().stats().profile.load(Relaxed), tables[0] as u64);
    }
}

#[test]
fn the_tables_count_as_metadata_by_what_is_resident() {
    let heap = heap();
    heap.platform().really.store(true, Relaxed);
    assert!(!heap.alloc(100).is_null());
    let before = heap.figures().usage().metadata;
    heap.profile().switch(heap.platform(), 1, Time(0)).unwrap();
    let on = heap.figures().usage().metadata;
    assert_eq!(on - before, PAGE, "the header");
    (1..=50).for_each(|stack| assert!(!sampled(&heap, 100, &[stack]).is_null()));
    let used = heap.figures().usage().metadata - on;
    assert!((20 * PAGE..=150 * PAGE).contains(&used), "{used}");
}
