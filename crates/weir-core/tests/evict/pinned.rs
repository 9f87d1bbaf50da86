//! Pinned entries: skipped, at a bounded cost, and in their old place when they are unpinned.

use crate::cache::{hash, policy};
use std::collections::BTreeSet;
use weir_core::evict::replacement::setting::Setting;

#[test]
fn an_unpinned_entry_is_evicted_before_those_younger() {
    let (_, mut policy) = policy(100);
    policy.set_target(0);
    (0..10).for_each(|entry| _ = policy.insert(entry, hash(entry.into()), 1));
    assert_eq!(policy.evict(|entry| entry == 0), Some(1));
    assert_eq!(policy.evict(|entry| entry == 0), Some(2));
    assert_eq!(policy.evict(|_| false), Some(0));
    assert_eq!(policy.evict(|_| false), Some(3));
}

#[test]
fn many_pinned_entries_are_not_looked_at_for_every_victim() {
    for setting in Setting::ALL {
        let (_, mut policy) = policy(4000);
        policy.set_setting(setting);
        (0..4000).for_each(|entry| _ = policy.insert(entry, hash(entry.into()), 1));
        let (mut looks, mut victims) = (0, 0);
        while victims < 2000 {
            let victim = policy.evict(|entry| {
                looks += 1;
                entry < 1000
            });
            assert!(victim.is_some_and(|victim| victim >= 1000));
            victims += 1;
        }
        assert!(
            looks <= 10 * victims + 4000,
            "{setting:?}: {looks} looks for {victims} victims past 1,000 pinned entries"
        );
    }
}

#[test]
fn nothing_goes_while_all_are_pinned_and_all_that_is_not_goes_when_some_are() {
    for setting in Setting::ALL {
        let (sightings, mut policy) = policy(200);
        policy.set_setting(setting);
        policy.set_target(200);
        for entry in 0..200 {
            policy.insert(entry, hash(entry.into()), 2);
            (0..entry % 4).for_each(|_| sightings.hit(entry, hash(entry.into())));
            assert_eq!(policy.evict(|_| true), None, "{setting:?}: a pinned entry went");
        }
        policy.set_target(0);
        let victims: BTreeSet<u32> = std::iter::from_fn(|| policy.evict(|entry| entry % 3 == 0)).collect();
        assert!(victims.into_iter().eq((0..200).filter(|entry| entry % 3 != 0)), "{setting:?}");
        assert_eq!(policy.len(), 67);
    }
}
