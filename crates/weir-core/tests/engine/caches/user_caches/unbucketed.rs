//! Caches beyond those with per-CPU buckets, of which there may be any number.

use super::*;

#[test]
fn what_cannot_be_made_is_refused_by_name() {
    let heap = heap();
    assert_eq!(heap.user_caches().make(&spec(0)), Err(MakeError::Size));
    assert_eq!(heap.user_caches().make(&spec(MAX_OBJECT + 1)), Err(MakeError::Size));
    assert_eq!(heap.user_caches().make(&Spec { align: 24, ..spec(8) }), Err(MakeError::Align));
    assert_eq!(heap.user_caches().make(&Spec { align: 2 * PAGE, ..spec(8) }), Err(MakeError::Align));
}

#[test]
fn there_is_no_last_cache_and_low_numbers_are_given_first() {
    let heap = heap();
    let first = use_up_buckets(&heap);
    let more: Vec<_> = (0..2000).map(|i| heap.user_caches().make(&spec(16 + i % 5000)).unwrap()).collect();
    let numbers: Vec<_> = first.iter().chain(&more).map(|id| id.number()).collect();
    assert_eq!(numbers, (FIRST_USER..BUCKETED).chain(UNBUCKETED..UNBUCKETED + 2000).collect::<Vec<_>>());
    first.iter().chain(&more).for_each(|&id| demand(&heap, id, 3));
    // What was given back is given again, those with buckets first.
    for (id, size) in [(more[7], 100), (first[90], 4000), (more[1999], 16)] {
        assert_eq!(destroy(&heap, id), Ok(()));
        let again = heap.user_caches().make(&spec(size)).unwrap();
        assert_eq!(again, id);
        demand(&heap, again, 100);
    }
    assert_eq!([more[3], first[5]].map(|id| destroy(&heap, id)), [Ok(()), Ok(())]);
    assert_eq!([heap.user_caches().make(&spec(64)), heap.user_caches().make(&spec(64))], [Ok(first[5]), Ok(more[3])]);
    let mut seen = 0;
    let mut walk = FIRST_USER - 1;
    while let Some(stats) = heap.user_caches().next(walk) {
        (walk, seen) = (stats.number, seen + 1);
    }
    assert_eq!(seen, numbers.len());
    let (mut each, mut last) = (0, 0);
    heap.user_caches().each(&mut |stats| {
        assert!(stats.number > last);
        last = stats.number;
        each += usize::from(stats.number >= FIRST_USER);
    });
    assert_eq!(each, numbers.len());
    heap.audit().unwrap();
    for id in first.into_iter().chain(more) {
        assert_eq!(destroy(&heap, id), Ok(()));
    }
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
}

#[test]
fn malloc_functions_find_an_object_of_a_cache_without_buckets() {
    let heap = heap();
    use_up_buckets(&heap);
    for size in [16, 24, 100, 3000, 20_000, MAX_OBJECT] {
        let (id, other) =
            (heap.user_caches().make(&spec(size)).unwrap(), heap.user_caches().make(&spec(size)).unwrap());
        let mut objects = take(&heap, id, 2000.min((8 << 20) / size));
        objects.extend(take(&heap, other, 1));
        let size = heap.user_caches().stats(id).size;
        // SAFETY: the test's objects, each freed once.
        unsafe {
            assert!(objects.iter().all(|&object| heap.usable_size(object) == size));
            objects[0].write(77);
            let grown = heap.realloc(objects[0], size + 1);
            assert!(grown != objects[0] && grown.read() == 77);
            heap.free(grown);
            objects[1..].iter().for_each(|&object| heap.free(object));
        }
        assert_eq!((heap.user_caches().stats(id).used, heap.user_caches().stats(other).used), (0, 0));
        assert_eq!([destroy(&heap, id), destroy(&heap, other)], [Ok(()), Ok(())]);
    }
    let audit = heap.audit().unwrap();
    assert_eq!((audit.live_objects, heap.platform().take_misuses()), (0, vec![]));
}

