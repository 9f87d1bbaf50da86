//! Reclaim of caches: what it takes, and what it leaves (reserves, exempt caches, buckets under
//! pressure).

use super::*;
use weir_core::reclaim::budget::Room;

pub(super) fn a_reserve_is_filled_and_no_reclaim_takes_it(heap: Box<Heap<Fake>>) {
    let id = heap.user_caches().make(&spec(256)).unwrap();
    heap.user_caches().set_reserve(id, 100).unwrap();
    let reserved = |heap: &Heap<Fake>| free_objects(&heap.user_caches().stats(id)) >= 100;
    assert!(reserved(&heap));
    for _ in 0..3 {
        demand(&heap, id, 1000);
        heap.platform().pass_ms(10_000);
        heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
        (0..10).for_each(|_| calm(&heap));
        heap.purge();
        assert!(reserved(&heap));
    }
    // It is there when nothing else is.
    heap.platform().fail(Call::MapAt, u64::MAX);
    let mut fill = Vec::new();
    while heap.audit().unwrap().slab_pages > 0 && fill.len() < 1 << 20 {
        let block = heap.alloc(16 << 10);
        if block.is_null() {
            break;
        }
        fill.push(block);
    }
    assert_eq!(take(&heap, id, 100).len(), 100);
    heap.platform().fail_nothing();
    heap.user_caches().set_reserve(id, 0).unwrap();
}

/// Where no memory is to be had, what is free on another node serves.
#[test]
fn a_reserve_serves_threads_of_all_nodes() {
    let heap = heap();
    heap.platform().node_count.store(2, Relaxed);
    let id = heap.user_caches().make(&spec(256)).unwrap();
    heap.user_caches().set_reserve(id, 100).unwrap();
    heap.platform().fail(Call::MapAt, u64::MAX);
    let fill: Vec<_> = std::iter::from_fn(|| Some(heap.alloc(16 << 10)).filter(|block| !block.is_null())).collect();
    assert!(!fill.is_empty());
    run_on(1);
    run_on_node(1);
    assert_eq!(take(&heap, id, 100).len(), 100);
    heap.platform().fail_nothing();
}

/// More than are put in order.
#[test]
fn the_depots_of_any_number_of_caches_are_trimmed() {
    let heap = heap();
    let ids: Vec<_> = (0..600).map(|_| heap.user_caches().make(&spec(256)).unwrap()).collect();
    for &id in &ids {
        give(&heap, id, take(&heap, id, 1));
    }
    let held = || ids.iter().map(|&id| free_objects(&heap.user_caches().stats(id))).sum::<usize>();
    assert!(held() >= ids.len());
    heap.platform().pass_ms(10_000);
    heap.purge();
    heap.purge();
    assert_eq!(heap.audit().unwrap().slab_pages, 0, "{}", held());
}

#[test]
fn a_reserve_beyond_all_memory_is_refused_at_once() {
    let heap = heap();
    let id = heap.user_caches().make(&spec(1000)).unwrap();
    for objects in [usize::MAX, usize::MAX / 1000 + 1, usize::MAX / 2000 + 1] {
        assert_eq!(heap.user_caches().set_reserve(id, objects), Err(LimitError::NoMemory));
    }
    assert_eq!(heap.platform().stats().direct_reclaims.load(Relaxed), 0);
    give(&heap, id, take(&heap, id, 10));
    heap.purge();
    heap.audit().unwrap();
}

#[test]
fn a_reserve_beyond_the_limit_is_refused_at_once() {
    let heap = heap();
    let id = heap.user_caches().make(&spec(1000)).unwrap();
    heap.user_caches().set_reserve(id, 10).unwrap();
    let before = heap.user_caches().stats(id);
    heap.reclaim().read_room(Room::shared(256 << 20, 250 << 20));
    let resident = heap.figures().usage().idle;
    assert_eq!(heap.user_caches().set_reserve(id, 100_000), Err(LimitError::NoMemory));
    // Nothing was made for it, and no reclaim began.
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.reserve, stats.slab_bytes), (10, before.slab_bytes));
    assert_eq!(heap.figures().usage().idle, resident);
    assert_eq!(heap.platform().stats().direct_reclaims.load(Relaxed), 0);
    heap.user_caches().set_reserve(id, 2_000).unwrap();
    assert!(heap.user_caches().stats(id).free_slab >= 2_000);
    heap.audit().unwrap();
}

