//! The program's callbacks serve an allocation that is short, and relief follows.

use super::*;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK_PAGES, Pages};
use weir_core::pages::user_zone::MemoryKind;

use crate::held::layout;
use crate::pages::zones::{PRIVATE, zone_of};

#[test]
fn relief_comes_once_after_the_last_event_and_only_to_those_who_heard_of_pressure() {
    let (heap, queue) = (heap(), queue());
    let subscriber = |level| CallbackSpec { class: Class::Subscriber, level, ..CallbackSpec::default() };
    let (some, some_told) = register(heap, queue, subscriber(Level::Some), 0, None);
    let (severe, severe_told) = register(heap, queue, subscriber(Level::Severe), 0, None);
    let (cache, cache_told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    let relief = heap.platform().tunables().relief_ms.get();
    heap.reclaim().relieve_if_due();
    assert_eq!(
        (heap.reclaim().relief_due(), heap.callbacks().events().latest().generation),
        (None, 0),
        "there was no pressure"
    );
    heap.reclaim().note_pressure(Level::Some, Cause::Limit);
    serve(heap, queue);
    heap.platform().pass_ms(relief - 1);
    heap.reclaim().relieve_if_due();
    assert!(heap.reclaim().relief_due().is_some());
    heap.reclaim().note_pressure(Level::Some, Cause::Limit);
    heap.platform().pass_ms(relief - 1);
    heap.reclaim().relieve_if_due();
    assert!(heap.reclaim().relief_due().is_some(), "counted from the last event");
    heap.platform().pass_ms(1);
    heap.reclaim().relieve_if_due();
    assert_eq!(heap.reclaim().relief_due(), None);
    heap.reclaim().relieve_if_due();
    serve(heap, queue);
    serve(heap, queue);
    // The second event was overtaken by the relief: the latest is told.
    let levels: Vec<_> = some_told.events.lock().unwrap().iter().map(|e| (e.level, e.cause, e.generation)).collect();
    assert_eq!(levels, [(Level::Some, Cause::Limit, 1), (Level::None, Cause::Limit, 3)]);
    assert!(severe_told.events.lock().unwrap().is_empty());
    assert_eq!(cache_told.relieved.load(SeqCst), 1);
    assert_eq!(heap.callbacks().events().latest().generation, 3);
    heap.reclaim().note_pressure(Level::Severe, Cause::Pressure);
    serve(heap, queue);
    assert_eq!(severe_told.events.lock().unwrap().len(), 1);
    [some, severe, cache].into_iter().for_each(|registered| registered.unregister(heap));
}

#[test]
fn after_a_shortage_there_is_relief_and_an_absurd_request_takes_nothing() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    assert!(heap.alloc(1 << 50).is_null());
    assert_eq!(heap.reclaim().relief_due(), None, "no cache can make up for that");
    assert!(sum(&told) <= 2 * 4096, "{}", sum(&told));
    assert!(!heap.alloc(4096).is_null());
    heap.platform().fail(Call::MapAt, u64::MAX);
    heap.platform().fail(Call::Map, u64::MAX);
    while !heap.alloc(4096).is_null() {}
    assert!(
        sum(&told) > 2 * 4096 && heap.reclaim().relief_due().is_some(),
        "{} {:?}",
        sum(&told),
        heap.reclaim().relief_due()
    );
    serve(heap, queue);
    assert_eq!(told.relieved.load(SeqCst), 0);
    heap.platform().pass_ms(heap.platform().tunables().relief_ms.get());
    heap.reclaim().relieve_if_due();
    serve(heap, queue);
    assert_eq!((told.relieved.load(SeqCst), heap.reclaim().relief_due()), (1, None));
    cache.unregister(heap);
}

#[test]
fn an_allocation_that_is_short_is_served_by_what_a_shrinker_frees() {
    let (heap, queue) = served();
    const BLOCK: usize = 1 << 20;
    let blocks: Arc<Mutex<Vec<usize>>> = Arc::new(Mutex::new((0..64).map(|_| heap.alloc(BLOCK) as usize).collect()));
    let freed = blocks.clone();
    let calls = Arc::new(AtomicU32::new(0));
    let called = calls.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        called.fetch_add(1, SeqCst);
        // What the callback itself cannot have does not call it again.
        assert!(heap.alloc(2 * BLOCK).is_null());
        let mut blocks = freed.lock().unwrap();
        let count = bytes.div_ceil(BLOCK).min(blocks.len());
        for block in blocks.drain(..count) {
            // SAFETY: allocated above, and freed once.
            unsafe { heap.free(block as *mut u8) };
        }
        Ok(count * BLOCK)
    });
    let spec = CallbackSpec { seeks: DEFAULT_SEEKS, batch: BLOCK, ..shrinker("cache", Class::Cache) };
    let (cache, told) = register(heap, queue, spec, 64 * BLOCK, Some(on_scan));
    // Nothing more can be mapped: what is there is full.
    heap.platform().fail(Call::MapAt, u64::MAX);
    let mut more = Vec::new();
    while calls.load(SeqCst) == 0 {
        let block = heap.alloc(BLOCK);
        assert!(!block.is_null(), "a shrinker has some left");
        more.push(block);
    }
    assert!(!more.is_empty() && !blocks.lock().unwrap().is_empty(), "no more went than was needed");
    assert!(told.reasons.lock().unwrap().iter().all(|&reason| reason == ScanReason::Shortage));
    cache.unregister(heap);
}