#[test]
fn invalid_frees_of_a_cache_without_buckets_are_named() {
    let heap = heap();
    use_up_buckets(&heap);
    let id = heap.user_caches().make(&spec(64)).unwrap();
    let objects = take(&heap, id, 2);
    // SAFETY: misuses on purpose, which the heap refuses; the objects are freed once besides.
    unsafe {
        heap.free(objects[0].add(8));
        assert_eq!(heap.platform().take_misuses(), [(InvalidFree::InteriorPointer, objects[0] as usize + 8)]);
        heap.free(objects[0]);
        heap.free(objects[0]);
        assert_eq!(heap.platform().take_misuses(), [(InvalidFree::DoubleFree, objects[0] as usize)]);
        heap.free(objects[1]);
        // Once its slab has gone, and while the page is nobody's.
        heap.purge();
        assert_eq!(heap.audit().unwrap().slab_pages, 0);
        heap.free(objects[1]);
        assert_eq!(heap.platform().take_misuses(), [(InvalidFree::DoubleFree, objects[1] as usize)]);
    }
    heap.audit().unwrap();
}

#[test]
fn every_free_of_a_cache_without_buckets_is_checked_if_asked_for() {
    let heap = heap();
    use_up_buckets(&heap);
    let id = heap.user_caches().make(&spec(64)).unwrap();
    // One is left, so that the slab stays.
    let objects = take(&heap, id, 3);
    heap.platform().tunables().check.set(1);
    heap.reclaim().follow_check();
    // SAFETY: the last is a misuse on purpose, which the heap refuses.
    [0, 1, 0].into_iter().for_each(|i| unsafe { heap.free(objects[i]) });
    assert_eq!(heap.platform().take_misuses(), [(InvalidFree::DoubleFree, objects[0] as usize)]);
    let stats = heap.user_caches().stats(id);
    assert_eq!((stats.used, stats.free_depot), (1, 0));
    heap.audit().unwrap();
}

#[test]
fn reclaim_takes_from_any_number_of_caches_the_stalest_first() {
    let heap = heap();
    use_up_buckets(&heap);
    heap.platform().tunables().report.set(0);
    // More than are put in order at a time.
    let caches: Vec<_> = (0..600).map(|_| heap.user_caches().make(&spec(1024)).unwrap()).collect();
    for (i, &id) in caches.iter().enumerate().rev() {
        demand(&heap, id, 20);
        if i % 100 == 0 {
            heap.platform().pass_ms(WINDOW_MS);
            heap.reclaim().balance_calm();
            heap.reclaim().balance_pressure(Level::None, Cause::Pressure);
        }
    }
    let held = |heap: &Heap<Fake>| caches.iter().map(|&id| heap.user_caches().stats(id).free_depot).collect::<Vec<_>>();
    assert!(held(&heap).iter().all(|&held| held == 20));
    // What an allocation is short of is taken from those that ran short longest ago, which are the last ones here.
    heap.platform().tunables().report.set(1);
    heap.platform().fail(Call::MapAt, u64::MAX);
    let (mut blocks, mut left) = (Vec::new(), held(&heap));
    while !left.contains(&0) {
        blocks.push(heap.alloc(100_000));
        assert!(!blocks.last().unwrap().is_null());
        left = held(&heap);
    }
    let first = left.iter().position(|&held| held == 0).unwrap();
    assert!(first >= 500, "cache {first} ran short after others that still have all: {left:?}");
    while left[0] > 0 {
        blocks.push(heap.alloc(100_000));
        assert!(!blocks.last().unwrap().is_null());
        left = held(&heap);
    }
    assert!(left[100..].iter().all(|&held| held == 0), "{left:?}");
    heap.audit().unwrap();
}

#[test]
fn a_fork_finds_caches_without_buckets_whole() {
    let heap = heap();
    use_up_buckets(&heap);
    let ids: Vec<_> = (0..100).map(|_| heap.user_caches().make(&spec(200)).unwrap()).collect();
    let objects: Vec<_> = ids.iter().map(|&id| take(&heap, id, 30)).collect();
    heap.fork().freeze();
    // SAFETY: follows `freeze` on this thread, which is the only one.
    unsafe { heap.fork().thaw_child() };
    for (&id, objects) in ids.iter().zip(objects) {
        give(&heap, id, objects);
        assert_eq!(destroy(&heap, id), Ok(()));
    }
    assert_eq!(heap.audit().unwrap().slab_pages, 0);
}

#[test]
fn without_memory_for_the_table_a_cache_is_refused_and_nothing_is_lost() {
    let heap = heap();
    use_up_buckets(&heap);
    heap.platform().fail(Call::Map, u64::MAX);
    assert_eq!(heap.user_caches().make(&spec(64)), Err(MakeError::NoMemory));
    heap.platform().fail_nothing();
    let id = heap.user_caches().make(&spec(64)).unwrap();
    assert_eq!(id.number(), UNBUCKETED);
    demand(&heap, id, 10);
    heap.audit().unwrap();
}
