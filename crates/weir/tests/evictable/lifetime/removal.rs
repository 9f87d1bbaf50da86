//! Removal, replacement and the end of a cache, with guards about; odd types.

use crate::counted::Count;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};
use weir::{ByteCache, EvictableCache, Refusal, RemovalCause};

#[test]
fn what_is_pinned_lives_until_its_last_guard_is_dropped() {
    let live = Count::default();
    let cache = EvictableCache::<u64, _>::builder().weigher(|_, _| 1).build().unwrap();
    let removed = cache.insert(1, live.make(10)).unwrap();
    let second = removed.clone();
    let replaced = cache.insert(2, live.make(20)).unwrap();
    assert!(cache.remove(&1) && cache.get(&1).is_none());
    drop(cache.insert(2, live.make(21)).unwrap());
    let evicted = cache.insert(3, live.make(30)).unwrap();
    assert!(cache.evict(usize::MAX) > 0, "22 is not pinned");
    assert_eq!((cache.len(), live.get()), (1, 3));
    assert_eq!(cache.get(&3).unwrap().check(), 30);
    cache.relieved();
    cache.clear();
    assert_eq!((cache.len(), cache.bytes(), live.get()), (0, 0, 3));
    assert_eq!([removed.check(), second.check(), replaced.check(), evicted.check()], [10, 10, 20, 30]);
    drop(removed);
    assert_eq!(live.get(), 3, "its clone is there");
    drop(second);
    assert_eq!(live.get(), 2);
    drop((replaced, evicted));
    assert_eq!(live.get(), 0);
}

#[test]
fn a_replaced_entry_keeps_its_place_and_its_weight_counts_once() {
    let cache = EvictableCache::<u64, Vec<u8>>::builder().max_bytes(100).weigher(|_, v| v.len()).build().unwrap();
    for len in [10, 50, 20, 90, 1] {
        drop(cache.insert(1, vec![0; len]).unwrap_or_else(|why| panic!("{why}")));
        assert_eq!((cache.bytes(), cache.len()), (len, 1));
    }
}

#[test]
fn clear_ends_although_a_listener_puts_entries_back() {
    static CACHE: LazyLock<EvictableCache<u64, u64>> = LazyLock::new(|| {
        let back = |key: &u64, value: &u64, _| {
            // Two for each, as long as that is not absurd.
            if *value < 1000 {
                drop(CACHE.insert(*key, value + 1).unwrap());
                drop(CACHE.insert(key + 1000 * (value + 1), value + 1).unwrap());
            }
        };
        EvictableCache::builder().shards(1).weigher(|_, _| 1).on_evict(back).build().unwrap()
    });
    (0..100).for_each(|key| drop(CACHE.insert(key, 0).unwrap()));
    CACHE.clear();
    assert!(CACHE.len() >= 100 && (0..100).all(|key| CACHE.get_copied(&key) != Some(0)), "{}", CACHE.len());
}

#[test]
fn what_a_refused_value_was_to_replace_leaves() {
    let (live, told) = (Count::default(), Arc::new(Mutex::new(Vec::new())));
    let heard = told.clone();
    let builder = EvictableCache::<u64, crate::counted::Counted>::builder().max_bytes(100);
    let builder = builder.on_evict(move |_, value, cause| heard.lock().unwrap().push((value.number, cause)));
    let cache = builder.weigher(|_, value| value.number as usize).build().unwrap();
    drop(cache.insert(1, live.make(10)).unwrap());
    assert!(matches!(cache.insert(1, live.make(200)).map(drop).unwrap_err().refusal, Refusal::TooLarge { .. }));
    assert_eq!((cache.contains(&1), cache.bytes(), live.get()), (false, 0, 0));
    // All else is pinned.
    drop(cache.insert(1, live.make(10)).unwrap());
    let pinned = cache.insert(2, live.make(80)).unwrap();
    assert_eq!(cache.insert(1, live.make(30)).map(drop).unwrap_err().refusal, Refusal::Full);
    assert!(!cache.contains(&1) && cache.contains(&2));
    drop(pinned);
    // An update that is not kept, of what is there.
    drop(cache.insert(1, live.make(10)).unwrap());
    drop(cache.upsert_with(1, |former| live.make(former.unwrap().number + 200)));
    assert!(!cache.contains(&1));
    // The program removed nothing, but wanted others in their places.
    let (replaced, rejected) = (RemovalCause::Replaced, RemovalCause::Rejected);
    let (to, room) = (std::mem::take(&mut *told.lock().unwrap()), RemovalCause::Room);
    assert_eq!(to, [(10, replaced), (200, rejected), (10, room), (30, rejected), (10, replaced), (210, rejected)]);
    assert_eq!((cache.stats().removed, cache.stats().replaced, cache.stats().rejected), (0, 2, 3));
    let bytes = ByteCache::builder().max_bytes(1000).build().unwrap();
    drop(bytes.insert(b"key", b"former").unwrap());
    assert!(matches!(bytes.insert(b"key", &[1; 2000]).map(drop), Err(Refusal::TooLarge { .. })));
    assert!(bytes.get(b"key").is_none() && bytes.is_empty());
    assert_eq!((bytes.stats().removed, bytes.stats().replaced, bytes.stats().rejected), (0, 1, 1));
}

