//! An allocation that waits, for the balancer or for a callback. For the balancer only while that is awake and half of min is not
//! free. It waits for a bounded time.

use super::*;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::budget::Room;

const GIB: u64 = 1 << 30;
/// Time that an allocation waits for progress of the balancer, ns.
const WAIT_NS: u64 = 25_000_000;

/// A heap that reads how much is free, and whose program has a cache, but nothing idle.
fn short(free: u64) -> (TheHeap, &'static Queue, Registered) {
    short_with(Class::Cache, free)
}

fn short_with(class: Class, free: u64) -> (TheHeap, &'static Queue, Registered) {
    let (heap, queue) = (heap(), queue());
    heap.platform().tunables().background.set(1);
    serve_always(heap, queue);
    let keeps: OnScan = Box::new(|_| Ok(0));
    let (cache, _) = register(heap, queue, shrinker("cache", class), SIZE, Some(keeps));
    heap.reclaim().read_room(Room::shared(GIB, GIB - free));
    (heap, queue, cache)
}

fn half_of_min() -> u64 {
    Marks::of(Pages::in_bytes(GIB as usize), 250).min.bytes().0 as u64 / 2
}

/// How long an allocation of a pageblock's pages waits, ns. (Callbacks are served at once, which takes no time.)
fn waits(heap: TheHeap) -> u64 {
    waits_for(heap, PAGEBLOCK)
}

fn waits_for(heap: TheHeap, size: usize) -> u64 {
    let (stats, before) = (heap.platform().stats(), heap.platform().now());
    let reclaims = stats.direct_reclaims.load(SeqCst);
    let block = heap.alloc(size);
    assert!(!block.is_null());
    assert_eq!(stats.direct_reclaims.load(SeqCst), reclaims + 1, "below min it reclaims by itself");
    (heap.platform().now() - before).0
}

#[test]
fn it_waits_for_a_balancer_that_has_no_cpu_and_the_longer_the_more_it_takes() {
    for (size, ns) in [(PAGEBLOCK, WAIT_NS * 5), (5 << 20, WAIT_NS * 7), (100 << 20, 1_000_000_000)] {
        let (heap, _, cache) = short(half_of_min() / 2);
        assert_eq!(waits_for(heap, size), ns);
        cache.unregister(heap);
    }
}

#[test]
fn for_a_programs_shrinker_it_waits_once_where_the_balancer_makes_no_progress() {
    let (heap, _, cache) = short_with(Class::Program, half_of_min() / 2);
    assert_eq!(waits(heap), WAIT_NS);
    cache.unregister(heap);
}

/// A program that reserves memory, and touches little of it, keeps its caches.
#[test]
fn a_large_block_counts_for_a_part_of_the_budget_and_one_longer_than_that_for_a_pageblock() {
    let (heap, _, cache) = short(GIB / 4);
    let counts = |size: usize| {
        let before = heap.reclaim().budget_figures().resident;
        assert!(!heap.alloc(size).is_null());
        heap.reclaim().budget_figures().resident - before
    };
    assert_eq!(counts(64 << 20), 64 << 20);
    assert_eq!(counts(160 << 20), 128 << 20, "an eighth of the budget");
    assert_eq!(counts(4 << 30), PAGEBLOCK);
    assert_eq!(heap.platform().stats().direct_reclaims.load(SeqCst), 0);
    cache.unregister(heap);
}

#[test]
fn it_does_not_wait_while_half_of_min_is_free() {
    // The request counts before its pages are touched: what is left is just below min.
    let (heap, _, cache) = short(2 * half_of_min() - 4096 + PAGEBLOCK as u64);
    assert_eq!(waits(heap), 0);
    cache.unregister(heap);
}

#[test]
fn it_goes_on_as_soon_as_the_balancer_sleeps() {
    let (heap, queue, cache) = short(half_of_min() / 2);
    heap.platform().while_callbacks_are_waited_for(move || {
        if serve(heap, queue) == 0 {
            heap.reclaim().forget_notice();
        }
    });
    assert_eq!(waits(heap), 0);
    cache.unregister(heap);
}

#[test]
fn without_a_balancers_thread_none_waits() {
    let (heap, _, cache) = short(half_of_min() / 2);
    heap.platform().tunables().background.set(0);
    assert_eq!(waits(heap), 0);
    cache.unregister(heap);
}

