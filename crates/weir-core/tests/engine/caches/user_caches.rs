//! User caches: objects, limits, reserves, initialised state, numbers, and in which order reclaim takes from them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use proptest::prelude::*;
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::units::PAGE;
use weir_core::caches::figures::CacheStats;
use weir_core::caches::geometry::{BUCKETED, FIRST_USER, MAX_OBJECT, UNBUCKETED};
use weir_core::caches::user_cache::{Busy, COUNTED, CacheId, Flags, LimitError, MakeError, Spec};
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;

use crate::fake::{Call, Fake, run_on, run_on_node};

mod batches;
mod moves;
mod trim;
mod unbucketed;

use moves::{
    a_program_that_always_says_no_is_asked_once, a_sparse_cache_becomes_dense, it_moves_while_the_program_goes_on,
    nearly_empty_slabs_hold_up_no_fuller_ones, some_that_stay_hold_up_no_others, the_callback_may_use_the_cache,
    the_end_of_the_cache_waits_for_the_callback, what_lies_in_buckets_and_depots_is_not_moved,
};
use trim::{
    a_reserve_is_filled_and_no_reclaim_takes_it, an_exempt_cache_keeps_all_it_has,
    an_idle_caches_memory_returns_with_no_pressure_while_a_warm_one_keeps_its,
    nothing_warm_is_trimmed_before_what_is_stale,
};

mod histories;

const WINDOW_MS: u64 = 300;

fn heap() -> Box<Heap<Fake>> {
    let heap = Box::new(Heap::new(Fake::new()));
    heap.prepare();
    heap
}

fn spec(size: usize) -> Spec<'static> {
    Spec { name: b"test", size, ..Spec::default() }
}

fn take(heap: &Heap<Fake>, id: CacheId, n: usize) -> Vec<*mut u8> {
    (0..n)
        .map(|_| {
            let object = heap.user_caches().alloc(id);
            assert!(!object.is_null());
            object
        })
        .collect()
}

fn give(heap: &Heap<Fake>, id: CacheId, objects: Vec<*mut u8>) {
    // SAFETY: the test held them and has forgotten them.
    objects.into_iter().for_each(|object| unsafe { heap.user_caches().free(id, object) });
}

fn destroy(heap: &Heap<Fake>, id: CacheId) -> Result<(), Busy> {
    // SAFETY: the test uses it no more.
    unsafe { heap.user_caches().destroy(id) }
}

fn calm(heap: &Heap<Fake>) {
    heap.platform().pass_ms(WINDOW_MS);
    heap.reclaim().balance_calm();
}

fn some(heap: &Heap<Fake>) {
    heap.reclaim().balance_pressure(Level::Some, Cause::Pressure);
}

/// A demand of `n` objects, so that the depot's estimate knows of it.
fn demand(heap: &Heap<Fake>, id: CacheId, n: usize) {
    let objects = take(heap, id, n);
    give(heap, id, objects);
}

/// Each of these is tested with caches that have per-CPU buckets, and with some beyond those.
macro_rules! with_and_without_buckets {
    ($($name:ident),* $(,)?) => {
        mod with_buckets {
            $(#[test]
            fn $name() {
                super::$name(super::heap());
            })*
        }
        mod without_buckets {
            $(#[test]
            fn $name() {
                let heap = super::heap();
                super::use_up_buckets(&heap);
                super::$name(heap);
            })*
        }
    };
}

