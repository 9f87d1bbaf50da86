//! Random calls against a map. A hit is the value last put in, the weight is never above the bound, pinned values live,
//! and every value is dropped once.

use crate::counted::{Count, Counted};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use weir::{Entry, EvictableCache, RemovalCause};

/// A generator (Knuth's factors); the high bits are used.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

/// Hashes to so many numbers.
#[derive(Clone, Copy)]
pub struct Colliding(pub u64);

pub struct Weak(u64, u64);

impl Hasher for Weak {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key % self.1;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

impl BuildHasher for Colliding {
    type Hasher = Weak;
    fn build_hasher(&self) -> Weak {
        Weak(0, self.0)
    }
}

const MAX: usize = 5_000;

fn run(seed: u64, shards: usize, hashes: u64) {
    let live = Count::default();
    let told = Arc::new(AtomicU64::new(0));
    let causes = Arc::new(Mutex::new(HashMap::<RemovalCause, u64>::new()));
    let (heard, by_cause) = (told.clone(), causes.clone());
    let cache = EvictableCache::<u64, Counted>::builder()
        .max_bytes(MAX)
        .shards(shards)
        .weigher(|_, value| 1 + value.number as usize % 100)
        .on_evict(move |key, value, cause| {
            assert_eq!(*key, value.check() >> 32);
            heard.fetch_add(1, SeqCst);
            *by_cause.lock().unwrap().entry(cause).or_default() += 1;
        })
        .hasher(Colliding(hashes))
        .build()
        .unwrap();
    let mut random = Random(seed);
    // What was last put in, and whether it may be there: an eviction may take it at any time.
    let mut model: HashMap<u64, u64> = HashMap::new();
    let mut pinned: Vec<(Entry<'_, u64, Counted>, u64)> = Vec::new();
    let mut put = 0;
    for step in 0..8_000u64 {
        let key = random.below(400);
        match random.below(20) {
            0..8 => match cache.get(&key) {
                Some(found) => assert_eq!(Some(&found.check()), model.get(&key), "key {key}, step {step}"),
                None => drop(model.remove(&key)),
            },
            8..14 => {
                let number = key << 32 | step;
                match cache.insert(key, live.make(number)) {
                    Ok(entry) => {
                        assert_eq!((entry.check(), *entry.key()), (number, key));
                        model.insert(key, number);
                        put += 1;
                        if pinned.len() < 20 && random.below(8) == 0 {
                            pinned.push((entry, number));
                        }
                    }
                    Err(why) => assert_eq!(why.value.check(), number, "{why}"),
                }
            }
            14 => {
                let was_there = cache.contains(&key);
                assert_eq!(cache.remove(&key), was_there);
                assert!(!cache.contains(&key));
                model.remove(&key);
            }
            15..17 if !pinned.is_empty() => {
                let (entry, number) = pinned.swap_remove(random.below(pinned.len() as u64) as usize);
                assert_eq!(entry.check(), number);
            }
            17 if random.below(40) == 0 => {
                let before = cache.bytes();
                let freed = cache.evict(before / 2);
                assert_eq!(before - cache.bytes(), freed);
                cache.relieved();
            }
            18 if random.below(200) == 0 => {
                cache.clear();
                assert_eq!((cache.len(), cache.bytes()), (0, 0));
                model.clear();
            }
            _ => {}
        }
        assert!(cache.bytes() <= MAX, "{} bytes at step {step}", cache.bytes());
        assert!(cache.stats().pinned <= pinned.len());
        pinned.iter().for_each(|(entry, number)| assert_eq!(entry.check(), *number));
    }
    assert!(put > 1_000);
    let held: usize = model.keys().filter(|key| cache.contains(*key)).count();
    assert_eq!(cache.len(), held, "no key is there that was not put in");
    drop(pinned);
    assert_eq!(live.get(), held as isize, "what is not in the cache is dropped");
    let stats = cache.stats();
    assert_eq!(stats.pinned, 0);
    let out = stats.evicted_for_room + stats.evicted_for_pressure + stats.removed + stats.replaced;
    assert_eq!(stats.insertions, out + held as u64);
    assert_eq!(told.load(SeqCst), out + stats.rejected);
    let causes = causes.lock().unwrap().clone();
    let told_of = |cause| causes.get(&cause).copied().unwrap_or(0);
    assert_eq!(
        [
            told_of(RemovalCause::Room),
            told_of(RemovalCause::Pressure),
            told_of(RemovalCause::Removed),
            told_of(RemovalCause::Replaced)
        ],
        [stats.evicted_for_room, stats.evicted_for_pressure, stats.removed, stats.replaced]
    );
    drop(cache);
    assert_eq!(live.get(), 0, "the end of a cache drops the rest");
}

#[test]
fn random_calls_agree_with_a_map() {
    for seed in 0..6 {
        run(seed, 1, u64::MAX);
        run(seed + 100, 4, u64::MAX);
    }
}

#[test]
fn keys_that_all_collide_are_told_apart() {
    run(7, 2, 1);
    run(8, 1, 3);
}

/// All keys of any kind have one hash.
#[derive(Clone, Copy)]
pub struct Constant;

pub struct One;

impl Hasher for One {
    fn write(&mut self, _: &[u8]) {}
    fn finish(&self) -> u64 {
        1
    }
}

impl BuildHasher for Constant {
    type Hasher = One;
    fn build_hasher(&self) -> One {
        One
    }
}