#[test]
fn in_a_program_without_caches_none_waits() {
    let heap = heap();
    heap.platform().tunables().background.set(1);
    // More is idle in depots than direct reclaim releases, and it is no room for a block.
    let sizes = [512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096, 5120, 6144, 8192];
    let half_a_mib = |size: usize| core::iter::repeat_n(size, (512 << 10) / size);
    let objects: Vec<_> = sizes.into_iter().flat_map(half_a_mib).map(|size| heap.alloc(size)).collect();
    // SAFETY: they are the heap's, and each is freed once.
    objects.into_iter().for_each(|object| unsafe { heap.free(object) });
    heap.reclaim().read_room(Room::shared(GIB, GIB - half_of_min() / 2));
    assert_eq!(waits(heap), 0);
    assert!(heap.figures().usage().idle > 0);
}

#[test]
fn while_write_back_lags_it_waits_below_min_and_takes_less_of_what_is_in_use() {
    for (is_congested, ns, priorities) in [(false, 0, 12), (true, WAIT_NS * 5, 3)] {
        let (heap, _, cache) = short(2 * half_of_min() - 4096 + PAGEBLOCK as u64);
        heap.reclaim().set_congested(ZoneClass::Normal, is_congested);
        let calls = cache.entry().stats().calls;
        assert_eq!(waits(heap), ns);
        assert_eq!(cache.entry().stats().calls - calls, priorities, "priorities 12 to 1, or to 10");
        cache.unregister(heap);
    }
}

/// How long each of some allocations waits for a callback, ns, that needs a lock which the allocating thread holds. It gets that
/// between two allocations.
fn waits_for_a_lock(class: Class) -> impl Iterator<Item = (TheHeap, u64)> {
    let just_below_min = 2 * half_of_min() - 4096 + PAGEBLOCK as u64;
    let (heap, queue, _) = short_with(class, just_below_min);
    heap.platform().while_callbacks_are_waited_for(|| ());
    std::iter::repeat_with(move || {
        heap.reclaim().read_room(Room::shared(GIB, GIB - just_below_min));
        let waited = waits(heap);
        assert!(serve(heap, queue) > 0, "it is asked all the same");
        // After a direct reclaim without success none is tried for 100 ms.
        heap.platform().pass_ms(150);
        (heap, waited)
    })
}

/// An allocation waits for `first` ns, and none for a hundred times `callback_ms` after it; then that again.
fn waits_once_in_a_hundred(class: Class, first: u64) -> impl Iterator<Item = (TheHeap, u64)> {
    let mut waits = waits_for_a_lock(class);
    for _ in 0..2 {
        let (heap, waited) = waits.next().unwrap();
        assert_eq!(waited, first);
        assert!(waits.by_ref().take(3).all(|(_, waited)| waited == 0));
        heap.platform().pass_ms(100 * heap.platform().tunables().callback_ms.get());
    }
    waits
}

#[test]
fn after_a_programs_callback_let_it_wait_in_vain_none_waits_for_that_for_a_hundred_times_as_long() {
    let mut waits = waits_once_in_a_hundred(Class::Program, 50_000_000);
    // Other reclaim waits for it as ever.
    let (heap, _) = waits.next().unwrap();
    heap.platform().tunables().background.set(0);
    let before = heap.platform().now();
    pressure(heap, Level::Severe);
    assert!((heap.platform().now() - before).0 >= heap.platform().tunables().callback_ms.ns().0);
}

#[test]
fn an_evictable_cache_is_waited_for_for_a_second() {
    let _ = waits_once_in_a_hundred(Class::Cache, 1_000_000_000);
}

#[test]
fn an_allocation_that_stood_still_with_the_process_waits_once_more() {
    let just_below_min = 2 * half_of_min() - 4096 + PAGEBLOCK as u64;
    let (heap, queue, cache) = short_with(Class::Cache, just_below_min);
    let is_stopped = AtomicBool::new(true);
    heap.platform().while_callbacks_are_waited_for(move || {
        if is_stopped.swap(false, SeqCst) {
            heap.platform().pass_ms(86_400_000);
        } else {
            serve(heap, queue);
        }
    });
    heap.reclaim().read_room(Room::shared(GIB, GIB - just_below_min));
    waits(heap);
    assert!(cache.entry().stats().calls > 0 && !cache.entry().stats().is_late);
    cache.unregister(heap);
}

