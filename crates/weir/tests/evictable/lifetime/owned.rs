//! Guards that own themselves: they keep their entry and its cache, and end both.

use crate::counted::{Count, Counted};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use weir::{ByteCache, EvictableCache, OwnedEntry};

fn cache<V: Send + Sync + 'static>() -> Arc<EvictableCache<u64, V>> {
    Arc::new(EvictableCache::builder().shards(1).max_bytes(1_000).weigher(|_, _| 100).build().unwrap())
}

#[test]
fn an_owned_entry_outlives_the_program_s_handles() {
    let (live, cache) = (Count::default(), cache::<Counted>());
    (0..5).for_each(|key| drop(cache.insert(key, live.make(key)).unwrap()));
    let first = cache.get_owned(&1).unwrap();
    let second = cache.get(&2).unwrap().into_owned(&cache);
    let copy = first.clone();
    let cache = {
        let weak = Arc::downgrade(&cache);
        drop(cache);
        weak
    };
    assert_eq!((live.get(), first.check(), *second.key(), copy.weight()), (5, 1, 2, 100));
    assert_eq!(copy.cache().len(), 5);
    drop((first, second));
    assert_eq!((live.get(), copy.check()), (5, 1));
    assert!(cache.upgrade().is_some());
    // The last guard ends the cache, on the thread that has it.
    thread::spawn(move || drop(copy)).join().unwrap();
    assert_eq!(live.get(), 0);
    assert!(cache.upgrade().is_none());
}

#[test]
fn an_owned_entry_pins() {
    let (live, cache) = (Count::default(), cache::<Counted>());
    let held = cache.insert(7, live.make(7)).unwrap().into_owned(&cache);
    (100..200).for_each(|key| drop(cache.insert(key, live.make(key)).unwrap()));
    cache.evict(usize::MAX);
    cache.relieved();
    // Neither room nor pressure took it.
    assert_eq!((cache.len(), live.get(), held.check()), (1, 1, 7));
    assert!(cache.remove(&7));
    assert_eq!((cache.len(), live.get(), held.check()), (0, 1, 7));
    let copy = held.clone();
    drop(held);
    assert_eq!((live.get(), copy.check(), cache.stats().pinned), (1, 7, 0));
    drop(copy);
    assert_eq!(live.get(), 0);
}

#[test]
fn an_entry_of_another_cache_is_refused() {
    let (live, one, other) = (Count::default(), cache::<Counted>(), cache::<Counted>());
    let entry = one.insert(1, live.make(1)).unwrap();
    let said = catch_unwind(AssertUnwindSafe(|| drop(entry.into_owned(&other)))).unwrap_err();
    assert!(said.downcast_ref::<&str>().unwrap().contains("its own cache"));
    // The guard was dropped by the panic, so nothing is pinned.
    assert_eq!(one.evict(usize::MAX), 100);
    assert_eq!(live.get(), 0);
    drop(one);
    assert_eq!(Arc::strong_count(&other), 1);
}

#[test]
fn a_value_s_drop_that_panics_ends_the_cache_all_the_same() {
    static IS_ARMED: AtomicBool = AtomicBool::new(false);
    struct Value(#[allow(dead_code)] Counted);
    impl Drop for Value {
        fn drop(&mut self) {
            assert!(!IS_ARMED.swap(false, SeqCst), "on purpose");
        }
    }
    let (live, cache) = (Count::default(), cache::<Value>());
    (0..5).for_each(|key| drop(cache.insert(key, Value(live.make(key))).map_err(|_| ()).unwrap()));
    let held = cache.get_owned(&3).unwrap();
    cache.remove(&3);
    let weak = Arc::downgrade(&cache);
    drop(cache);
    IS_ARMED.store(true, SeqCst);
    // The entry is the guard's alone: its drop panics, and the cache ends behind it.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(held))).is_err());
    assert_eq!(live.get(), 0);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_value_may_own_entries_of_its_own_cache() {
    struct Node(#[allow(dead_code)] Counted, #[allow(dead_code)] Option<OwnedEntry<u64, Node>>);
    let (live, cache) = (Count::default(), cache::<Node>());
    // Each keeps the one before; the newest goes first, and takes the others along.
    for key in 0..8 {
        let before = (key > 0).then(|| cache.get_owned(&(key - 1)).unwrap());
        drop(cache.insert(key, Node(live.make(key), before)).map_err(|_| ()).unwrap());
    }
    // Only the newest is not pinned by another.
    (0..7).for_each(|key| assert!(cache.remove(&key)));
    assert_eq!((cache.len(), live.get()), (1, 8));
    let weak = Arc::downgrade(&cache);
    let last = cache.get_owned(&7).unwrap();
    cache.remove(&7);
    drop(cache);
    assert_eq!(live.get(), 8);
    drop(last);
    assert_eq!(live.get(), 0);
    assert!(weak.upgrade().is_none());
}

#[test]
fn owned_entries_go_to_other_threads_while_the_cache_is_in_use() {
    let (live, cache) = (Count::default(), cache::<Counted>());
    let (give, take) = std::sync::mpsc::channel::<OwnedEntry<u64, Counted>>();
    let taker = thread::spawn(move || take.iter().map(|entry| assert_eq!(entry.check(), *entry.key())).count());
    let makers = (0..2).map(|thread| {
        let (live, cache, give) = (live.clone(), cache.clone(), give.clone());
        thread::spawn(move || {
            for step in 0..2_000u64 {
                let key = (step * 7 + thread) % 15;
                if step % 5 == 0 {
                    cache.remove(&key);
                }
                let entry = cache.get_or_insert_with(key, || live.make(key));
                give.send(entry.into_owned(&cache)).unwrap();
            }
        })
    });
    makers.collect::<Vec<_>>().into_iter().for_each(|maker| maker.join().unwrap());
    drop(give);
    assert_eq!(taker.join().unwrap(), 4_000);
    assert_eq!((live.get(), Arc::strong_count(&cache)), (cache.len() as isize, 1));
    drop(cache);
    assert_eq!(live.get(), 0);
}

#[test]
fn an_owned_entry_of_bytes_outlives_the_program_s_handles() {
    let make = || Arc::new(ByteCache::builder().max_bytes(1 << 20).build().unwrap());
    let (cache, other) = (make(), make());
    drop(cache.insert(b"one", &[1; 5000]).unwrap());
    let first = cache.get_owned(b"one").unwrap();
    let second = cache.insert(b"two", &[2; 50]).unwrap().into_owned(&cache);
    assert!(cache.get_owned(b"three").is_none());
    cache.evict(usize::MAX);
    assert!(cache.remove(b"one"));
    let (weak, copy) = (Arc::downgrade(&cache), first.clone());
    drop((cache, first));
    assert_eq!((copy.key(), &copy[..], second.cache().len()), (&b"one"[..], &[1; 5000][..], 1));
    assert!(copy.weight() > 5000);
    drop(second);
    assert!(weak.upgrade().is_some());
    thread::spawn(move || assert_eq!(AsRef::<[u8]>::as_ref(&copy)[4999], 1)).join().unwrap();
    assert!(weak.upgrade().is_none());
    let entry = other.insert(b"one", b"").unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(entry.into_owned(&make())))).is_err());
    assert_ne!(other.evict(1), 0, "the guard was dropped by the panic");
}
