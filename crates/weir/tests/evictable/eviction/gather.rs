//! What pressure leaves of a cache lies on few pages.

use crate::model::Random;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use weir::{ByteCache, Entry, EvictableCache, heap, stats};

/// Words of a value.
const WORDS: usize = 80;
const ENTRIES: u64 = 30_000;

type Value = [u64; WORDS];

fn value(key: u64) -> Value {
    [key.wrapping_mul(0x9e37_79b9_7f4a_7c15); WORDS]
}

fn cache() -> EvictableCache<u64, Value> {
    EvictableCache::builder().shards(8).build().unwrap()
}

/// Bytes of the slabs that have entries with so many bytes of key and value, and of the blocks in use there. Tests that run at the
/// same time have few such blocks.
fn slabs(bytes: usize) -> (usize, usize) {
    let class = heap::block_size(Layout::from_size_align(16 + bytes, 8).unwrap());
    let stats = stats::caches().find(|cache| cache.object_bytes == class).unwrap();
    (stats.slab_bytes, stats.used * class)
}

#[test]
fn what_is_left_is_whole_and_takes_little_more_than_itself() {
    let bytes = size_of::<u64>() + size_of::<Value>();
    let cache = cache();
    (0..ENTRIES).for_each(|key| drop(cache.insert(key, value(key)).unwrap()));
    // What is held stays where it is.
    let held: Vec<Entry<'_, u64, Value>> = (0..ENTRIES).step_by(1_000).map(|key| cache.get(&key).unwrap()).collect();
    let places: Vec<*const Value> = held.iter().map(|entry| &raw const **entry).collect();
    let full = cache.bytes();
    for left in (1..10).rev() {
        cache.evict(cache.bytes() - full / 10 * left);
        heap::trim();
        let (slabs, used) = slabs(bytes);
        assert!(slabs < used / 2 * 3 + (256 << 10), "{left} tenths are left: {slabs} bytes of slabs for {used}");
        assert!(cache.iter().all(|entry| *entry == value(*entry.key())));
    }
    assert!(cache.len() > ENTRIES as usize / 11);
    let now = held.iter().map(|entry| &raw const **entry);
    assert!(now.zip(places).all(|(now, before)| now == before));
    assert!(held.iter().all(|entry| **entry == value(*entry.key())));
}

#[test]
fn entries_of_bytes_come_together_too() {
    const SIZE: usize = 1_900;
    let cache = ByteCache::builder().build().unwrap();
    for key in 0..10_000u32 {
        drop(cache.insert(&key.to_le_bytes(), &[key as u8; SIZE]).unwrap());
    }
    let full = cache.bytes();
    (0..14).for_each(|_| _ = cache.evict(full / 20));
    heap::trim();
    let class = heap::block_size(Layout::from_size_align(32 + 4 + SIZE, 8).unwrap());
    let stats = stats::caches().find(|cache| cache.object_bytes == class).unwrap();
    assert!(stats.slab_bytes < stats.used * class / 2 * 3 + (256 << 10), "{stats:?}");
    let left = (0..10_000u32).filter_map(|key| Some((key, cache.get(&key.to_le_bytes())?)));
    let left = left.inspect(|(key, entry)| assert!(entry.iter().all(|&byte| byte == *key as u8))).count();
    assert_eq!(left, cache.len());
}

/// Threads use the cache while entries move: each finds what was put in last, and what a guard shows does not change.
#[test]
fn entries_move_while_others_are_at_them() {
    let cache = EvictableCache::<u64, Box<Value>>::builder().shards(4).weigher(|_, _| 700).build().unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = Random(worker);
                    let mut held = HashMap::new();
                    for _ in 0..60_000 {
                        let key = random.below(4_000);
                        match random.below(8) {
                            0 => _ = cache.remove(&key),
                            1..4 => _ = cache.insert(key, Box::new(value(key))),
                            _ => {
                                let Some(entry) = cache.get(&key) else { continue };
                                assert_eq!(**entry, value(key));
                                held.insert(key % 16, entry);
                            }
                        }
                    }
                    assert!(held.values().all(|entry| ***entry == value(*entry.key())));
                })
            })
            .collect();
        let (cache, is_done) = (&cache, &is_done);
        let presser = scope.spawn(move || {
            loop {
                cache.evict(cache.bytes() / 4);
                cache.relieved();
                if is_done.load(SeqCst) {
                    break;
                }
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        is_done.store(true, SeqCst);
        presser.join().unwrap();
    });
    assert!(cache.iter().all(|entry| **entry == value(*entry.key())));
    assert_eq!(cache.stats().pinned, 0);
}

/// What Weir looks at is not what the program holds.
#[test]
fn what_moves_is_held_by_nobody() {
    let cache = ByteCache::builder().shards(1).build().unwrap();
    (0..20_000u32).for_each(|key| drop(cache.insert(&key.to_le_bytes(), &[1; 100]).unwrap()));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while cache.len() > 2_000 {
                cache.evict(cache.bytes() / 5);
            }
            is_done.store(true, SeqCst);
        });
        while !is_done.load(SeqCst) {
            assert!(!cache.is_in_use(), "there is no guard");
        }
    });
}
