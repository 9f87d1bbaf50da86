//! Entries that end: after a time, after not being used for a time, each by its own. The clock is the test's.

use crate::counted::{Count, Counted};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use weir::{ByteCache, EvictableCache, Expiry, RemovalCause};

/// Seconds that pass when a test says so.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, SeqCst);
    }

    fn read(&self) -> impl Fn() -> Duration + Send + Sync + 'static {
        let time = self.0.clone();
        move || Duration::from_secs(time.load(SeqCst))
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_entry_lives_for_its_time_and_is_then_no_hit() {
    let (clock, live, told) = (Clock::default(), Count::default(), Arc::new(Mutex::new(Vec::new())));
    let heard = told.clone();
    let cache = EvictableCache::<u64, Counted>::builder()
        .weigher(|_, _| 100)
        .time_to_live(seconds(10))
        .clock(clock.read())
        .on_evict(move |key, value, cause| {
            assert_eq!(value.check(), *key);
            heard.lock().unwrap().push((*key, cause));
        })
        .build()
        .unwrap();
    drop(cache.insert(1, live.make(1)));
    clock.pass(9);
    drop(cache.insert(2, live.make(2)));
    assert!(cache.get(&1).is_some() && cache.contains(&1));
    let pinned = cache.get(&1).unwrap();
    clock.pass(1);
    // Use does not prolong it. A holder of a guard keeps the entry.
    assert!(!cache.contains(&1) && cache.get(&1).is_none() && cache.get(&2).is_some());
    assert_eq!((pinned.check(), cache.len(), cache.bytes(), live.get()), (1, 1, 100, 2));
    drop(pinned);
    assert_eq!((live.get(), cache.stats().expired, cache.stats().removed), (1, 1, 0));
    assert_eq!(*told.lock().unwrap(), [(1, RemovalCause::Expired)]);
    // A new value of the key has a new time; a load computes what is over.
    drop(cache.insert(2, live.make(2)));
    clock.pass(9);
    assert_eq!(cache.get(&2).unwrap().check(), 2);
    clock.pass(1);
    assert_eq!(cache.get_or_insert_with(2, || live.make(2)).check(), 2);
    assert_eq!((cache.len(), live.get(), cache.stats().expired), (1, 1, 2));
    assert_eq!((cache.stats().hits, cache.stats().misses), (4, 2));
}

#[test]
fn an_entry_that_is_used_does_not_become_idle() {
    let clock = Clock::default();
    let cache = EvictableCache::<u64, u64>::builder()
        .time_to_idle(seconds(10))
        .time_to_live(seconds(25))
        .clock(clock.read())
        .build()
        .unwrap();
    for key in 0..2 {
        drop(cache.insert(key, key));
    }
    for _ in 0..3 {
        clock.pass(8);
        // To ask whether it is there is no use of it.
        let _ = cache.contains(&1);
        assert_eq!(cache.get_copied(&0), Some(0));
    }
    assert!(!cache.contains(&1));
    clock.pass(1);
    assert_eq!(cache.get_copied(&0), None, "its life ends, however much it is used");
}

#[test]
fn a_removal_finds_nothing_where_the_time_is_over() {
    let clock = Clock::default();
    let cache = EvictableCache::<u64, u64>::builder().time_to_live(seconds(10)).clock(clock.read()).build().unwrap();
    (0..2).for_each(|key| drop(cache.insert(key, key)));
    assert!(cache.remove(&0));
    clock.pass(10);
    assert_eq!((cache.len(), cache.remove(&1), cache.len()), (1, false, 0));
    assert_eq!((cache.stats().removed, cache.stats().expired), (1, 1));
}

#[test]
fn what_an_insertion_finds_is_replaced_or_over_as_its_time_says() {
    let (clock, told) = (Clock::default(), Arc::new(Mutex::new(Vec::new())));
    let heard = told.clone();
    let cache = EvictableCache::<u64, u64>::builder()
        .time_to_live(seconds(10))
        .clock(clock.read())
        .on_evict(move |_, value, cause| heard.lock().unwrap().push((*value, cause)))
        .build()
        .unwrap();
    drop(cache.insert(1, 1));
    clock.pass(9);
    drop(cache.insert(1, 2));
    clock.pass(10);
    drop(cache.insert(1, 3));
    assert_eq!(*told.lock().unwrap(), [(1, RemovalCause::Replaced), (2, RemovalCause::Expired)]);
    let stats = cache.stats();
    assert_eq!((stats.replaced, stats.expired, stats.insertions, stats.entries), (1, 1, 3, 1));
    assert_eq!(*cache.get(&1).unwrap(), 3);
}

