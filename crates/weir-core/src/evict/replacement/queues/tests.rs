//! How the search for a victim is bounded, how a cache fills, and what storage it uses.

use super::*;
use crate::evict::mix;
use crate::evict::replacement::slot::MOST_HITS;
use crate::evict::replacement::{Policy, Sightings};
use core::sync::atomic::{AtomicU8, AtomicU64};

/// Queues of that many entries, all hit as often as can be counted.
fn hot(entries: u32, setting: Setting, test: impl FnOnce(&mut Queues)) {
    let slots: Vec<Slot> = (0..entries + 1).map(|_| Slot::new()).collect();
    let counts: Vec<AtomicU8> = (0..entries + 1).map(|_| AtomicU8::new(0)).collect();
    let mut ghost = vec![0; 64];
    let mut queues = Queues::new(&slots, Hits::new(&counts), &mut ghost);
    queues.set_setting(setting);
    queues.set_target(entries as usize);
    for entry in 0..entries {
        queues.insert(entry, mix(entry.into(), 1), 1);
    }
    (0..entries).for_each(|entry| queues.hits.set(entry, MOST_HITS));
    test(&mut queues);
}

#[test]
fn one_search_moves_few_entries_where_all_were_hit() {
    for setting in Setting::ALL {
        hot(5_000, setting, |queues| {
            let victim = queues.evict(&Sketch::new(&[]), 1, |entry| entry % 2 == 0).unwrap();
            assert!(victim % 2 == 1, "{victim} is pinned");
            let moved = (0..5_000).filter(|&entry| queues.hits.get(entry) < MOST_HITS).count();
            assert!(moved <= MOST_MOVES as usize, "{setting:?}: {moved}");
            assert_eq!(queues.len(), 4_999);
        });
    }
}

#[test]
fn a_change_of_setting_moves_few_entries_at_once() {
    for setting in Setting::ALL {
        hot(5_000, Setting::Balanced, |queues| {
            let small = queues.small.len();
            queues.set_setting(setting);
            queues.evict(&Sketch::new(&[]), 1, |_| false);
            assert!(queues.small.len() + MOST_MOVES as usize + 1 >= small, "{setting:?}");
        });
    }
}

#[test]
fn a_cache_that_fills_has_its_main_queue_before_the_first_eviction() {
    hot(5_000, Setting::Balanced, |queues| {
        assert!(queues.small.len() <= 5_000 / 15, "{} are small", queues.small.len());
    });
}

#[test]
fn storage_in_use_follows_the_number_of_entries() {
    let slots: Vec<Slot> = (0..4096).map(|_| Slot::new()).collect();
    let counts: Vec<AtomicU8> = (0..4096).map(|_| AtomicU8::new(0)).collect();
    let words: Vec<AtomicU64> = (0..4 * 4096).map(|_| AtomicU64::new(0)).collect();
    let mut ghost = vec![0; 2 * 4096];
    let sightings = Sightings::new(&slots, &counts, &words);
    let mut policy = Policy::new(&sightings, &mut ghost);
    policy.set_target(usize::MAX);
    (0..4096).for_each(|entry| _ = policy.insert(entry, mix(entry.into(), 11), 1));
    let used = |policy: &Policy<'_>| (sightings.sketch.used(), policy.queues.ghost.used);
    let full = used(&policy);
    assert!(full.0 >= 2 * 4096 && full.1 >= 4096, "{full:?}");
    policy.set_target(100);
    while policy.evict(|_| false).is_some() {}
    policy.insert(4000, 1, 1);
    let few = used(&policy);
    assert!(few.0 <= full.0 / 4 && few.1 <= full.1 / 4, "{few:?}");
}