with_and_without_buckets!(
    a_program_that_always_says_no_is_asked_once,
    a_sparse_cache_becomes_dense,
    it_moves_while_the_program_goes_on,
    nearly_empty_slabs_hold_up_no_fuller_ones,
    some_that_stay_hold_up_no_others,
    the_callback_may_use_the_cache,
    the_end_of_the_cache_waits_for_the_callback,
    what_lies_in_buckets_and_depots_is_not_moved,
    objects_are_as_large_and_as_aligned_as_asked_for_and_distinct,
    a_number_is_given_back_only_when_no_object_is_out,
    a_limit_is_exact_and_movable,
    an_object_that_the_program_cannot_use_is_a_failure_and_no_success,
    batches_are_whole_and_counted,
    zero_caches_hand_out_zeros,
    wrong_frees_are_named,
    an_init_that_fails_fails_the_allocation_and_nothing_else,
    a_reserve_is_filled_and_no_reclaim_takes_it,
    initialised_objects_keep_their_state_until_they_are_finalized,
    an_exempt_cache_keeps_all_it_has,
    an_idle_caches_memory_returns_with_no_pressure_while_a_warm_one_keeps_its,
    nothing_warm_is_trimmed_before_what_is_stale,
    each_node_has_its_own_slabs
);

fn free_objects(stats: &CacheStats) -> usize {
    stats.free_cpu + stats.free_depot + stats.free_slab
}

fn objects_are_as_large_and_as_aligned_as_asked_for_and_distinct(heap: Box<Heap<Fake>>) {
    for (size, align) in
        [(1, 1), (24, 8), (40, 64), (100, 16), (2048, 2048), (5000, 4096), (65_000, 8), (MAX_OBJECT, 8)]
    {
        let id = heap.user_caches().make(&Spec { align, ..spec(size) }).unwrap();
        let objects = take(&heap, id, 300);
        for &object in &objects {
            assert!((object as usize).is_multiple_of(align));
            // SAFETY: the objects are the test's, and that long.
            unsafe { object.write_bytes(object as usize as u8 ^ (object as usize >> 8) as u8, size) };
        }
        for &object in &objects {
            let byte = object as usize as u8 ^ (object as usize >> 8) as u8;
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(object, size) };
            assert!(bytes.iter().all(|&b| b == byte));
        }
        assert_eq!(heap.audit().unwrap().live_objects, 300);
        assert_eq!(heap.user_caches().stats(id).used, 300);
        give(&heap, id, objects);
        assert_eq!(destroy(&heap, id), Ok(()));
        assert_eq!(heap.audit().unwrap().slab_pages, 0);
    }
}

/// Makes as many caches as there are numbers with buckets.
fn use_up_buckets(heap: &Heap<Fake>) -> Vec<CacheId> {
    (FIRST_USER..BUCKETED).map(|_| heap.user_caches().make(&spec(64)).unwrap()).collect()
}

#[test]
fn an_exempt_caches_finalizers_run_at_its_end_only_and_wake_no_thread() {
    let (heap, hooks) = (heap(), Hooks::default());
    let flags = Flags { no_reclaim: true, ..Flags::default() };
    let id = heap.user_caches().make(&Spec { flags, ..constructed(&hooks, 3000) }).unwrap();
    // Without shells for buckets, what is freed goes to its slabs at once.
    heap.platform().fail(Call::Map, u64::MAX);
    demand(&heap, id, 1000);
    heap.platform().fail_nothing();
    heap.purge();
    assert!(heap.user_caches().stats(id).free_slab > 500);
    assert_eq!((hooks.finis.load(Relaxed), heap.platform().finalizer_wakes.load(Relaxed)), (0, 0));
    assert_eq!(destroy(&heap, id), Ok(()));
    assert_eq!(hooks.finis.load(Relaxed), hooks.inits.load(Relaxed));
    assert!(hooks.finis.load(Relaxed) >= 1000);
}

fn a_number_is_given_back_only_when_no_object_is_out(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&spec(200)).unwrap();
    let objects = take(&heap, id, 500);
    run_on(1);
    give(&heap, id, objects[1..].to_vec());
    run_on(0);
    assert_eq!(destroy(&heap, id), Err(Busy(1)));
    assert_eq!(heap.user_caches().stats(id).used, 1);
    demand(&heap, id, 10);
    give(&heap, id, objects[..1].to_vec());
    assert_eq!(destroy(&heap, id), Ok(()));
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
    // The next cache under that number has another geometry, on every CPU.
    let id = heap.user_caches().make(&spec(3000)).unwrap();
    for cpu in [0, 1] {
        run_on(cpu);
        demand(&heap, id, 200);
    }
    assert_eq!(heap.user_caches().stats(id).requests, 400);
    heap.audit().unwrap();
}

