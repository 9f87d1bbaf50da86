//! Dirty entries: nothing that was marked is lost, and no older value comes after a newer one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use weir::{DirtyEntry, EvictableCache, EvictableCacheBuilder};
use weir_testing::wait_until;

pub(super) type Value = AtomicU64;
pub(super) type Store = Arc<Mutex<HashMap<u64, u64>>>;

pub(super) fn builder() -> EvictableCacheBuilder<u64, Value> {
    EvictableCache::builder().weigher(|_, _| 100)
}

/// A cache that writes to a map at once.
fn at_once(builder: EvictableCacheBuilder<u64, Value>) -> (EvictableCache<u64, Value>, Store) {
    let store = Store::default();
    let to = store.clone();
    let cache = builder.write_back(move |batch| {
        for entry in batch {
            to.lock().unwrap().insert(*entry.key(), entry.load(SeqCst));
            entry.written();
        }
    });
    (cache.build().unwrap(), store)
}

pub(super) fn put(cache: &EvictableCache<u64, Value>, key: u64, value: u64) {
    let entry = cache.insert(key, Value::new(value)).unwrap();
    assert!(entry.mark_dirty());
}

#[test]
fn what_is_evicted_was_written_back() {
    let (cache, store) = at_once(builder().max_bytes(2_000));
    for key in 0..1_000 {
        put(&cache, key, key + 7);
        assert!(cache.bytes() <= 2_000);
    }
    let stats = cache.stats();
    assert!(stats.evicted_for_room >= 980 && stats.write_backs >= 980, "{stats:?}");
    for key in (0..1_000).filter(|key| !cache.contains(key)) {
        assert_eq!(store.lock().unwrap().get(&key), Some(&(key + 7)), "key {key}");
    }
    drop(cache);
    assert_eq!(store.lock().unwrap().len(), 1_000, "the end writes the rest");
}

#[test]
fn flush_clear_and_remove_write_back_and_discard_does_not() {
    let (cache, store) = at_once(builder());
    (0..40).for_each(|key| put(&cache, key, key));
    cache.flush().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.dirty_entries, stats.dirty_bytes, stats.writing), (0, 0, 0));
    assert_eq!(store.lock().unwrap().len(), 40);
    let written = stats.write_backs;
    cache.flush().unwrap();
    assert_eq!(cache.stats().write_backs, written, "what is clean is not written again");
    put(&cache, 1, 100);
    assert!(cache.remove(&1));
    assert_eq!(store.lock().unwrap()[&1], 100);
    put(&cache, 2, 100);
    let pinned = cache.get(&2).unwrap();
    assert!(cache.discard(&2) && !pinned.mark_dirty(), "what was removed is not written back");
    put(&cache, 3, 100);
    cache.clear();
    let of = |key| store.lock().unwrap()[&key];
    assert_eq!((of(2), of(3)), (2, 100));
    assert_eq!(cache.stats().dirty_entries, 0);
}

#[test]
fn a_replaced_dirty_entry_hands_its_dirt_on() {
    let (cache, store) = at_once(builder());
    put(&cache, 1, 10);
    drop(cache.insert(1, Value::new(11)).unwrap());
    assert_eq!(cache.stats().dirty_entries, 1);
    cache.flush().unwrap();
    assert_eq!(store.lock().unwrap()[&1], 11);
}

/// A cache of which write-backs are completed by the test.
pub(super) fn later(max: usize) -> (EvictableCache<u64, Value>, mpsc::Receiver<DirtyEntry<u64, Value>>) {
    let (send, entries) = mpsc::channel();
    let send = Mutex::new(send);
    let cache = builder()
        .max_bytes(max)
        .write_back(move |batch| batch.for_each(|entry| drop(send.lock().unwrap().send(entry))))
        .build()
        .unwrap();
    (cache, entries)
}

#[test]
fn an_entry_that_is_being_written_stays_and_the_cache_is_congested() {
    let (cache, entries) = later(1_000);
    (0..10).for_each(|key| put(&cache, key, key));
    // All is dirty, and nothing is written yet.
    let refused = cache.insert(10, Value::new(1)).unwrap_err();
    assert_eq!((refused.refusal, refused.value.load(SeqCst)), (weir::Refusal::Full, 1));
    assert_eq!((cache.evict(500), cache.len()), (0, 10));
    let stats = cache.stats();
    assert!(stats.is_congested && stats.writing + stats.dirty_entries == 10, "{stats:?}");
    // Completed on another thread.
    let held: Vec<_> = entries.try_iter().collect();
    thread::spawn(move || held.into_iter().for_each(DirtyEntry::written)).join().unwrap();
    assert!(!cache.stats().is_congested);
    assert_eq!(cache.evict(500), 500);
    drop(cache);
}

#[test]
fn an_entry_dirtied_while_it_is_written_stays_dirty() {
    let (cache, entries) = later(700);
    put(&cache, 1, 1);
    let entry = cache.get(&1).unwrap();
    entry.store(2, SeqCst);
    assert!(entry.mark_dirty());
    let writing = entries.try_iter().next().expect("more than an eighth is dirty, so it is handed out");
    assert_eq!(cache.stats().dirty_entries, 1);
    writing.written();
    assert_eq!((cache.stats().dirty_entries, cache.evict(700)), (1, 0));
    drop(entry);
    let writing = entries.try_iter().next().expect("the eviction had it handed out");
    assert_eq!(writing.load(SeqCst), 2);
    assert_eq!(cache.evict(700), 0, "it is being written");
    writing.written();
    assert_eq!((cache.stats().dirty_entries, cache.evict(700)), (0, 100));
}