#[test]
fn small_objects_that_a_shrinker_frees_are_released_in_the_same_turn() {
    let (heap, queue) = served();
    let objects: Arc<Mutex<Vec<usize>>> =
        Arc::new(Mutex::new((0..200_000).map(|_| heap.alloc(100) as usize).collect()));
    let freed = objects.clone();
    let on_scan: OnScan = Box::new(move |_| {
        let objects = std::mem::take(&mut *freed.lock().unwrap());
        // SAFETY: allocated above, and freed once.
        objects.iter().for_each(|&object| unsafe { heap.free(object as *mut u8) });
        Ok(objects.len() * 100)
    });
    let spec = CallbackSpec { batch: 1, seeks: 0, ..shrinker("cache", Class::Program) };
    let (cache, told) = register(heap, queue, spec, 2, Some(on_scan));
    let released = pressure(heap, Level::Severe);
    assert!(!told.scans.lock().unwrap().is_empty());
    assert!(released >= 4 * PAGEBLOCK, "as much as the marks were raised by: {released}");
    cache.unregister(heap);
}

/// Asserts that a hard limit was no reason to reclaim anything, nor to tell the program.
fn assert_untouched(heap: TheHeap, told: &Told) {
    assert_eq!(*told.scans.lock().unwrap(), [] as [usize; 0]);
    assert_eq!(*heap.platform().at_hard_limit.lock().unwrap(), [] as [usize; 0]);
    assert_eq!(heap.platform().stats().hard_limit_failures.load(SeqCst), 0);
}

#[test]
fn a_zone_that_is_full_takes_nothing_from_caches_as_long_as_the_hard_limit_is_not_in_the_way() {
    let (locked, huge) = (MemoryKind { reported: false, ..PRIVATE }, MemoryKind { huge: true, ..PRIVATE });
    for memory in [PRIVATE, locked, huge] {
        let (heap, queue) = served();
        let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
        let (zone, _) = zone_of(heap, 1, memory, NonNull::from(heap.platform()));
        heap.platform().tunables().hard_limit.set(1 << 30);
        let take = || heap.zones().take(&zone, Pages(1), Order::PAGE);
        while take().is_ok() {}
        assert_eq!(heap.pages().zone_usage(&zone).used, Pages::BLOCK);
        assert_untouched(heap, &told);
        // Full, it gains nothing from what others give up below a limit that is met.
        heap.platform().tunables().hard_limit.set(PAGE as u64);
        assert!(take().is_err());
        assert_untouched(heap, &told);
        heap.pages().remove_zone(&zone);
        cache.unregister(heap);
    }
}

#[test]
fn a_locked_zone_counts_once_while_it_is_made() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    heap.platform().tunables().hard_limit.set(64 << 20);
    let room = heap.zones().room(16 * PAGEBLOCK).unwrap();
    let locked = MemoryKind { reported: false, ..PRIVATE };
    let (zone, _) = zone_of(heap, 16, locked, NonNull::from(heap.platform()));
    drop(room);
    assert_eq!((sum(&told), heap.platform().stats().direct_reclaims.load(SeqCst)), (0, 0), "half is free");
    heap.pages().remove_zone(&zone);
    cache.unregister(heap);
}

/// `pages` of a zone are free, and a cache on the heap holds all that the hard limit allows. With `has_cache` an empty cache lies
/// in the zone.
fn gives_way_below_the_hard_limit(memory: MemoryKind, pages: usize, has_cache: bool) {
    let (heap, queue) = served();
    let block = Arc::new(AtomicUsize::new(heap.alloc(3 * PAGEBLOCK).addr()));
    let freed = block.clone();
    let on_scan: OnScan = Box::new(move |bytes| {
        // SAFETY: allocated above, and freed once: the second time it is null.
        unsafe { heap.free(freed.swap(0, SeqCst) as *mut u8) };
        Ok(bytes)
    });
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), 3 * PAGEBLOCK, Some(on_scan));
    let (zone, _) = zone_of(heap, 1, memory, NonNull::from(heap.platform()));
    let (class, zone_number) = (zone.class(), zone.number());
    let spec = CallbackSpec { zone: class, zone_number, ..shrinker("empty", Class::Cache) };
    let empty = has_cache.then(|| register(heap, queue, spec, 0, None).0);
    heap.platform().tunables().hard_limit.set(3 * PAGEBLOCK as u64);
    assert!(heap.zones().take(&zone, Pages(pages), Order::PAGE).is_ok());
    assert!(!told.scans.lock().unwrap().is_empty() && block.load(SeqCst) == 0);
    assert_eq!(heap.platform().stats().hard_limit_failures.load(SeqCst), 0);
    heap.pages().remove_zone(&zone);
    [Some(cache), empty].into_iter().flatten().for_each(|registered| registered.unregister(heap));
}

