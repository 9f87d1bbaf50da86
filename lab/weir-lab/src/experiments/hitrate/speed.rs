//! What one thread pays for a hit, and for an insertion that evicts; and what several do at once.

use super::cache::Cache;
use super::caches::SUBJECTS;
use super::traces::Zipf;
use crate::harness::random::Random;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds an operation, in the order of [`SUBJECTS`].
pub struct Costs {
    /// What is done.
    pub what: &'static str,
    /// A sample per cache.
    pub samples: Vec<Sample>,
}

pub(super) fn measure(is_quick: bool, runs: u32) -> Vec<Costs> {
    let (entries, operations) = if is_quick { (2_000, 20_000) } else { (100_000, 2_000_000) };
    // Half the entries, so that none of the keys is evicted.
    let zipf = Zipf::new(0.99, entries / 2);
    let mut random = Random(7);
    let keys: Vec<u64> = (0..operations).map(|_| zipf.rank(&mut random)).collect();
    let empty = |what| Costs { what, samples: SUBJECTS.iter().map(|_| Sample::default()).collect() };
    let (mut hit, mut insertion) = (empty("get that hits"), empty("insert that evicts"));
    for (_, chosen) in rounds::of(runs, SUBJECTS.len()) {
        (SUBJECTS[chosen].with)(entries, &mut |cache| {
            (0..entries as u64 / 2).for_each(|key| cache.insert(key, key));
            hit.samples[chosen].push(time(operations, || gets(cache, &keys)));
            (0..entries as u64).for_each(|key| cache.insert((1 << 40) + key, key));
            insertion.samples[chosen].push(time(operations, || inserts(cache, operations as u64)));
        });
    }
    vec![hit, insertion]
}

/// Threads that use a cache at once.
const THREADS: [usize; 3] = [1, 2, 16];

/// Operations a second of all threads, in millions, for each number of threads.
pub struct Throughput {
    /// The threads.
    pub threads: usize,
    /// A sample per cache.
    pub samples: Vec<Sample>,
}

/// Each thread gets keys by Zipf 0.99 of twice as many as the cache holds, and inserts those that it misses.
pub(super) fn throughput(is_quick: bool, runs: u32) -> Vec<Throughput> {
    let (entries, operations) = if is_quick { (5_000, 20_000) } else { (100_000, 2_000_000) };
    let zipf = Zipf::new(0.99, 2 * entries);
    let empty = |threads| Throughput { threads, samples: SUBJECTS.iter().map(|_| Sample::default()).collect() };
    let mut all = THREADS.map(empty);
    for (_, chosen) in rounds::of(runs, SUBJECTS.len()) {
        for Throughput { threads, samples } in &mut all {
            let keys: Vec<Vec<u64>> = (0..*threads).map(|thread| drawn(&zipf, thread, operations / *threads)).collect();
            (SUBJECTS[chosen].with)(entries, &mut |cache| {
                (0..entries as u64).for_each(|key| cache.insert(key, key));
                let took = time(operations, || {
                    std::thread::scope(|scope| {
                        for keys in &keys {
                            scope.spawn(|| uses(cache, keys));
                        }
                    });
                });
                samples[chosen].push(1e3 / took);
            });
        }
    }
    all.into()
}

fn drawn(zipf: &Zipf, seed: usize, count: usize) -> Vec<u64> {
    let mut random = Random(seed as u64 + 1);
    (0..count).map(|_| zipf.rank(&mut random)).collect()
}

fn uses(cache: &dyn Cache, keys: &[u64]) {
    for &key in keys {
        if black_box(cache.get(key)).is_none() {
            cache.insert(key, key);
        }
    }
}

fn gets(cache: &dyn Cache, keys: &[u64]) {
    for &key in keys {
        black_box(cache.get(key));
    }
}

fn inserts(cache: &dyn Cache, operations: u64) {
    (0..operations).for_each(|key| cache.insert((1 << 41) + key, key));
}

fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1e9 / operations as f64
}

pub(super) fn throughput_as_json(all: &[Throughput]) -> Value {
    let one = |row: &Throughput| {
        let samples: serde_json::Map<_, _> =
            SUBJECTS.iter().zip(&row.samples).map(|(subject, sample)| (subject.name.into(), sample.json())).collect();
        json!({ "threads": row.threads, "million_operations_a_second": samples })
    };
    all.iter().map(one).collect()
}

pub(super) fn as_json(costs: &[Costs]) -> Value {
    let one = |costs: &Costs| {
        let samples: serde_json::Map<_, _> =
            SUBJECTS.iter().zip(&costs.samples).map(|(subject, sample)| (subject.name.into(), sample.json())).collect();
        json!({ "what": costs.what, "ns": samples })
    };
    costs.iter().map(one).collect()
}