/// Free places of which the pages went are no reserve.
#[test]
fn a_reserve_has_memory_where_many_places_are_free() {
    // Objects on a page with others, and of several pages each.
    reserve_beside_released(256, 4_000, 64);
    reserve_beside_released(7168, 400, 4);
}

fn reserve_beside_released(size: usize, count: usize, stays: usize) {
    let heap = heap();
    let id = heap.user_caches().make(&spec(size)).unwrap();
    let objects = take(&heap, id, count);
    for &object in &objects {
        // SAFETY: an object of that size, just allocated.
        unsafe { object.write_bytes(1, size) };
    }
    let (kept, rest): (Vec<_>, Vec<_>) = objects.into_iter().enumerate().partition(|(i, _)| i.is_multiple_of(stays));
    give(&heap, id, rest.into_iter().map(|(_, object)| object).collect());
    let mut rest = Vec::new();
    heap.platform().pass_ms(10_000);
    heap.purge();
    heap.purge();
    assert!(heap.user_caches().stats(id).free_slab > count / 2);
    let resident = || heap.platform().resident_bytes().0;
    let before = resident();
    heap.user_caches().set_reserve(id, count / 2).unwrap();
    // Places beside those that are kept have memory: of small objects less than half of the reserve.
    assert!(resident() >= before + count / 4 * size, "{} bytes came", resident() - before);
    let reserved = resident();
    heap.purge();
    // What is handed out is what has memory.
    for object in take(&heap, id, count / 20 * 9) {
        // SAFETY: as above. It stays out.
        unsafe { object.write_bytes(1, size) };
        rest.push(object);
    }
    assert!(resident() <= reserved + (64 << 10), "{} bytes came", resident() - reserved);
    give(&heap, id, rest);
    give(&heap, id, kept.into_iter().map(|(_, object)| object).collect());
    assert_eq!(destroy(&heap, id), Ok(()));
}

/// What is on its way to the system is free, not in use.
#[test]
fn figures_count_what_is_being_released_as_free() {
    let heap = heap();
    let id = heap.user_caches().make(&spec(64)).unwrap();
    let objects = take(&heap, id, 4000);
    // One stays at each end, so that slabs stay and their pages go.
    let (kept, rest): (Vec<_>, Vec<_>) = objects.into_iter().enumerate().partition(|(i, _)| i.is_multiple_of(500));
    give(&heap, id, rest.into_iter().map(|(_, object)| object).collect());
    let address = std::ptr::from_ref(&*heap) as usize;
    let all = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = all.clone();
    heap.platform().during_release(move || {
        // SAFETY: the heap outlives the release.
        let heap = unsafe { &*(address as *const Heap<Fake>) };
        seen.lock().unwrap().push(heap.user_caches().stats(id));
    });
    heap.platform().pass_ms(10_000);
    heap.purge();
    // Slabs' pages go last, when nothing of depot and buckets is in hand any more.
    let all = all.lock().unwrap();
    let is_at_rest = |stats: &&CacheStats| stats.free_cpu + stats.free_depot == 0;
    assert!(all.iter().filter(is_at_rest).count() > 0, "nothing was released from slabs");
    all.iter().filter(is_at_rest).for_each(|stats| assert_eq!(stats.used, kept.len(), "{stats}"));
    give(&heap, id, kept.into_iter().map(|(_, object)| object).collect());
    assert_eq!(destroy(&heap, id), Ok(()));
}

pub(super) fn an_exempt_cache_keeps_all_it_has(heap: Box<Heap<Fake>>) {
    let id =
        heap.user_caches().make(&Spec { flags: Flags { no_reclaim: true, ..Flags::default() }, ..spec(256) }).unwrap();
    demand(&heap, id, 1000);
    let before = heap.user_caches().stats(id);
    heap.platform().pass_ms(10_000);
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    heap.purge();
    let after = heap.user_caches().stats(id);
    assert_eq!((before.free_cpu, before.free_depot), (after.free_cpu, after.free_depot));
    assert_eq!(destroy(&heap, id), Ok(()));
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
}

