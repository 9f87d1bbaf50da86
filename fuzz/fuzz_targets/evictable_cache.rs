//! The policy of evictable caches against a model of weights and pins. An entry goes only above the target, and never
//! while it is pinned. Weights add up, each entry is in one queue, and the duel's choice is one of the settings.

#![no_main]

#[path = "../../crates/weir-core/tests/evict/model.rs"]
mod model;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use model::Model;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU8, AtomicU64};
use weir_core::evict::mix;
use weir_core::evict::replacement::duel::{Duel, DuelStorage, Held};
use weir_core::evict::replacement::favour::Favour;
use weir_core::evict::replacement::setting::Setting;
use weir_core::evict::replacement::slot::Slot;
use weir_core::evict::replacement::{Policy, Sightings};
use weir_core::evict::weight::Weight;

/// Steps of a history at most.
const STEPS: usize = 600;

fuzz_target!(|data: &[u8]| {
    // It ends where the input does.
    let _ = history(&mut Unstructured::new(data));
});

fn history(u: &mut Unstructured) -> Result<()> {
    let entries = u.int_in_range(1..=80u32)?;
    let slots: Vec<Slot> = (0..entries).map(|_| Slot::default()).collect();
    let hits: Vec<AtomicU8> = (0..entries).map(|_| AtomicU8::new(0)).collect();
    let sketch: Vec<AtomicU64> = (0..4 * entries.max(2)).map(|_| AtomicU64::new(0)).collect();
    let mut ghost = vec![0; 2 * entries.max(4) as usize];
    let sightings = Sightings::new(&slots, &hits, &sketch);
    let mut policy = Policy::new(&sightings, &mut ghost);
    let mut storage = Box::new(DuelStorage::empty());
    let favour = if u.ratio(1, 4)? { Favour::Bytes } else { Favour::Entries };
    let mut duel = Duel::new(&mut storage, favour);
    policy.set_favour(favour);
    let mut model = Model::default();
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let entry = u.int_in_range(0..=entries - 1)?;
        match u.int_in_range(0..=14u8)? {
            0..=4 => {
                let (key, weight) = (u.int_in_range(0..=120u64)?, weight(u)?);
                let held = Held { entries: policy.len(), weight: policy.weight(), target: policy.target() };
                if duel.access(mix(key, 12), weight, held) {
                    assert!(Setting::ALL.contains(&duel.setting()));
                    policy.set_setting(duel.setting());
                }
                let is_refused = u.ratio(1, 2)? && policy.refuses(mix(key, 11), weight);
                assert!(!is_refused || favour == Favour::Entries && weight > policy.weight() / policy.len());
                if let Entry::Vacant(place) = model.held.entry(entry)
                    && !is_refused
                {
                    policy.insert(entry, mix(key, 11), weight);
                    place.insert(Weight::of(weight).bytes());
                }
            }
            // Also of a number not in use: a hit may come after the eviction.
            5 | 6 => sightings.hit(entry, mix(u.int_in_range(0..=120u64)?, 11)),
            7 => assert_eq!(policy.remove(entry), model.held.remove(&entry).is_some()),
            8 => {
                let weight = weight(u)?;
                let is_held = model.held.get_mut(&entry).map(|held| *held = Weight::of(weight).bytes()).is_some();
                assert_eq!(policy.set_weight(entry, weight), is_held);
            }
            9 => policy.set_target(if u.ratio(1, 8)? { usize::MAX } else { u.int_in_range(0..=3000)? }),
            10 => drop(model.pinned.insert(entry)),
            11 => drop(model.pinned.remove(&entry)),
            12 => policy.set_setting(Setting::ALL[u.choose_index(Setting::ALL.len())?]),
            13 => drop(model.evict(&mut policy)),
            _ => while model.evict(&mut policy) {},
        }
        model.check(&policy);
    }
    // Nothing is pinned any more: all of it goes, each entry once.
    model.pinned.clear();
    model.held.keys().for_each(|&entry| assert!(policy.set_weight(entry, 1)));
    model.held.values_mut().for_each(|weight| *weight = 1);
    policy.set_target(0);
    while model.evict(&mut policy) {}
    assert!(policy.is_empty() && model.held.is_empty());
    Ok(())
}

/// Weights that do not overflow a sum of 80.
fn weight(u: &mut Unstructured) -> Result<usize> {
    Ok(match u.int_in_range(0..=9u8)? {
        0 => 0,
        1 => u.int_in_range(500..=3000)?,
        2 => u.int_in_range(0..=1 << 50)?,
        _ => u.int_in_range(1..=99)?,
    })
}

fn drop<T>(_: T) {}