#[test]
fn two_values_of_a_key_are_never_written_at_once() {
    let (cache, entries) = later(700);
    put(&cache, 1, 1);
    let first = entries.try_iter().next().unwrap();
    put(&cache, 1, 2);
    cache.evict(700);
    assert!(entries.try_iter().next().is_none(), "the older value is still under way");
    // The older one fails: the newer one is written all the same, once.
    first.failed();
    cache.evict(700);
    let second = entries.try_iter().next().unwrap();
    assert_eq!(second.load(SeqCst), 2);
    second.written();
    assert_eq!((cache.stats().dirty_entries, cache.stats().write_back_errors), (0, 1));
}

#[test]
fn the_last_value_that_threads_put_in_is_the_one_in_the_store() {
    let store = Store::default();
    let to = store.clone();
    // Four writers that complete in any order.
    let (send, entries) = mpsc::channel::<DirtyEntry<u64, Value>>();
    let (send, entries) = (Mutex::new(send), Arc::new(Mutex::new(entries)));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (entries, to) = (entries.clone(), to.clone());
            thread::spawn(move || {
                loop {
                    let Ok(entry) = entries.lock().unwrap().recv() else { return };
                    let value = entry.load(SeqCst);
                    thread::yield_now();
                    to.lock().unwrap().insert(*entry.key(), value);
                    entry.written();
                }
            })
        })
        .collect();
    let cache = builder()
        .max_bytes(5_000)
        .write_back(move |batch| batch.for_each(|entry| drop(send.lock().unwrap().send(entry))))
        .build()
        .unwrap();
    thread::scope(|scope| {
        for worker in 0..3u64 {
            let cache = &cache;
            scope.spawn(move || {
                for step in 0..4_000u64 {
                    // Each thread has its own keys, so that the last value is known.
                    let key = worker * 100 + step % 40;
                    loop {
                        let entry = cache.get_or_insert_with(key, || Value::new(0));
                        entry.store(step, SeqCst);
                        if entry.mark_dirty() {
                            break;
                        }
                    }
                }
            });
        }
    });
    cache.flush().unwrap();
    for worker in 0..3u64 {
        for last in 3_960..4_000u64 {
            assert_eq!(store.lock().unwrap()[&(worker * 100 + last % 40)], last);
        }
    }
    drop(cache);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn a_removal_goes_on_although_other_write_backs_take_each_others_place() {
    // As many handles are out all the time: who waits for their number to change could wait for ever.
    let (cache, entries) = later(10_000);
    for key in 0..4 {
        put(&cache, key, key);
    }
    cache.evict(10_000);
    cache.relieved();
    let mut handles: Vec<_> = entries.try_iter().collect();
    assert_eq!(handles.len(), 4);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let removal = scope.spawn(|| {
            let is_removed = cache.remove(&0);
            is_over.store(true, SeqCst);
            is_removed
        });
        wait_until("the removal to hold its entry", || cache.stats().pinned > 0);
        let at = handles.iter().position(|entry| *entry.key() == 0).unwrap();
        handles.swap_remove(at).written();
        while !is_over.load(SeqCst) {
            // One ends, and is handed out again: no other thread is woken by the number of handles alone.
            let entry = handles.pop().unwrap();
            let key = *entry.key();
            entry.written();
            put(&cache, key, key);
            cache.evict(10_000);
            cache.relieved();
            handles.extend(entries.try_iter());
        }
        handles.into_iter().for_each(DirtyEntry::written);
        assert!(removal.join().unwrap());
    });
    entries.try_iter().for_each(DirtyEntry::written);
    assert!(!cache.contains(&0));
    drop(entries);
}

#[test]
fn what_a_removal_wrote_back_is_not_evicted_before_it_is_taken_out() {
    // It would say that there was no such entry.
    let (cache, entries) = later(10_000);
    for key in 0..300 {
        put(&cache, key, key);
        let is_removed = thread::scope(|scope| {
            let removal = scope.spawn(|| cache.remove(&key));
            while cache.stats().pinned == 0 && !removal.is_finished() {
                thread::yield_now();
            }
            entries.recv().unwrap().written();
            while !removal.is_finished() {
                cache.evict(10_000);
                cache.relieved();
            }
            removal.join().unwrap()
        });
        assert!(is_removed, "in round {key}");
    }
    drop(entries);
}

#[test]
fn what_is_being_written_back_is_no_use_of_the_programs() {
    let (send, handles) = mpsc::channel();
    let send = Mutex::new(send);
    let cache = weir::ByteCache::builder()
        .shards(1)
        .write_back(move |batch| batch.for_each(|entry| drop(send.lock().unwrap().send(entry))))
        .build()
        .unwrap();
    for _ in 0..5 {
        for key in 0..32u8 {
            assert!(cache.insert(&[key], &[key; 100]).unwrap().mark_dirty());
        }
        cache.evict(1 << 20);
        cache.relieved();
        let entries: Vec<_> = handles.try_iter().collect();
        assert!(!entries.is_empty());
        thread::scope(|scope| {
            let writer = scope.spawn(|| entries.into_iter().for_each(weir::DirtyBytes::written));
            loop {
                assert!(!cache.is_in_use(), "no guard is there, and no value is being filled");
                if writer.is_finished() {
                    break;
                }
            }
        });
        handles.try_iter().for_each(weir::DirtyBytes::written);
    }
    let guard = cache.fill(b"x", 10).unwrap().publish().unwrap();
    assert!(cache.is_in_use());
    cache.discard(b"x");
    assert!(cache.is_in_use(), "also out of the cache");
    drop(guard);
    assert!(!cache.is_in_use());
    let filling = cache.fill(b"y", 10).unwrap().into_raw();
    assert!(cache.is_in_use());
    // SAFETY: this cache's, given up above.
    drop(unsafe { cache.fill_from_raw(filling) });
    assert!(!cache.is_in_use());
}
