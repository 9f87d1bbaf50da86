//! Many threads at once.

use crate::counted::{Count, Counted};
use crate::model::Random;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use weir::EvictableCache;

const MAX: usize = 20_000;

#[test]
fn threads_that_do_all_at_once_find_true_values_and_leave_none_behind() {
    let live = Count::default();
    let cache = EvictableCache::<u64, Counted>::builder()
        .max_bytes(MAX)
        .shards(4)
        .weigher(|key, _| 10 + *key as usize % 90)
        .on_evict(|key, value, _| assert_eq!(*key, value.check() >> 32))
        .build()
        .unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|worker| {
                let (cache, live) = (&cache, &live);
                scope.spawn(move || work(cache, live, worker))
            })
            .collect();
        let (cache, is_done) = (&cache, &is_done);
        let presser = scope.spawn(move || {
            // Once at least, also where the others are done before this thread begins.
            loop {
                cache.evict(MAX / 3);
                assert!(cache.bytes() <= MAX);
                thread::yield_now();
                cache.relieved();
                cache.stats();
                if is_done.load(SeqCst) {
                    break;
                }
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        is_done.store(true, SeqCst);
        presser.join().unwrap();
    });
    let stats = cache.stats();
    assert_eq!(live.get(), stats.entries as isize);
    let out = stats.evicted_for_room + stats.evicted_for_pressure + stats.removed + stats.replaced;
    assert_eq!(stats.insertions, out + stats.entries as u64);
    assert!(stats.hits > 1_000 && stats.evicted_for_pressure > 0, "{stats:?}");
    cache.clear();
    assert_eq!((cache.len(), cache.bytes(), live.get()), (0, 0, 0));
}

fn work(cache: &EvictableCache<u64, Counted>, live: &Count, worker: u64) {
    let mut random = Random(worker);
    let mut guards = Vec::new();
    for step in 0..15_000u64 {
        // Squared, so that some keys are hot.
        let key = random.below(30) * random.below(30);
        let number = key << 32 | worker << 24 | step;
        match random.below(10) {
            0..5 => {
                if let Some(found) = cache.get(&key) {
                    assert_eq!(found.check() >> 32, key);
                    guards.push(found);
                }
            }
            5..7 => {
                let found = cache.get_or_insert_with(key, || live.make(number));
                assert_eq!(found.check() >> 32, key);
            }
            7..9 => drop(cache.insert(key, live.make(number))),
            _ => drop(cache.remove(&key)),
        }
        if guards.len() > 8 {
            let guard = guards.swap_remove(random.below(guards.len() as u64) as usize);
            assert_eq!(guard.check() >> 32, *guard.key());
        }
    }
}