fn wrong_frees_are_named(heap: Box<Heap<Fake>>) {
    let (one, other) = (heap.user_caches().make(&spec(64)).unwrap(), heap.user_caches().make(&spec(64)).unwrap());
    let object = take(&heap, one, 1)[0];
    give(&heap, other, vec![object]);
    assert_eq!(heap.platform().take_misuses(), [(InvalidFree::ForeignPointer, object as usize)]);
    // SAFETY: a misuse on purpose.
    unsafe { heap.user_caches().free_batch(other, &[object]) };
    assert_eq!(heap.platform().take_misuses(), [(InvalidFree::ForeignPointer, object as usize)]);
    give(&heap, one, vec![object, object]);
    assert_eq!(heap.platform().take_misuses(), [(InvalidFree::DoubleFree, object as usize)]);
}

fn a_limit_is_exact_and_movable(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&Spec { limit: 100, ..spec(64) }).unwrap();
    let mut objects = take(&heap, id, 100);
    assert!(heap.user_caches().alloc(id).is_null());
    heap.user_caches().set_limit(id, 110).unwrap();
    let mut more = [std::ptr::null_mut(); 20];
    assert_eq!(heap.user_caches().alloc_batch(id, &mut more), 10);
    objects.extend(&more[..10]);
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.used, stats.limit, stats.failures), (110, 110, 11));
    run_on(1);
    give(&heap, id, objects);
    assert_eq!(take(&heap, id, 110).len(), 110);
    let unlimited = heap.user_caches().make(&spec(64)).unwrap();
    assert_eq!(heap.user_caches().set_limit(unlimited, 1), Err(LimitError::Uncounted));
    // A limit that stops nothing is none to whoever looks.
    let counted = heap.user_caches().make(&Spec { limit: COUNTED, ..spec(64) }).unwrap();
    assert_eq!([unlimited, counted].map(|id| heap.user_caches().stats(id).limit), [usize::MAX; 2]);
}

fn an_object_that_the_program_cannot_use_is_a_failure_and_no_success(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&spec(64)).unwrap();
    let objects = take(&heap, id, 500);
    for &refused in &objects[..200] {
        heap.user_caches().note_refused(id);
        give(&heap, id, vec![refused]);
    }
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.used, stats.requests, stats.failures), (300, 300, 200));
    give(&heap, id, objects[200..].to_vec());
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.used, stats.requests, stats.failures), (0, 300, 200));
}

fn batches_are_whole_and_counted(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&spec(300)).unwrap();
    let mut objects = [std::ptr::null_mut(); 1000];
    assert_eq!(heap.user_caches().alloc_batch(id, &mut objects), 1000);
    assert_eq!(objects.iter().collect::<BTreeSet<_>>().len(), 1000);
    assert_eq!(heap.user_caches().stats(id).used, 1000);
    // SAFETY: the test's, and freed once.
    unsafe { heap.user_caches().free_batch(id, &objects) };
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.used, stats.requests, stats.failures), (0, 1000, 0));
    heap.audit().unwrap();
    heap.platform().fail(Call::MapAt, u64::MAX);
    let mut many = vec![std::ptr::null_mut(); 1 << 20];
    let got = heap.user_caches().alloc_batch(id, &mut many);
    assert!(got >= 1000 && got < many.len());
    assert_eq!(heap.user_caches().stats(id).failures, (many.len() - got) as u64);
    // SAFETY: as above.
    unsafe { heap.user_caches().free_batch(id, &many[..got]) };
}