#[test]
fn each_entry_may_have_times_of_its_own() {
    let clock = Clock::default();
    let cache = EvictableCache::<&str, Expiry>::builder()
        .time_to_live(seconds(100))
        .expire_after(|_, value| *value)
        .clock(clock.read())
        .build()
        .unwrap();
    let never = Expiry { live: Some(Duration::MAX), idle: None };
    drop(cache.insert("short", Expiry { live: Some(seconds(5)), ..Expiry::default() }));
    drop(cache.insert("idle", Expiry { idle: Some(seconds(50)), ..Expiry::default() }));
    drop(cache.insert("as all", Expiry::default()));
    drop(cache.insert("never", never));
    let there = || ["short", "idle", "as all", "never"].map(|key| cache.contains(key));
    assert_eq!(there(), [true; 4]);
    clock.pass(5);
    assert_eq!(there(), [false, true, true, true]);
    clock.pass(45);
    assert_eq!(there(), [false, false, true, true]);
    clock.pass(50);
    assert_eq!(there(), [false, false, false, true]);
    clock.pass(u64::MAX / 4_000_000_000);
    assert_eq!(there(), [false, false, false, true]);
    assert_eq!((cache.len(), cache.expire(), cache.len()), (4, 3, 1));

    let bytes = ByteCache::builder().expire_after(|_, _| Expiry { live: Some(seconds(1)), idle: None });
    let bytes = bytes.clock(clock.read()).build().unwrap();
    drop(bytes.insert(b"key", b"value").unwrap());
    assert!(bytes.get(b"key").is_some());
    clock.pass(1);
    assert!(bytes.get(b"key").is_none() && bytes.is_empty());
}

#[test]
fn what_is_over_leaves_as_others_come_and_first_of_all_under_pressure() {
    let (clock, live) = (Clock::default(), Count::default());
    let cache = EvictableCache::<u64, Counted>::builder().weigher(|_, _| 100).shards(2).clock(clock.read());
    let cache = cache.time_to_live(seconds(10)).build().unwrap();
    // As the storage grows, times go with their entries.
    (0..1_000).for_each(|key| drop(cache.insert(key, live.make(key))));
    clock.pass(5);
    (1_000..1_500).for_each(|key| drop(cache.insert(key, live.make(key))));
    clock.pass(5);
    assert_eq!(cache.len(), 1_500);
    // Each insertion looks at eight others of its shard.
    (2_000..2_400).for_each(|key| drop(cache.insert(key, live.make(key))));
    assert_eq!((cache.len(), live.get(), cache.stats().expired), (900, 900, 1_000));
    assert!((1_000..1_500).all(|key| cache.contains(&key)));
    clock.pass(5);
    let freed = cache.evict(100);
    assert!(freed > 10_000 && (2_000..2_400).all(|key| cache.contains(&key)), "{freed} bytes");
    cache.relieved();
    cache.expire();
    assert_eq!((cache.len(), cache.expire()), (400, 0));
    // What was left of the storage is copied to a smaller place.
    clock.pass(4);
    cache.evict(1);
    cache.relieved();
    (2_000..2_400).for_each(|key| drop(cache.get(&key)));
    clock.pass(1);
    cache.expire();
    assert_eq!((cache.len(), live.get()), (0, 0));
}

#[test]
fn what_is_over_and_pinned_frees_nothing_under_pressure() {
    let clock = Clock::default();
    let builder = EvictableCache::<u64, u64>::builder().weigher(|_, _| 100).shards(1).clock(clock.read());
    let ends = |key: &u64, _: &u64| Expiry { live: (*key == 1).then_some(seconds(10)), idle: None };
    let cache = builder.expire_after(ends).build().unwrap();
    (1..=2).for_each(|key| drop(cache.insert(key, key).unwrap()));
    let pinned = cache.get(&1).unwrap();
    clock.pass(10);
    assert_eq!((cache.evict(100), cache.contains(&2), *pinned), (100, false, 1));
}