#[test]
fn bytes_that_never_fit_are_counted_and_told_as_refused() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let tells = move |key: &[u8], value: &[u8], why| heard.lock().unwrap().push((key.to_vec(), value.len(), why));
    let cache = ByteCache::builder().max_bytes(1000).on_evict(tells).build().unwrap();
    assert!(matches!(cache.insert(b"key", &[1; 2000]).map(drop), Err(Refusal::TooLarge { .. })));
    assert_eq!(*told.lock().unwrap(), [(b"key".to_vec(), 2000, RemovalCause::Rejected)]);
    assert_eq!(cache.stats().rejected, 1);
}

#[test]
fn values_of_no_size_and_of_great_alignment_are_kept() {
    let nothing = EvictableCache::<(), ()>::builder().build().unwrap();
    assert!(nothing.get(&()).is_none());
    drop(nothing.insert((), ()).unwrap());
    assert!(nothing.get(&()).is_some() && nothing.bytes() > 0 && nothing.remove(&()));

    #[repr(align(4096))]
    struct Page(u8);
    let pages = EvictableCache::<u8, Page>::builder().build().unwrap();
    for key in 0..50 {
        let page = pages.insert(key, Page(key)).unwrap();
        assert_eq!((&raw const *page).addr() % 4096, 0);
    }
    assert!((0..50).all(|key| pages.get(&key).unwrap().0 == key));
    // A weight of zero counts as one.
    let free = EvictableCache::<u32, u32>::builder().max_bytes(100).weigher(|_, _| 0).build().unwrap();
    (0..1000).for_each(|key| drop(free.insert(key, key).unwrap()));
    assert_eq!((free.len(), free.bytes()), (100, 100));

    #[repr(align(64))]
    struct Line(#[allow(dead_code, reason = "for its size")] [u8; 64]);
    let lines = EvictableCache::<u8, Line>::builder().build().unwrap();
    drop(lines.insert(0, Line([0; 64])).unwrap());
    assert!(lines.bytes() <= 256, "a small block that is aligned counts no page: {}", lines.bytes());
}

#[test]
fn a_tebibyte_may_be_counted_and_no_more() {
    let builder = EvictableCache::<u64, usize>::builder().max_bytes(1 << 40).weigher(|_, v| *v);
    let cache = builder.favour(weir::Favour::Bytes).build().unwrap();
    for key in 0..1024 {
        drop(cache.insert(key, 1 << 30).unwrap());
    }
    assert_eq!((cache.bytes(), cache.len()), (1 << 40, 1024));
    drop(cache.insert(5000, 1 << 39).unwrap());
    assert!(cache.bytes() <= 1 << 40 && cache.contains(&5000));
    assert_eq!(cache.insert(5001, (1 << 40) + (1 << 20)).unwrap_err().value, (1 << 40) + (1 << 20));
    assert!(cache.insert(5002, usize::MAX).is_err());
    // What pressure leaves is taken without a look at free memory, of which there is not so much.
    let unbounded = EvictableCache::<u64, usize>::builder()
        .min_bytes(usize::MAX)
        .max_bytes(usize::MAX - 1)
        .weigher(|_, v| *v)
        .build()
        .unwrap();
    (0..3000).for_each(|key| drop(unbounded.insert(key, usize::MAX - 10).unwrap()));
    let most = unbounded.get(&2999).unwrap().weight();
    assert!(
        most > 1 << 53 && most.checked_mul(unbounded.len()) == Some(unbounded.bytes()),
        "the sum does not overflow"
    );
}

#[test]
fn a_panic_of_the_programs_code_leaves_the_cache_whole() {
    let live = Count::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let (weighed, told) = (calls.clone(), Arc::new(AtomicUsize::new(0)));
    let heard = told.clone();
    let cache = EvictableCache::<u64, crate::counted::Counted>::builder()
        .max_bytes(10)
        .weigher(move |_, _| {
            assert!(weighed.fetch_add(1, SeqCst) % 7 != 6, "the weigher, on purpose");
            1
        })
        .on_evict(move |_, _, _| assert!(heard.fetch_add(1, SeqCst) % 5 != 4, "the listener, on purpose"))
        .build()
        .unwrap();
    let mut panics = 0;
    for key in 0..500u64 {
        let put = || drop(cache.insert(key % 50, live.make(key)));
        panics += usize::from(catch_unwind(AssertUnwindSafe(put)).is_err());
        assert_eq!(live.get(), cache.len() as isize, "step {key}");
        assert!(cache.bytes() <= 10 && cache.bytes() == cache.len());
    }
    assert!(panics > 50 && told.load(SeqCst) > 300);
    while catch_unwind(AssertUnwindSafe(|| cache.clear())).is_err() {}
    drop(cache);
    assert_eq!(live.get(), 0);
}

#[test]
fn a_comparison_that_panics_gives_the_lock_back() {
    struct Key(u64, bool);
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
            self.0.hash(to);
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            assert!(!self.1 && !other.1, "on purpose");
            self.0 == other.0
        }
    }
    impl Eq for Key {}
    let live = Count::default();
    let cache = EvictableCache::<Key, _>::builder().weigher(|_, _| 1).hasher(crate::model::Constant).build().unwrap();
    drop(cache.insert(Key(1, false), live.make(1)).unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cache.insert(Key(2, true), live.make(2))))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cache.get_or_insert_with(Key(2, true), || live.make(2))))).is_err());
    assert_eq!((live.get(), cache.len()), (1, 1));
    assert_eq!(cache.get(&Key(1, false)).unwrap().check(), 1);
    drop(cache);
    assert_eq!(live.get(), 0);
}