fn zero_caches_hand_out_zeros(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&Spec { flags: Flags { zero: true, ..Flags::default() }, ..spec(100) }).unwrap();
    for _ in 0..3 {
        let mut objects = take(&heap, id, 50);
        let mut batch = [std::ptr::null_mut(); 50];
        assert_eq!(heap.user_caches().alloc_batch(id, &mut batch), 50);
        objects.extend(batch);
        for &object in &objects {
            // SAFETY: the test's, and that long.
            unsafe {
                assert_eq!(std::slice::from_raw_parts(object, 100), [0; 100]);
                object.write_bytes(7, 100);
            }
        }
        give(&heap, id, objects);
    }
}

/// The calls that a test's `init` and `fini` see.
#[derive(Default)]
struct Hooks {
    inits: AtomicUsize,
    finis: AtomicUsize,
    /// The call of `init` that fails, counted from 1; 0: none.
    fails: AtomicUsize,
}

const MARK: u64 = 0x1234_5678_9abc;

unsafe extern "C-unwind" fn init(object: *mut u8, _size: usize, data: *mut u8) -> bool {
    // SAFETY: the test's own.
    let hooks = unsafe { &*data.cast::<Hooks>() };
    if hooks.inits.load(Relaxed) + 1 == hooks.fails.load(Relaxed) {
        hooks.fails.store(0, Relaxed);
        return false;
    }
    hooks.inits.fetch_add(1, Relaxed);
    // SAFETY: as above.
    unsafe { object.cast::<u64>().write(MARK) };
    true
}

unsafe extern "C" fn fini(object: *mut u8, _size: usize, data: *mut u8) {
    // SAFETY: as in `init`.
    unsafe {
        assert_eq!(object.cast::<u64>().read(), MARK);
        object.cast::<u64>().write(0);
        (*data.cast::<Hooks>()).finis.fetch_add(1, Relaxed);
    }
}

fn constructed(hooks: &Hooks, size: usize) -> Spec<'static> {
    let data = std::ptr::from_ref(hooks).cast_mut().cast();
    Spec { init: Some(init), fini: Some(fini), data, ..spec(size) }
}

fn assert_constructed(objects: &[*mut u8]) {
    // SAFETY: the test's objects.
    assert!(objects.iter().all(|&object| unsafe { object.cast::<u64>().read() } == MARK));
}

fn initialised_objects_keep_their_state_until_they_are_finalized(heap: Box<Heap<Fake>>) {
    let hooks = Hooks::default();
    let id = heap.user_caches().make(&constructed(&hooks, 512)).unwrap();
    let objects = take(&heap, id, 1000);
    assert_constructed(&objects);
    let before = hooks.inits.load(Relaxed);
    assert!((1000..1100).contains(&before));
    // All but one of each eight go: their pages are free inside slabs, and stay.
    let (kept, gone): (Vec<_>, Vec<_>) = objects.into_iter().enumerate().partition(|(i, _)| i % 8 == 0);
    give(&heap, id, gone.into_iter().map(|(_, object)| object).collect());
    heap.platform().pass_ms(10_000);
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    (0..10).for_each(|_| calm(&heap));
    let again = take(&heap, id, 800);
    assert_constructed(&again);
    assert_eq!(hooks.inits.load(Relaxed), before);
    give(&heap, id, again);
    give(&heap, id, kept.into_iter().map(|(_, object)| object).collect());
    heap.platform().pass_ms(10_000);
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    assert_eq!(hooks.finis.load(Relaxed), 0, "reclaim must not run a program's code");
    assert!(heap.platform().finalizer_wakes.load(Relaxed) > 0);
    assert!(heap.user_caches().run_finalizers() > 0);
    assert_eq!(hooks.finis.load(Relaxed), before);
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
    demand(&heap, id, 10);
    assert_eq!(destroy(&heap, id), Ok(()));
    assert_eq!(hooks.finis.load(Relaxed), hooks.inits.load(Relaxed));
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
}