#[test]
fn an_evictable_cache_whose_thread_is_late_is_waited_for_all_the_same() {
    let just_below_min = 2 * half_of_min() - 4096 + PAGEBLOCK as u64;
    let (heap, queue, cache) = short_with(Class::Cache, just_below_min);
    heap.platform().while_callbacks_are_waited_for(|| ());
    // Its thread gets no CPU while it is asked to shrink.
    heap.platform().tunables().background.set(0);
    pressure(heap, Level::Severe);
    heap.platform().tunables().background.set(1);
    assert!(cache.entry().stats().is_late);
    heap.platform().while_callbacks_are_waited_for(move || _ = serve(heap, queue));
    heap.reclaim().read_room(Room::shared(GIB, GIB - just_below_min));
    assert_eq!(waits(heap), 0, "it was served as soon as the allocation waited");
    assert!(!cache.entry().stats().is_late);
}

#[test]
fn in_a_forked_child_a_cache_is_waited_for_once_a_thread_serves_it() {
    let mut waits = waits_for_a_lock(Class::Cache);
    let (heap, _) = waits.next().unwrap();
    heap.fork().freeze();
    // SAFETY: froze it above, on this thread.
    unsafe { heap.fork().thaw_child() };
    heap.platform().pass_ms(100_000);
    // The first allocation asks it to shrink, which a thread of the child's then does.
    assert_eq!(waits.next().unwrap().1, 0);
    assert_eq!(waits.next().unwrap().1, 1_000_000_000);
}

/// The balancer may release what an allocation had evicted: the allocation itself sees nothing of it.
#[test]
fn an_allocation_below_min_has_a_part_evicted_whatever_it_sees_released() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    heap.reclaim().read_room(Room::shared(GIB, GIB - half_of_min() / 2));
    assert!(!heap.alloc(5 << 20).is_null());
    // A pageblock at each of the last three priorities, and less before.
    let first = sum(&told);
    assert!((6 << 20..8 << 20).contains(&first), "{first} of {SIZE}");
    cache.unregister(heap);
    // For a while after that none searches again.
    heap.platform().pass_ms(1000);
    // As soon as min is free it has no cause to go on.
    let released: OnScan = Box::new(move |bytes| {
        heap.reclaim().read_room(Room::shared(GIB, 0));
        Ok(bytes)
    });
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, Some(released));
    heap.reclaim().read_room(Room::shared(GIB, GIB - half_of_min() / 2));
    assert!(!heap.alloc(5 << 20).is_null());
    assert_eq!(sum(&told), SIZE >> 12);
    cache.unregister(heap);
}

/// Only then has the queue no thread left that is soon to stand by again, and the one that takes the job makes another.
#[test]
fn a_job_says_whether_another_callback_of_its_queue_is_late() {
    let (heap, queue) = (heap(), queue());
    let registered = ["one", "two"].map(|name| register(heap, queue, shrinker(name, Class::Program), SIZE, None).0);
    pressure(heap, Level::Some);
    let Taken::Job(one) = heap.callbacks().take(heap.platform(), queue) else { panic!("posted above") };
    assert!(!one.beside_late);
    assert!(
        matches!(heap.callbacks().take(heap.platform(), queue), Taken::Sleep(Some(_))),
        "the first is not late yet"
    );
    heap.platform().pass_ms(heap.platform().tunables().callback_ms.get());
    let Taken::Job(two) = heap.callbacks().take(heap.platform(), queue) else { panic!("posted above") };
    assert!(two.beside_late);
    // Both return. What comes next is beside none.
    for job in [one, two] {
        heap.callbacks().run(heap.platform(), job);
    }
    heap.platform().pass_ms(10_000);
    pressure(heap, Level::Severe);
    let Taken::Job(next) = heap.callbacks().take(heap.platform(), queue) else { panic!("posted above") };
    assert!(!next.beside_late);
    heap.callbacks().run(heap.platform(), next);
    serve(heap, queue);
    registered.into_iter().for_each(|one| one.unregister(heap));
}
