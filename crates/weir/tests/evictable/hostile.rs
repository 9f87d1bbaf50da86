//! Callbacks that use the cache, values whose drop panics, memory that is refused: nothing is lost, and figures stay true.

use crate::counted::Count;
#[cfg(not(plain))]
use crate::eviction::reclaim::in_child;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use weir::{ByteCache, EvictableCache, RemovalCause};
#[cfg(not(plain))]
use weir::{Refusal, heap, settings};

thread_local! {
    /// The listener is at work: what it evicts by its own use of the cache is told to it, too.
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn a_listener_may_use_the_cache_for_the_key_that_it_is_told_of() {
    static CACHE: OnceLock<EvictableCache<u64, crate::counted::Counted>> = OnceLock::new();
    static LIVE: OnceLock<Count> = OnceLock::new();
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let live = LIVE.get_or_init(Count::default);
    let listener = |key: &u64, value: &crate::counted::Counted, _: RemovalCause| {
        assert_eq!(value.check(), *key);
        if IS_WITHIN.replace(true) {
            return;
        }
        let cache = CACHE.get().unwrap();
        match TOLD.fetch_add(1, SeqCst) % 5 {
            0 => drop(cache.get(key)),
            1 => drop(cache.insert(*key, LIVE.get().unwrap().make(*key)).unwrap()),
            2 => drop(cache.remove(key)),
            3 => drop(cache.get_or_insert_with(*key, || LIVE.get().unwrap().make(*key))),
            _ if TOLD.load(SeqCst).is_multiple_of(40) => cache.clear(),
            _ => drop(cache.evict(300)),
        }
        cache.relieved();
        IS_WITHIN.set(false);
    };
    let cache = CACHE.get_or_init(|| {
        EvictableCache::builder().shards(2).max_bytes(2_000).weigher(|_, _| 100).on_evict(listener).build().unwrap()
    });
    for step in 0..3_000u64 {
        let key = step * 7 % 60;
        match step % 10 {
            0 => drop(cache.remove(&key)),
            1..4 => drop(cache.get(&key).map(|found| assert_eq!(found.check(), key))),
            _ => drop(cache.insert(key, live.make(key)).unwrap()),
        }
        assert_eq!((cache.bytes(), live.get()), (cache.len() * 100, cache.len() as isize), "step {step}");
    }
    assert!(TOLD.load(SeqCst) > 200, "{TOLD:?}");
    cache.clear();
    assert_eq!(cache.bytes(), cache.len() * 100);
}

/// Safe code can have `Hash` and `Eq` disagree. One of two such keys in the place of the other would lie where no search for it
/// ends: the second to be evicted would be lost, or freed twice.
#[test]
fn keys_that_are_equal_and_hash_differently_are_different_keys() {
    #[derive(PartialEq, Eq)]
    struct Key;
    thread_local!(static HASHED: Cell<u64> = const { Cell::new(0) });
    impl Hash for Key {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            hasher.write_u64(HASHED.get());
        }
    }
    let cache = EvictableCache::<Key, u64>::builder().shards(1).build().unwrap();
    drop(cache.insert(Key, 0).unwrap());
    // Marks in an index of 32 places are alike once in 32,768 times.
    for hashed in 1..300_000 {
        HASHED.set(hashed);
        assert!(!cache.contains(&Key), "{hashed} is found where 0 is");
    }
    HASHED.set(0);
    assert_eq!((cache.get_copied(&Key), cache.len()), (Some(0), 1));
}

#[test]
fn a_drop_that_panics_while_room_is_made_gives_that_room_back() {
    static IS_ARMED: AtomicBool = AtomicBool::new(false);
    struct Value(usize);
    impl Drop for Value {
        fn drop(&mut self) {
            // Once: another panic while the first unwinds would end the process.
            assert!(!(self.0 == 7 && IS_ARMED.swap(false, SeqCst)), "on purpose");
        }
    }
    let cache = EvictableCache::<u64, Value>::builder()
        .shards(4)
        .max_bytes(4_000)
        .weigher(|_, value| if value.0 > 1_000 { value.0 } else { 100 })
        .build()
        .unwrap();
    let mut panics = 0;
    for round in 0..20 {
        (0..60)
            .for_each(|key| drop(cache.insert(round * 100 + key, Value(key as usize % 10)).map_err(|_| ()).unwrap()));
        IS_ARMED.store(true, SeqCst);
        // More than its shard has: others are evicted from.
        let put = || drop(cache.insert(1 << 20, Value(3_000)));
        panics += usize::from(catch_unwind(AssertUnwindSafe(put)).is_err());
        IS_ARMED.store(false, SeqCst);
        cache.remove(&(1 << 20));
        assert_eq!(cache.bytes(), cache.len() * 100, "round {round}");
    }
    assert!(panics > 10, "{panics}");
}

