//! Write-backs that fail, panic or wait for themselves: the entry stays dirty, and nobody waits for ever.

use super::write_back::{Store, Value, builder, later, put};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use weir::{DirtyEntry, EvictableCache, WriteBackError};
use weir_testing::wait_until;

#[test]
fn a_clean_value_in_place_of_one_whose_write_back_fails_is_dirty() {
    let (cache, entries) = later(700);
    put(&cache, 1, 1);
    let first = entries.try_iter().next().unwrap();
    drop(cache.insert(1, Value::new(2)).unwrap());
    assert_eq!(cache.stats().dirty_entries, 0);
    first.failed();
    assert_eq!(cache.stats().dirty_entries, 1);
    cache.discard(&1);
}

#[test]
fn a_failure_keeps_the_entry_and_is_reported() {
    let fails = Arc::new(AtomicBool::new(true));
    let (store, is_failing) = (Store::default(), fails.clone());
    let to = store.clone();
    let cache = builder()
        .write_back(move |batch| {
            for entry in batch {
                match is_failing.load(SeqCst) {
                    // Every second one says so; the others are just dropped.
                    true if entry.key() % 2 == 0 => entry.failed(),
                    true => drop(entry),
                    false => {
                        to.lock().unwrap().insert(*entry.key(), entry.load(SeqCst));
                        entry.written();
                    }
                }
            }
        })
        .build()
        .unwrap();
    (0..5).for_each(|key| put(&cache, key, key));
    let Err(WriteBackError { failures }) = cache.flush() else { panic!("it fails") };
    assert!(failures >= 5);
    assert_eq!((cache.evict(usize::MAX), cache.len(), cache.stats().dirty_entries), (0, 5, 5));
    assert!(!cache.remove(&1) && cache.contains(&1));
    fails.store(false, SeqCst);
    cache.flush().unwrap();
    assert_eq!(store.lock().unwrap().len(), 5);
}

#[test]
fn a_callback_that_waits_for_itself_or_panics_is_noticed() {
    static CACHE: OnceLock<EvictableCache<u64, Value>> = OnceLock::new();
    let turns = AtomicUsize::new(0);
    let cache = CACHE.get_or_init(|| {
        let cache = builder().write_back(move |batch| match turns.fetch_add(1, SeqCst) {
            0 => CACHE.get().unwrap().flush().unwrap(),
            1 => panic!("on purpose"),
            _ => batch.for_each(DirtyEntry::written),
        });
        cache.build().unwrap()
    });
    let entry = cache.insert(1, Value::new(1)).unwrap();
    assert!(entry.mark_dirty(), "little is dirty, so the callback is not called yet");
    let said = catch_unwind(|| cache.flush());
    let said = *said.unwrap_err().downcast::<&str>().unwrap();
    assert!(said.contains("waits for what it is called for"), "{said}");
    assert!(catch_unwind(|| cache.flush()).is_err());
    assert_eq!((cache.stats().dirty_entries, cache.stats().writing), (1, 0), "both panics lost nothing");
    cache.flush().unwrap();
    assert_eq!(cache.stats().dirty_entries, 0);
    // Without a callback nothing can be dirty.
    let plain = EvictableCache::<u64, u64>::builder().build().unwrap();
    let entry = plain.insert(1, 1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| entry.mark_dirty())).is_err());
    drop(entry);
}

#[test]
fn a_value_that_panics_as_its_write_back_ends_keeps_no_one_waiting() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let (send, entries) = mpsc::channel();
    let send = Mutex::new(send);
    let cache = EvictableCache::<u64, Option<Panics>>::builder()
        .weigher(|_, _| 100)
        .max_bytes(700)
        .write_back(move |batch| batch.for_each(|entry| drop(send.lock().unwrap().send(entry))))
        .build()
        .unwrap();
    assert!(cache.insert(1, Some(Panics)).unwrap().mark_dirty());
    let entry = entries.try_iter().next().unwrap();
    // The handle holds the value alone now.
    drop(cache.insert(1, None).unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| entry.written())).is_err());
    let writing = cache.stats().writing;
    if writing != 0 {
        std::mem::forget(cache);
        panic!("{writing} handles are counted, and none is out: the end of the cache would wait for ever");
    }
    cache.flush().unwrap();
}

#[test]
fn a_removal_fails_by_the_write_back_of_its_own_entry_alone() {
    for is_written in [true, false] {
        let (cache, entries) = later(700);
        put(&cache, 1, 1);
        put(&cache, 2, 2);
        let mut handles: Vec<_> = entries.try_iter().collect();
        handles.sort_by_key(|entry| *entry.key());
        let [first, second] = <[_; 2]>::try_from(handles).unwrap();
        thread::scope(|scope| {
            let removal = scope.spawn(|| cache.remove(&1));
            // It holds the entry while it waits.
            wait_until("the removal to hold its entry", || cache.stats().pinned > 0);
            second.failed();
            if is_written {
                first.written()
            } else {
                first.failed()
            }
            // What failed is handed out no more, but for the end of the cache.
            assert_eq!(removal.join().unwrap(), is_written);
        });
        assert_eq!(cache.contains(&1), !is_written);
        cache.discard(&1);
        cache.discard(&2);
    }
}
