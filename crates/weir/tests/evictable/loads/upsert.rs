//! `upsert_with`: values that are made of those before, one after another.

use crate::counted::{Count, Counted};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, LazyLock, Mutex, mpsc};
use std::thread;
use weir::{EvictableCache, RemovalCause};

fn cache() -> EvictableCache<u64, u64> {
    EvictableCache::builder().build().unwrap()
}

#[test]
fn each_finds_the_value_of_the_one_before() {
    const TURNS: u64 = 500;
    let (cache, inside, start) = (cache(), AtomicUsize::new(0), Barrier::new(4));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, inside, start) = (&cache, &inside, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..TURNS {
                    let add = |former: Option<&u64>| {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two compute at once");
                        thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        former.copied().unwrap_or(1_000_000) + 1
                    };
                    let value = *cache.upsert_with(1, add);
                    // Look-ups find it, or a later one.
                    assert!(cache.get_copied(&1).is_some_and(|now| now >= value));
                    assert!(*cache.get_or_insert_with(1, || unreachable!("it is there")) >= value);
                    cache.upsert_with(10 + thread, |former| former.map_or(0, |former| former + thread));
                }
            });
        }
    });
    assert_eq!(cache.get_copied(&1), Some(1_000_000 + 4 * TURNS));
    assert_eq!(cache.get_copied(&13), Some(3 * (TURNS - 1)));
}

#[test]
fn the_present_value_is_found_meanwhile_and_stays_after_an_error_or_a_panic() {
    let (live, cache) = (Count::default(), EvictableCache::<u64, Counted>::builder().max_bytes(1_000));
    let cache = cache.weigher(|_, _| 100).build().unwrap();
    drop(cache.upsert_with(1, |former| live.make(former.map_or(7, |_| unreachable!("none is there")))));
    let failed = cache.try_upsert_with(1, |former| {
        assert_eq!((former.unwrap().check(), cache.get(&1).unwrap().check()), (7, 7));
        // Another key is no matter, nor what others do with this one.
        assert_eq!(cache.upsert_with(2, |_| live.make(8)).check(), 8);
        assert!(cache.remove(&1));
        drop(cache.insert(1, live.make(9)).unwrap());
        assert_eq!(former.unwrap().check(), 7, "it is held");
        Err("failed")
    });
    assert_eq!((failed.map(drop), cache.get(&1).unwrap().check(), live.get()), (Err("failed"), 9, 2));
    let said = catch_unwind(AssertUnwindSafe(|| drop(cache.upsert_with(1, |_| panic!("on purpose")))));
    assert_eq!(said.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(cache.upsert_with(1, |former| live.make(former.unwrap().check() + 1)).check(), 10);
    assert_eq!((cache.len(), live.get()), (2, 2));
    drop(cache);
    assert_eq!(live.get(), 0);
}

#[test]
fn a_closure_that_computes_its_own_key_panics() {
    let cache = cache();
    drop(cache.insert(1, 5).unwrap());
    let own = || drop(cache.upsert_with(1, |_| *cache.upsert_with(1, |_| 6)));
    let said = catch_unwind(AssertUnwindSafe(own)).unwrap_err();
    assert!(said.downcast_ref::<&str>().unwrap().contains("asks for the key whose value it computes"));
    assert_eq!(*cache.upsert_with(1, |former| former.unwrap() + 1), 6);
}

#[test]
fn what_is_not_kept_is_the_guard_s_and_the_former_leaves() {
    let (live, cache) = (Count::default(), EvictableCache::<u64, Counted>::builder().max_bytes(100));
    let cache = cache.weigher(|_, value| value.number as usize).build().unwrap();
    drop(cache.insert(1, live.make(60)).unwrap());
    let large = cache.upsert_with(1, |former| live.make(former.unwrap().check() * 2));
    assert_eq!((large.check(), cache.contains(&1), cache.bytes()), (120, false, 0));
    drop(large);
    assert_eq!((live.get(), cache.upsert_with(1, |former| live.make(former.map_or(3, |_| 4))).check()), (0, 3));
}

#[test]
fn a_value_that_grows_takes_no_more_room_than_it_grows_by() {
    let builder = EvictableCache::<u64, u64>::builder().max_bytes(1000).shards(1);
    let cache = builder.weigher(|_, &value| value as usize).build().unwrap();
    (1..=2).for_each(|key| drop(cache.insert(key, 800 - 200 * key).unwrap()));
    assert_eq!(cache.bytes(), 1000);
    // One byte is missing. The other entry goes for it, as all of the former value's stays until it is replaced.
    assert_eq!(*cache.upsert_with(1, |former| former.unwrap() + 1), 601);
    assert_eq!((cache.get_copied(&1), cache.bytes()), (Some(601), 601));
    drop(cache.insert(2, 399).unwrap());
    let pinned = cache.get(&1).unwrap();
    drop(cache.insert(1, 700).unwrap());
    assert_eq!((*pinned, cache.get_copied(&1), cache.contains(&2)), (601, Some(700), false));
}

/// The listener runs when the next may have its turn.
#[test]
fn the_former_leaves_before_the_next_has_its_turn() {
    static FOUND: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    static CACHE: LazyLock<EvictableCache<u64, u64>> = LazyLock::new(|| {
        let told = |key: &u64, _: &u64, why| {
            if why == RemovalCause::Rejected {
                FOUND.lock().unwrap().push(CACHE.contains(key));
                assert_eq!(*CACHE.upsert_with(*key, |former| former.map_or(2, |_| 3)), 2);
            }
        };
        EvictableCache::builder().max_bytes(100).weigher(|_, &value| value as usize).on_evict(told).build().unwrap()
    });
    drop(CACHE.insert(1, 60).unwrap());
    assert_eq!(*CACHE.upsert_with(1, |former| former.unwrap() * 2), 120);
    assert_eq!((&**FOUND.lock().unwrap(), CACHE.get(&1).map(|value| *value)), (&[false][..], Some(2)));
}

#[test]
fn who_computes_what_was_not_there_is_in_the_same_queue() {
    let (cache, started, (begin, begun)) = (&cache(), &Barrier::new(2), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            *cache.get_or_insert_with(1, || {
                begin.send(()).unwrap();
                started.wait();
                thread::yield_now();
                40
            })
        });
        begun.recv().unwrap();
        started.wait();
        assert_eq!(*cache.upsert_with(1, |former| former.unwrap() + 2), 42);
    });
}