#[test]
fn an_insertion_evicts_about_what_it_needs_however_much_is_too_much() {
    let cache = EvictableCache::<u64, [u8; 1000]>::builder().weigher(|_, _| 1_000).build().unwrap();
    (0..2_000).for_each(|key| drop(cache.insert(key, [0; 1000]).unwrap()));
    let guards: Vec<_> = (0..2_000).map(|key| cache.get(&key).unwrap()).collect();
    cache.set_max_bytes(500_000);
    drop(guards);
    let mut before = cache.bytes();
    assert_eq!(before, 2_000_000, "all was pinned");
    let mut insertions = 0;
    while before > 500_000 && insertions < 10_000 {
        drop(cache.insert(10_000 + insertions, [0; 1000]).unwrap());
        let gone = before.saturating_sub(cache.bytes());
        // 64 KiB; or nothing more than it needs, where its shard has little.
        assert!((0..=66_000).contains(&gone), "{gone} bytes went for one insertion of 1,000");
        (before, insertions) = (cache.bytes(), insertions + 1);
    }
    assert_eq!(before, 500_000, "after {insertions} insertions");
}

#[cfg(not(plain))]
#[test]
fn an_insertion_without_memory_leaves_figures_and_values_as_they_were() {
    in_child(|| {
        static REJECTED: AtomicUsize = AtomicUsize::new(0);
        let live = Count::default();
        let cache = EvictableCache::<u64, crate::counted::Counted>::builder()
            .shards(1)
            .weigher(|_, _| 100)
            .on_evict(|_, _, cause| {
                REJECTED.fetch_add(usize::from(cause == RemovalCause::Rejected), SeqCst);
            })
            .build()
            .unwrap();
        // The next one needs a block for twice as many entries: 2.3 MiB.
        let held: Vec<_> = (0..16_384).map(|key| cache.insert(key, live.make(key)).unwrap()).collect();
        // What is idle by now would serve that block.
        heap::trim();
        let limit = heap::usage().resident_bytes() + (1 << 20);
        settings::set("hard_limit", &limit.to_string()).unwrap();
        let before = cache.stats();
        for round in 1..=3 {
            let refused = cache.insert(1 << 20, live.make(1 << 20)).map(drop).unwrap_err();
            assert_eq!((refused.refusal, refused.value.check()), (Refusal::OutOfMemory, 1 << 20));
            drop(refused);
            let stats = cache.stats();
            assert_eq!((stats.bytes, stats.entries, stats.rejected), (before.bytes, before.entries, round));
            assert_eq!((live.get(), REJECTED.load(SeqCst)), (16_384, round as usize));
        }
        settings::set("hard_limit", "0").unwrap();
        drop(held);
        drop(cache.insert(1 << 20, live.make(1 << 20)).unwrap());
        assert_eq!((cache.bytes(), live.get()), (cache.len() * 100, cache.len() as isize));
    });
}

#[cfg(not(plain))]
#[test]
fn a_panic_as_a_cache_ends_leaves_nothing_behind() {
    // Other tests of this process would be among what is live.
    in_child(|| {
        let used = heap::usage().live_bytes;
        for bad in ["listener", "value"] {
            let live = Count::default();
            let is_armed = std::sync::Arc::new(AtomicBool::new(true));
            struct Value(
                #[allow(dead_code, reason = "held")] crate::counted::Counted,
                Option<std::sync::Arc<AtomicBool>>,
            );
            impl Drop for Value {
                fn drop(&mut self) {
                    let is_bad = self.1.as_ref().is_some_and(|armed| armed.swap(false, SeqCst));
                    assert!(!is_bad, "on purpose");
                }
            }
            let armed = is_armed.clone();
            let cache = EvictableCache::<u64, Value>::builder()
                .shards(4)
                .weigher(|_, _| 100)
                .on_evict(move |_, _, _| assert!(bad != "listener" || !armed.swap(false, SeqCst), "on purpose"))
                .build()
                .unwrap();
            for key in 0..1_000 {
                let arm = (bad == "value" && key == 500).then(|| is_armed.clone());
                drop(cache.insert(key, Value(live.make(key), arm)).map_err(|_| ()).unwrap());
            }
            assert!(catch_unwind(AssertUnwindSafe(|| drop(cache))).is_err(), "{bad}");
            assert_eq!((live.get(), std::sync::Arc::strong_count(&is_armed)), (0, 1), "{bad}");
        }
        assert!(heap::usage().live_bytes < used + (64 << 10), "the cache's own memory stayed");
    });
}

