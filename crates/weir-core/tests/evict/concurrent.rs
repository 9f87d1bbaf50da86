//! Hits take no lock: they come from other threads while entries are inserted and evicted.

use crate::cache::{hash, policy};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn hits_from_other_threads_spoil_nothing_and_never_hold_up_eviction() {
    let (sightings, mut policy) = policy(1001);
    policy.set_target(1000);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..3_u32 {
            let is_over = &is_over;
            scope.spawn(move || {
                // All entries over and over: each search for a victim meets counters that rise again.
                while !is_over.load(Relaxed) {
                    (0..1001).for_each(|step| sightings.hit((first * 300 + step) % 1001, hash(u64::from(step))));
                }
            });
        }
        let mut free: Vec<u32> = (0..1001).collect();
        for key in 0..50_000 {
            policy.insert(free.pop().expect("a victim for each insertion"), hash(key), 1);
            free.extend(policy.evict(|_| false));
        }
        is_over.store(true, Relaxed);
    });
    let mut listed: Vec<u32> = policy.iter().collect();
    listed.sort_unstable();
    listed.dedup();
    assert_eq!((listed.len(), policy.len(), policy.weight()), (1000, 1000, 1000));
}