#[test]
fn a_zone_with_free_pages_that_the_hard_limit_holds_back_has_caches_give_way() {
    gives_way_below_the_hard_limit(PRIVATE, PAGEBLOCK_PAGES, false);
}

/// A cache that lies there, and has nothing yet, wants its first page.
#[test]
fn so_do_caches_for_a_zone_of_huge_pages_that_has_a_cache_of_its_own() {
    let huge = MemoryKind { huge: true, ..PRIVATE };
    gives_way_below_the_hard_limit(huge, PAGEBLOCK_PAGES, true);
    gives_way_below_the_hard_limit(huge, 1, true);
}

#[test]
fn what_the_system_refuses_is_not_the_hard_limits_as_long_as_there_is_room_below_that() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    let platform = heap.platform();
    platform.tunables().hard_limit.set(1 << 40);
    let block = heap.alloc(5 << 20);
    [Call::Map, Call::Remap].into_iter().for_each(|call| platform.fail(call, u64::MAX));
    assert!(heap.alloc(64 << 20).is_null());
    // SAFETY: allocated above; it is refused.
    assert!(unsafe { heap.realloc(block, 64 << 20) }.is_null());
    assert_untouched(heap, &told);
    // For what caches may make up for they give way, as without a limit.
    platform.fail(Call::MapAt, u64::MAX);
    while !heap.alloc(1 << 20).is_null() {}
    assert!(!told.scans.lock().unwrap().is_empty());
    told.scans.lock().unwrap().clear();
    assert_untouched(heap, &told);
    cache.unregister(heap);
}

#[test]
fn an_alignment_that_the_system_has_no_addresses_for_takes_nothing_from_the_heap() {
    const MIB: usize = 1 << 20;
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    let platform = heap.platform();
    platform.limit(100 * MIB);
    // Pageblocks that are free, and pages in use.
    let runs = [(); 40].map(|()| heap.alloc(MIB));
    // SAFETY: allocated just now.
    runs[..20].iter().for_each(|&run| unsafe { heap.free(run) });
    heap.purge();
    let addresses = || platform.stats().address_bytes.load(SeqCst);
    let before = addresses();
    for align in [128 * MIB, 1 << 39, 1 << 47] {
        assert!(heap.alloc_aligned(layout(align, 5 * MIB)).is_null());
    }
    assert_untouched(heap, &told);
    assert_eq!(addresses(), before, "no free pageblock was unmapped in vain");
    // 72 MiB are mapped for this one, for a while: free pageblocks make room for them.
    assert!(!heap.alloc_aligned(layout(64 * MIB, 8 * MIB)).is_null());
    assert!(addresses() < before);
    cache.unregister(heap);
}

#[test]
fn addresses_below_4_gib_that_are_used_up_take_nothing_from_caches_elsewhere() {
    let (heap, queue) = served();
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    while !heap.alloc_low32(4 << 20).is_null() {}
    assert_untouched(heap, &told);
    while !heap.alloc_low32(PAGE).is_null() {}
    heap.platform().tunables().hard_limit.set(1 << 40);
    assert!(heap.alloc_low32(PAGE).is_null());
    // Nor does a limit change that which is met: there is no page to be had below it either.
    heap.platform().tunables().hard_limit.set(PAGE as u64);
    assert!(heap.alloc_low32(PAGE).is_null());
    assert_untouched(heap, &told);
    cache.unregister(heap);
}

#[test]
fn pages_below_4_gib_that_the_hard_limit_holds_back_have_caches_give_way() {
    let (heap, queue) = served();
    assert!(!heap.alloc(1 << 20).is_null());
    heap.platform().tunables().hard_limit.set(1);
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), SIZE, None);
    assert!(heap.alloc_low32(PAGE).is_null());
    assert!(told.scans.lock().unwrap().is_empty(), "more than the limit: it can never be had");
    heap.platform().tunables().hard_limit.set(PAGE as u64);
    assert!(heap.alloc_low32(PAGE).is_null());
    assert!(!told.scans.lock().unwrap().is_empty());
    cache.unregister(heap);
}