/// Equal to those of its number; the drop of one that is bad panics.
struct Bad(u64, bool);

impl PartialEq for Bad {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bad {}

impl Hash for Bad {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        assert!(!self.1, "on purpose");
    }
}

/// Whether a future gives something at once.
fn gives<T>(future: impl Future<Output = T>) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// What a function gives is not dropped where one of its variables panics at its end. A guard would pin its entry for ever.
#[test]
fn a_drop_that_panics_as_a_guard_is_given_leaves_the_entry_unpinned() {
    type Cache = EvictableCache<Bad, Bad>;
    /// A name, whether the value that is there at first is bad, and a call.
    type Case<'a> = (&'static str, bool, &'a dyn Fn(&Cache) -> bool);
    let bad = || Bad(7, true);
    let cases: [Case<'_>; 5] = [
        ("key", false, &|cache| cache.get_or_insert_with(Bad(1, true), || unreachable!("it is there")).0 == 5),
        ("closure", false, &|cache| {
            let bad = bad();
            cache.get_or_insert_with(Bad(1, false), move || bad).0 == 5
        }),
        ("former value", true, &|cache| cache.upsert_with(Bad(1, false), |_| Bad(6, false)).0 == 6),
        ("key of a task", false, &|cache| gives(cache.get_or_insert_async(Bad(1, true), async { unreachable!() }))),
        ("future", false, &|cache| {
            let bad = bad();
            gives(cache.get_or_insert_async(Bad(1, false), async move { bad }))
        }),
    ];
    let is_pinned = |&(name, is_former_bad, give): &Case<'_>| {
        let cache = Cache::builder().weigher(|_, _| 100).build().unwrap();
        drop(cache.insert(Bad(1, false), Bad(5, is_former_bad)).map_err(|_| ()).unwrap());
        assert!(catch_unwind(AssertUnwindSafe(|| give(&cache))).is_err(), "{name}");
        cache.evict(usize::MAX) == 0
    };
    let pinned = cases.iter().filter(|case| is_pinned(case)).map(|case| case.0);
    assert_eq!(pinned.collect::<Vec<_>>(), [""; 0]);
    let cache = ByteCache::builder().build().unwrap();
    drop(cache.insert(b"key", b"value").unwrap());
    let fill = |bad: Bad| {
        move |_: &mut [u8]| {
            _ = &bad;
            Ok::<(), ()>(())
        }
    };
    let give = || cache.get_or_fill(b"key", 5, fill(bad())).is_ok();
    assert!(catch_unwind(AssertUnwindSafe(give)).is_err() && !cache.is_in_use());
}

#[cfg(not(plain))]
#[test]
fn an_eq_that_uses_the_cache_is_told_in_debug_builds() {
    if !cfg!(debug_assertions) {
        return weir_testing::skip!("without debug assertions it waits for itself");
    }
    static CACHE: OnceLock<EvictableCache<Key, u64>> = OnceLock::new();
    #[allow(
        clippy::derived_hash_with_manual_eq,
        reason = "what is equal has equal hashes; the rest of `eq` is the defect"
    )]
    #[derive(Hash)]
    struct Key(u64);
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            CACHE.get().unwrap().len() > 5 && CACHE.get().unwrap().contains(&Key(other.0 + 1)) || self.0 == other.0
        }
    }
    impl Eq for Key {}
    let cache = CACHE.get_or_init(|| EvictableCache::builder().build().unwrap());
    (0..6).for_each(|key| drop(cache.insert(Key(key), key)));
    let said = catch_unwind(AssertUnwindSafe(|| cache.contains(&Key(3)))).unwrap_err();
    let said = said.downcast_ref::<&str>().unwrap();
    assert!(said.contains("`Eq` of a key uses an evictable cache"), "{said}");
    // The lock was given back.
    cache.clear();
    assert!(!cache.contains(&Key(3)));
}

#[test]
fn more_shards_than_there_can_be_are_an_error() {
    for shards in [1_025, usize::MAX / 2 + 2, usize::MAX] {
        let refused = EvictableCache::<u64, u64>::builder().shards(shards).build().err().unwrap();
        assert_eq!(refused.to_string(), format!("{shards} shards: a cache has 1024 at most"));
        assert_eq!(ByteCache::builder().shards(shards).build().err(), Some(refused));
    }
    assert!(EvictableCache::<u64, u64>::builder().shards(1_000).build().is_ok());
}