fn an_init_that_fails_fails_the_allocation_and_nothing_else(heap: Box<Heap<Fake>>) {
    let hooks = Hooks::default();
    let id = heap.user_caches().make(&constructed(&hooks, 512)).unwrap();
    hooks.fails.store(5, Relaxed);
    assert!(heap.user_caches().alloc(id).is_null());
    assert_eq!((hooks.inits.load(Relaxed), hooks.finis.load(Relaxed)), (4, 4));
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
    assert_eq!(heap.user_caches().stats(id).failures, 1);
    demand(&heap, id, 10);
    assert_eq!(destroy(&heap, id), Ok(()));
}

// ---- reclaim --------------------------------------------------------------------------------------------------------

#[test]
fn a_cross_cpu_free_is_local_and_its_flow_is_known() {
    let heap = heap();
    let id = heap.user_caches().make(&spec(128)).unwrap();
    demand(&heap, id, 4000);
    let before = heap.user_caches().stats(id);
    assert_eq!(before.crossed, 0);
    for _ in 0..10 {
        run_on(0);
        let objects = take(&heap, id, 1000);
        run_on(1);
        give(&heap, id, objects);
    }
    let after = heap.user_caches().stats(id);
    assert!((9_900..=10_000).contains(&after.crossed), "{}", after.crossed);
    assert_eq!(after.requests, before.requests + 10_000);
    assert_eq!(after.misses, before.misses, "what one CPU frees serves another");
}

fn each_node_has_its_own_slabs(heap: Box<Heap<Fake>>) {
    heap.platform().node_count.store(3, Relaxed);
    let id = heap.user_caches().make(&spec(1000)).unwrap();
    let mut held = Vec::new();
    for node in 0..3 {
        run_on_node(node);
        run_on(node);
        held.push(take(&heap, id, 500));
    }
    // Freed elsewhere: they go home.
    run_on_node(1);
    run_on(1);
    let homes: Vec<BTreeSet<_>> = held.iter().map(|objects| objects.iter().copied().collect()).collect();
    held.into_iter().for_each(|objects| give(&heap, id, objects));
    heap.purge();
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
    for (node, home) in homes.iter().enumerate() {
        run_on_node(node);
        run_on(node);
        let objects = take(&heap, id, 400);
        let near = |object: &&*mut u8| home.iter().any(|&o| (o as usize).abs_diff(**object as usize) < 2 << 20);
        assert_eq!(objects.iter().filter(near).count(), 400);
        give(&heap, id, objects);
    }
    heap.audit().unwrap();
    run_on_node(0);
}

/// A drain that releases a CPU's slots holds a batch of objects, which are freed and not yet back, as often as it releases.
#[test]
fn requests_do_not_fall_whoever_has_objects_in_hand() {
    let heap: &'static Heap<Fake> = Box::leak(heap());
    let id = heap.user_caches().make(&spec(1024)).unwrap();
    let objects = take(heap, id, 1000);
    give(heap, id, objects);
    let seen: &'static std::sync::Mutex<Vec<u64>> = Box::leak(Box::default());
    let note = move || seen.lock().unwrap().push(heap.user_caches().stats(id).requests);
    note();
    heap.platform().during_release(note);
    heap.purge();
    note();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
}

/// The clock is that of a machine that has been up for a month.
#[test]
fn what_an_allocation_found_before_the_first_window_ended_is_not_as_old_as_the_machine() {
    let heap = heap();
    heap.platform().pass_ms(30 * 24 * 3_600_000);
    let block = heap.alloc(100);
    // SAFETY: allocated just now.
    unsafe { heap.free(block) };
    let stale = || {
        let mut most = 0;
        heap.user_caches().each(&mut |cache| most = most.max(cache.stale_ns));
        most
    };
    assert_eq!(stale(), 0);
    calm(&heap);
    assert_eq!(stale(), 0);
    heap.platform().pass_ms(5000);
    calm(&heap);
    assert!((5_000_000_000..60_000_000_000).contains(&stale()), "{}", stale());
    let mut of_runs = 0;
    heap.user_caches().each(&mut |cache| of_runs += u64::from(cache.is_of_runs()) * cache.stale_ns);
    assert_eq!(of_runs, 0);
}