#[test]
fn a_bucket_grows_with_demand_and_shrinks_where_there_is_too_much() {
    let heap = heap();
    let (busy, burst) = (heap.user_caches().make(&spec(128)).unwrap(), heap.user_caches().make(&spec(128)).unwrap());
    let now = |id: CacheId| heap.user_caches().stats(id).bucket[0];
    let [start, least, most] = heap.user_caches().stats(busy).bucket;
    assert!(least < start && start < most);
    demand(&heap, busy, 2000);
    demand(&heap, burst, 2000);
    assert_eq!((now(busy), now(burst)), (most, most));
    // One goes on using what it holds, the other does not.
    for _ in 0..8 {
        demand(&heap, busy, 2000);
        heap.platform().pass_ms(WINDOW_MS);
        some(&heap);
        heap.reclaim().balance_calm();
    }
    assert_eq!(now(busy), most);
    assert!(now(burst) < most, "{}", now(burst));
    // Its CPU follows at its next visit.
    demand(&heap, burst, most + 1);
    assert!(heap.user_caches().stats(burst).free_cpu <= now(burst).max(start));
    heap.audit().unwrap();
}

#[test]
fn a_bucket_grows_after_as_many_visits_as_are_set() {
    let grown_after = |visits: u64| {
        let heap = heap();
        heap.platform().tunables().bucket_visits.set(visits);
        let id = heap.user_caches().make(&spec(128)).unwrap();
        let stats = || heap.user_caches().stats(id);
        let start = stats().bucket[0];
        while stats().bucket[0] == start && stats().visits < 1000 {
            demand(&heap, id, start * 2);
        }
        stats().visits
    };
    let [few, many] = [4, 100].map(grown_after);
    assert!((4..16).contains(&few) && (100..150).contains(&many), "{few} and {many}");
}

#[test]
fn pressure_in_quick_succession_halves_once() {
    let heap = heap();
    let id = heap.user_caches().make(&spec(128)).unwrap();
    (0..2).for_each(|_| demand(&heap, id, 2000));
    calm(&heap);
    let most = heap.user_caches().stats(id).bucket[0];
    heap.platform().pass_ms(40 * WINDOW_MS);
    (0..50).for_each(|_| some(&heap));
    assert_eq!(heap.user_caches().stats(id).bucket[0], most / 2);
}

pub(super) fn an_idle_caches_memory_returns_with_no_pressure_while_a_warm_one_keeps_its(heap: Box<Heap<Fake>>) {
    let (idle, warm) = (heap.user_caches().make(&spec(1024)).unwrap(), heap.user_caches().make(&spec(1024)).unwrap());
    demand(&heap, idle, 4000);
    demand(&heap, warm, 4000);
    demand(&heap, warm, 1000);
    let before = heap.user_caches().stats(warm).misses;
    for _ in 0..40 {
        demand(&heap, warm, 1000);
        calm(&heap);
    }
    let missed = heap.user_caches().stats(warm).misses - before;
    let (idle, warm) = (heap.user_caches().stats(idle), heap.user_caches().stats(warm));
    assert_eq!((free_objects(&idle), idle.slab_bytes), (0, 0), "{idle}");
    assert!(free_objects(&warm) >= 1000 - 64, "{warm}");
    assert!(warm.working_set >= 800, "{warm}");
    assert_eq!(missed, 0);
}

/// Two windows, not the 5 s in which estimates fade; and a cache in use loses nothing that it uses.
#[test]
fn what_a_program_left_behind_goes_while_it_is_busy() {
    let heap = heap();
    let (left, warm) = (heap.user_caches().make(&spec(512)).unwrap(), heap.user_caches().make(&spec(512)).unwrap());
    (0..2).for_each(|_| demand(&heap, left, 4000));
    (0..2).for_each(|_| demand(&heap, warm, 1000));
    let depot = |id: CacheId| heap.user_caches().stats(id).free_depot;
    let misses = heap.user_caches().stats(warm).misses;
    for window in 0..12 {
        demand(&heap, warm, 1000);
        calm(&heap);
        // The first window is the one in which they were used.
        assert!(if window == 0 { depot(left) > 3000 } else { depot(left) == 0 }, "{} at {window}", depot(left));
    }
    assert_eq!(heap.user_caches().stats(warm).misses, misses);
    heap.audit().unwrap();
}

