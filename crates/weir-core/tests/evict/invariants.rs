//! Invariants that hold whatever the owner does: random histories against a model of weights and
//! pins.

use crate::cache::{hash, policy};
use crate::model::Model;
use proptest::prelude::*;
use weir_core::evict::mix;
use weir_core::evict::replacement::setting::Setting;

const ENTRIES: u32 = 40;

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u64, usize),
    Hit(u32),
    Remove(u32),
    Weigh(u32, usize),
    Target(usize),
    Pin(u32),
    Unpin(u32),
    Run(usize),
    EvictOne,
    EvictAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = 0..ENTRIES;
    let weight = prop_oneof![8 => 1..100_usize, 1 => Just(0), 1 => 500..3000_usize];
    let step = prop_oneof![
        8 => (entry.clone(), 0..60_u64, weight.clone()).prop_map(|(e, k, w)| Step::Insert(e, k, w)),
        6 => entry.clone().prop_map(Step::Hit),
        2 => entry.clone().prop_map(Step::Remove),
        1 => (entry.clone(), weight).prop_map(|(e, w)| Step::Weigh(e, w)),
        1 => prop_oneof![0..2000_usize, Just(0), Just(usize::MAX)].prop_map(Step::Target),
        2 => entry.clone().prop_map(Step::Pin),
        2 => entry.prop_map(Step::Unpin),
        1 => (0..Setting::ALL.len()).prop_map(Step::Run),
        3 => Just(Step::EvictOne),
        3 => Just(Step::EvictAll),
    ];
    prop::collection::vec(step, 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn weights_add_up_targets_hold_and_pinned_entries_stay(steps in steps()) {
        let (sightings, mut policy) = policy(ENTRIES as usize);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Insert(entry, key, weight) => {
                    if model.held.contains_key(&entry) {
                        continue;
                    }
                    policy.insert(entry, hash(key), weight);
                    model.held.insert(entry, weight);
                }
                // Also of a number not in use: a hit may come after the eviction.
                Step::Hit(entry) => sightings.hit(entry, 7),
                Step::Remove(entry) => prop_assert_eq!(policy.remove(entry), model.held.remove(&entry).is_some()),
                Step::Weigh(entry, weight) => {
                    let is_held = model.held.get_mut(&entry).map(|held| *held = weight).is_some();
                    prop_assert_eq!(policy.set_weight(entry, weight), is_held);
                }
                Step::Target(target) => policy.set_target(target),
                Step::Pin(entry) => drop(model.pinned.insert(entry)),
                Step::Unpin(entry) => drop(model.pinned.remove(&entry)),
                Step::Run(setting) => policy.set_setting(Setting::ALL[setting]),
                Step::EvictOne => drop(model.evict(&mut policy)),
                Step::EvictAll => while model.evict(&mut policy) {},
            }
            model.check(&policy);
        }
    }

    #[test]
    fn the_same_calls_give_the_same_victims(keys in prop::collection::vec(0..200_u64, 1..1500), seed: u64) {
        let run = |seed| {
            let (sightings, mut policy) = policy(64);
            policy.set_target(50);
            policy.set_setting(Setting::Balanced);
            let mut victims = Vec::new();
            for (&key, entry) in keys.iter().zip((0..64).cycle()) {
                if policy.remove(entry) {
                    victims.push(u32::MAX);
                }
                policy.insert(entry, mix(key, seed), 1);
                sightings.hit(entry / 2, mix(key, seed));
                victims.extend(policy.evict(|_| false));
            }
            victims
        };
        prop_assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn an_entry_heavier_than_the_target_goes_at_once_or_leaves_room_for_itself() {
    for setting in Setting::ALL {
        let (_, mut policy) = policy(8);
        policy.set_target(100);
        policy.set_setting(setting);
        policy.insert(0, 1, 60);
        policy.insert(1, 2, 5000);
        while policy.evict(|_| false).is_some() {}
        assert!(policy.weight() <= 100 && !policy.iter().any(|entry| entry == 1), "{setting:?}");
    }
}

#[test]
fn a_target_of_zero_empties_and_a_higher_one_fills_again() {
    let (_, mut policy) = policy(100);
    policy.set_target(usize::MAX);
    (0..100).for_each(|entry| _ = policy.insert(entry, hash(entry.into()), 1 << 40));
    assert_eq!(policy.evict(|_| false), None);
    policy.set_target(0);
    let mut victims: Vec<u32> = std::iter::from_fn(|| policy.evict(|_| false)).collect();
    victims.sort_unstable();
    assert!(victims.into_iter().eq(0..100) && policy.is_empty());
    policy.set_target(3 << 40);
    (0..10).for_each(|entry| {
        policy.insert(entry, hash(entry.into()), 1 << 40);
        while policy.evict(|_| false).is_some() {}
    });
    assert_eq!(policy.len(), 3);
}

#[test]
#[should_panic(expected = "entry 3 is in use")]
fn a_number_in_use_is_refused() {
    let (_, mut policy) = policy(8);
    policy.insert(3, 1, 1);
    policy.insert(3, 2, 1);
}
