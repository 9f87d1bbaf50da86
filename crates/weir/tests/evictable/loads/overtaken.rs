//! Values whose key is removed, or gets another value, while they are computed: they are their guard's alone.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use weir::{ByteCache, EvictableCache};

fn cache() -> EvictableCache<u64, u64> {
    EvictableCache::builder().build().unwrap()
}

/// What the cache has of key 7 after `meanwhile` ran on another thread than that which `computes`.
fn after(
    cache: &EvictableCache<u64, u64>,
    computes: impl Fn(&EvictableCache<u64, u64>, &dyn Fn()) -> u64 + Sync,
    meanwhile: impl Fn(&EvictableCache<u64, u64>) + Send + Sync,
) -> (u64, Option<u64>) {
    let run = || thread::scope(|scope| scope.spawn(|| meanwhile(cache)).join().unwrap());
    (computes(cache, &run), cache.get_copied(&7))
}

fn load(cache: &EvictableCache<u64, u64>, meanwhile: &dyn Fn()) -> u64 {
    *cache.get_or_insert_with(7, || {
        meanwhile();
        1
    })
}

fn update(cache: &EvictableCache<u64, u64>, meanwhile: &dyn Fn()) -> u64 {
    *cache.upsert_with(7, |former| {
        meanwhile();
        former.map_or(100, |former| former + 1)
    })
}

#[test]
fn what_is_removed_meanwhile_stays_removed() {
    let remove = |cache: &EvictableCache<u64, u64>| _ = cache.remove(&7);
    assert_eq!(after(&cache(), load, remove), (1, None));
    assert_eq!(after(&cache(), load, EvictableCache::clear), (1, None));
    assert_eq!(after(&cache(), load, |cache| assert!(!cache.remove(&8))), (1, Some(1)), "another key");
    let cache = cache();
    let sift = |cache: &EvictableCache<u64, u64>| cache.retain(|_, _| false);
    // What the predicate did not see is not kept: it may be what was to go.
    assert_eq!(after(&cache, load, sift), (1, None));
    for removal in [remove, EvictableCache::clear, sift] {
        drop(cache.insert(7, 10).unwrap());
        assert_eq!(after(&cache, update, removal), (11, None));
    }
    // An update of what the predicate keeps is not lost.
    drop(cache.insert(7, 10).unwrap());
    assert_eq!(after(&cache, update, |cache| cache.retain(|_, _| true)), (11, Some(11)));
    cache.clear();
    // The next ones are kept.
    assert_eq!(after(&cache, load, |_| ()), (1, Some(1)));
    assert_eq!(after(&cache, update, |_| ()), (2, Some(2)));
}

#[test]
fn what_is_put_in_meanwhile_stays() {
    let put = |cache: &EvictableCache<u64, u64>| drop(cache.insert(7, 2).unwrap());
    assert_eq!(after(&cache(), load, put), (1, Some(2)));
    assert_eq!(after(&cache(), update, put), (100, Some(2)));
    // Also where the update is of what the cache would not keep.
    let small = EvictableCache::builder().max_bytes(100).weigher(|_, &value| value as usize).build().unwrap();
    drop(small.insert(7, 99).unwrap());
    let doubled = |cache: &EvictableCache<u64, u64>, meanwhile: &dyn Fn()| {
        *cache.upsert_with(7, |former| {
            meanwhile();
            former.unwrap() * 2
        })
    };
    assert_eq!(after(&small, doubled, put), (198, Some(2)));
    let bytes = ByteCache::builder().build().unwrap();
    let fill = |value: &mut [u8]| {
        thread::scope(|scope| drop(scope.spawn(|| drop(bytes.insert(b"key", &[2]).unwrap())).join()));
        value.fill(1);
        Ok::<(), ()>(())
    };
    assert_eq!(bytes.get_or_fill(b"key", 1, fill).unwrap().unwrap()[..], [1]);
    assert_eq!(bytes.get(b"key").unwrap()[..], [2]);
}

#[test]
fn who_waits_finds_what_was_put_in_or_computes() {
    for is_put in [true, false] {
        let (cache, (begin, begun), (go, may_go)) = (&cache(), mpsc::channel(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(move || {
                let late = cache.get_or_insert_with(7, || {
                    begin.send(()).unwrap();
                    may_go.recv().unwrap();
                    1
                });
                assert_eq!(*late, 1);
            });
            begun.recv().unwrap();
            if is_put {
                drop(cache.insert(7, 2).unwrap());
            } else {
                cache.remove(&7);
            }
            let next = scope.spawn(move || *cache.get_or_insert_with(7, || 3));
            go.send(()).unwrap();
            assert_eq!(next.join().unwrap(), if is_put { 2 } else { 3 });
        });
        assert_eq!(cache.get_copied(&7), Some(if is_put { 2 } else { 3 }));
    }
}

#[test]
fn a_task_s_value_is_overtaken_by_another_task_of_its_thread() {
    for is_removed_by_itself in [false, true] {
        let (cache, gate) = (cache(), Cell::new(false));
        let load = async {
            poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            if is_removed_by_itself {
                cache.remove(&7);
            }
            1
        };
        let mut first = pin!(async { *cache.get_or_insert_async(7, load).await });
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        if !is_removed_by_itself {
            cache.remove(&7);
        }
        gate.set(true);
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(1));
        assert_eq!(cache.get_copied(&7), is_removed_by_itself.then_some(1));
    }
}