/// The stalest first.
#[test]
fn a_windows_end_takes_unused_objects_for_two_milliseconds() {
    let heap = heap();
    let caches: Vec<CacheId> = (0..3).map(|_| heap.user_caches().make(&spec(512)).unwrap()).collect();
    // In each window something is used: in a quiet one all goes.
    let other = heap.user_caches().make(&spec(64)).unwrap();
    let calm = |heap: &Heap<Fake>| {
        demand(heap, other, 1);
        calm(heap);
    };
    // They run short one after another, and nothing goes back.
    heap.platform().tunables().report.set(0);
    for &id in &caches {
        calm(&heap);
        (0..2).for_each(|_| demand(&heap, id, 4000));
    }
    heap.platform().tunables().report.set(1);
    let depots = || caches.iter().map(|&id| heap.user_caches().stats(id).free_depot).collect::<Vec<_>>();
    calm(&heap);
    assert!(depots().iter().all(|&objects| objects > 3000), "{:?}", depots());
    // A batch of 64 each time that the clock is looked at: a hundred of them.
    heap.platform().clock_step.store(20_000, Relaxed);
    calm(&heap);
    let left = depots();
    assert!(left[0] == 0 && left[2] > 2500, "the estimate of the last one faded, and there was no more time: {left:?}");
    calm(&heap);
    assert_eq!(depots(), [0; 3]);
}

pub(super) fn nothing_warm_is_trimmed_before_what_is_stale(heap: Box<Heap<Fake>>) {
    let caches: Vec<CacheId> = (0..6).map(|_| heap.user_caches().make(&spec(2048)).unwrap()).collect();
    // Each holds far more than its working set; they ran short one after another, and nothing went back.
    heap.platform().tunables().report.set(0);
    for &id in &caches {
        heap.platform().pass_ms(2 * WINDOW_MS);
        some(&heap);
        let objects = take(&heap, id, 3000);
        give(&heap, id, objects);
    }
    heap.platform().tunables().report.set(1);
    let held = |heap: &Heap<Fake>| caches.iter().map(|&id| heap.user_caches().stats(id).free_depot).collect::<Vec<_>>();
    let before = held(&heap);
    // When the first release is under way, the last one to run short has all it had.
    let (stale, warm) = (caches[0], caches[5]);
    let address = std::ptr::from_ref(&*heap) as usize;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
    let saw = seen.clone();
    heap.platform().during_release(move || {
        // SAFETY: the heap outlives the release.
        let heap = unsafe { &*(address as *const Heap<Fake>) };
        let both = (heap.user_caches().stats(stale).free_depot, heap.user_caches().stats(warm).free_depot);
        saw.lock().unwrap().get_or_insert(both);
    });
    some(&heap);
    assert_eq!(*seen.lock().unwrap(), Some((0, before[5])));
}

#[test]
fn the_last_resort_takes_all_alike_and_not_too_often() {
    let heap = heap();
    let caches: Vec<CacheId> = (0..5).map(|_| heap.user_caches().make(&spec(512)).unwrap()).collect();
    let fill = || {
        for cpu in 0..3 {
            run_on(cpu);
            caches.iter().for_each(|&id| demand(&heap, id, 500));
        }
    };
    let all = || caches.iter().map(|&id| heap.user_caches().stats(id)).collect::<Vec<_>>();
    let severe = || heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    heap.platform().pass_ms(10_000);
    fill();
    let fences = heap.platform().fences.load(Relaxed);
    severe();
    assert_eq!(heap.platform().fences.load(Relaxed), fences + 1, "one stop for all CPUs");
    let after = all();
    assert!(after.iter().all(|stats| free_objects(stats) == 0 && stats.drains == 1), "{after:?}");
    assert!(after.iter().all(|stats| stats.bucket == after[0].bucket), "all are penalised by the same measure");
    // Ten events within the interval: working sets stay, and no CPU is stopped.
    fill();
    calm(&heap);
    for _ in 0..10 {
        fill();
        heap.platform().pass_ms(50);
        severe();
    }
    assert!(all().iter().all(|stats| stats.drains == 1 && stats.free_cpu > 0 && stats.free_depot > 0));
    heap.audit().unwrap();
}

#[test]
fn no_shells_are_made_until_memory_recovers() {
    let heap = heap();
    heap.platform().pass_ms(10_000);
    let interval = heap.platform().tunables().severe_interval_ms.get();
    let id = heap.user_caches().make(&spec(64)).unwrap();
    heap.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    let maps = heap.platform().calls(Call::Map);
    let objects = take(&heap, id, 20_000);
    give(&heap, id, objects);
    // The CPU's own slab is not a shell.
    assert!(heap.platform().calls(Call::Map) <= maps + 1);
    assert_eq!(heap.user_caches().stats(id).free_depot, 0);
    heap.audit().unwrap();
    heap.platform().pass_ms(interval);
    demand(&heap, id, 20_000);
    assert!(heap.user_caches().stats(id).free_depot > 10_000);
}