/// A removal may make the shard's storage smaller, by which entries get other numbers.
#[test]
fn what_is_over_leaves_whatever_a_listener_removes_meanwhile() {
    const STAYING: u64 = 500;
    const ENDING: u64 = 3_500;
    static CACHE: OnceLock<EvictableCache<u64, u64>> = OnceLock::new();
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let clock = Clock::default();
    let own = |key: &u64| Expiry { live: Some(if *key < STAYING { Duration::MAX } else { seconds(10) }), idle: None };
    let cache = CACHE.get_or_init(|| {
        let removes = |_: &u64, _: &u64, cause| {
            if cause == RemovalCause::Expired {
                let told = TOLD.fetch_add(1, SeqCst);
                assert_eq!(CACHE.get().unwrap().remove(&(told / 16)), told.is_multiple_of(16));
            }
        };
        let builder = EvictableCache::builder().shards(1).weigher(|_, _| 100).on_evict(removes);
        builder.expire_after(move |key, _| own(key)).clock(clock.read()).build().unwrap()
    });
    let empty = cache.stats().metadata_bytes;
    (0..STAYING + ENDING).for_each(|key| drop(cache.insert(key, key).unwrap()));
    let full = cache.stats().metadata_bytes;
    clock.pass(10);
    assert_eq!((cache.expire(), cache.expire()), (ENDING as usize, 0));
    let left = STAYING - ENDING.div_ceil(16);
    assert_eq!(cache.len(), left as usize);
    assert!(cache.stats().metadata_bytes - empty < (full - empty) / 3, "the storage is fit to what is left");
}

#[test]
fn what_described_entries_goes_as_insertions_or_look_ups_find_them_over() {
    for inserts in [true, false] {
        let clock = Clock::default();
        let builder = EvictableCache::<u64, u64>::builder().shards(1).time_to_live(seconds(1));
        let cache = builder.clock(clock.read()).build().unwrap();
        (0..10_000).for_each(|key| drop(cache.insert(key, key).unwrap()));
        let full = cache.stats().metadata_bytes;
        clock.pass(1);
        for step in 0..10_000 {
            match inserts {
                true => drop(cache.insert(step % 10, step).unwrap()),
                false => assert!(cache.get(&step).is_none()),
            }
        }
        assert!(cache.len() <= 10, "{}", cache.len());
        let left = cache.stats().metadata_bytes;
        assert!(left < full / 4, "{left} bytes of {full}");
    }
}

#[test]
fn threads_that_use_entries_as_they_end_find_true_values_and_leave_none_behind() {
    let (clock, live) = (Clock::default(), Count::default());
    let cache = EvictableCache::<u64, Counted>::builder()
        .weigher(|_, _| 100)
        .max_bytes(20_000)
        .shards(4)
        .time_to_live(seconds(50))
        .time_to_idle(seconds(10))
        .clock(clock.read())
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3u64 {
            let (cache, live, clock) = (&cache, &live, &clock);
            scope.spawn(move || {
                let mut random = crate::model::Random(worker);
                for step in 0..20_000u64 {
                    let key = random.below(300);
                    match random.below(20) {
                        0..10 => drop(cache.get(&key).map(|found| assert_eq!(found.check(), key))),
                        10..15 => assert_eq!(cache.get_or_insert_with(key, || live.make(key)).check(), key),
                        15..18 => drop(cache.insert(key, live.make(key))),
                        18 => drop(cache.remove(&key)),
                        _ if step % 10 == 0 => drop(cache.expire()),
                        _ => clock.pass(1),
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!((live.get(), stats.bytes), (stats.entries as isize, stats.entries * 100));
    let out = stats.evicted_for_room + stats.removed + stats.expired + stats.replaced;
    assert_eq!(stats.insertions, out + stats.entries as u64);
    assert!(stats.expired > 100, "{stats:?}");
    clock.pass(50);
    cache.expire();
    assert_eq!((live.get(), cache.len()), (0, 0));
}
