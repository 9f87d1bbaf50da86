//! Weir's evictable caches against other caches, at equal numbers of entries. The hit rates are over traces made from seeds and
//! over those given (--trace FILE). What a hit and an insertion cost is measured as well, and what several threads do at once.
//!
//! Sizes are 1, 5 and 20 % of the keys of a trace. `moka` as it comes holds more than its size until its maintenance runs; `moka
//! held` runs it after each insertion. The best peer is the best that keeps to its size. Costs: keys by Zipf 0.99. The throughput
//! is that of twice as many keys as the cache holds, where what is missed is inserted. The option --only takes the traces that it
//! makes. Those of values that weigh differently (`-sizes` and others) have tables of their own, by the share of the look-ups that
//! find their key and of the bytes that are found, at 1, 5 and 20 % of all bytes. Last comes what an entry takes in memory.

#[path = "../../../cache_load/caches.rs"]
mod caches;
mod traces;

use crate::harness::prelude::*;
use caches::{Cache, KINDS};
use std::collections::HashSet;
use std::hint::black_box;
use traces::{MADE, Trace, WEIGHTED};

const SHARES: [f64; 3] = [0.01, 0.05, 0.2];
const FEWEST: usize = 64;
/// Points that Weir may be behind.
const ALLOWED: f64 = 0.5;
const THREADS: [usize; 3] = [1, 2, 16];
const FOOTPRINT_LIMIT_S: u64 = 120;
/// The caches that know weights; Weir's by both of what it can favour.
const WEIGHING: [&str; 7] = ["weir", "weir bytes", "quick_cache", "foyer s3fifo", "foyer lfu", "moka held", "moka"];

pub fn run(lab: &mut Lab) -> Result<()> {
    let names: Vec<&str> = MADE.map(|made| made.0).into_iter().chain(WEIGHTED.map(|made| made.0)).collect();
    let names = lab.chosen(&names)?;
    let (weighted, even): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| WEIGHTED.iter().any(|made| made.0 == *name));
    by_weight(lab, &weighted)?;
    let mut all = even.into_iter().map(|name| traces::make(name, lab.args.quick)).collect::<Vec<_>>();
    all.extend(lab.args.trace.iter().map(|path| traces::read(path)).collect::<Result<Vec<_>>>()?);
    if all.is_empty() {
        return Ok(());
    }
    let mut grids = Vec::new();
    for trace in &all {
        eprintln!("hitrate, {}: {} accesses", trace.name, trace.keys.len());
        let different = trace.keys.iter().collect::<HashSet<_>>().len();
        let mut sizes: Vec<usize> =
            SHARES.iter().map(|share| ((different as f64 * share) as usize).max(FEWEST)).collect();
        sizes.dedup();
        grids.push((trace, sizes));
    }
    let cases: Vec<(&Trace, usize)> =
        grids.iter().flat_map(|(trace, sizes)| sizes.iter().map(move |size| (*trace, *size))).collect();
    let labels: Vec<String> = cases.iter().map(|(trace, size)| format!("{}, {size}", trace.name)).collect();
    let grid = Grid::measure(
        vec![told("hit rate, %"), told("most held, % of the size")],
        1,
        &labels,
        &KINDS,
        |label, kind| {
            let (trace, entries) = cases[labels.iter().position(|of| of == label).unwrap_or(0)];
            let (cache, mut hits, mut most) = (make(kind, entries)?, 0, 0);
            for part in trace.keys.chunks(trace.keys.len().div_ceil(16)) {
                hits += part.iter().filter(|&&key| is_hit(&*cache, key)).count();
                most = most.max(cache.held());
            }
            Ok(vec![100.0 * hits as f64 / trace.keys.len() as f64, 100.0 * most as f64 / entries as f64])
        },
    );
    println!("{}", grid.by_measure(None));
    lab.keep(&grid);
    let keep_to_size: Vec<usize> = (1..KINDS.len()).filter(|&at| KINDS[at] != "moka").collect();
    verdict(&grid, "the best peer that keeps to its size", &keep_to_size);
    verdict(&grid, "the best peer, moka as it comes among them", &(1..KINDS.len()).collect::<Vec<_>>());
    costs(lab);
    footprint(lab);
    Ok(())
}

/// The traces of values that weigh differently.
fn by_weight(lab: &mut Lab, names: &[&str]) -> Result<()> {
    let traces: Vec<Trace> = names.iter().map(|name| traces::make(name, lab.args.quick)).collect();
    let cases: Vec<(usize, f64)> = (0..traces.len()).flat_map(|at| SHARES.map(|share| (at, share))).collect();
    let labels: Vec<String> =
        cases.iter().map(|&(at, share)| format!("{}, {} %", traces[at].name, 100.0 * share)).collect();
    let measures = vec![told("hit rate, %"), told("of bytes, %"), told("most held, % of the size")];
    let grid = Grid::measure(measures, 1, &labels, &WEIGHING, |label, kind| {
        let (at, share) = cases[labels.iter().position(|of| of == label).unwrap_or(0)];
        let Trace { keys, weigh, .. } = &traces[at];
        let different: HashSet<u64> = keys.iter().copied().collect();
        let all: u64 = different.iter().map(|&key| weigh(key)).sum();
        let size = (all as f64 * share) as u64;
        let cache = caches::make::<u64>(kind, Some(size), all / different.len() as u64, |value| *value as usize)?;
        let (mut hits, mut found, mut asked, mut most) = (0, 0, 0, 0);
        for part in keys.chunks(keys.len().div_ceil(16)) {
            for &key in part {
                let weight = weigh(key);
                asked += weight;
                match black_box(cache.get(key)) {
                    Some(_) => (hits, found) = (hits + 1, found + weight),
                    None => cache.insert(key, weight),
                }
            }
            most = most.max(cache.held());
        }
        let percent = |of: u64, all: u64| 100.0 * of as f64 / all as f64;
        Ok(vec![percent(hits, keys.len() as u64), percent(found, asked), percent(most, size)])
    });
    if !names.is_empty() {
        println!("{}", grid.by_measure(None));
        means(&grid);
        lab.keep(&grid);
    }
    Ok(())
}

/// The mean of each measure over all cases, but the last one's.
fn means(grid: &Grid) {
    for (measure, of) in grid.measures.iter().enumerate().take(2) {
        let mean = |subject: usize| {
            let rates: Vec<f64> =
                (0..grid.cases.len()).map(|case| grid.sample(case, subject, measure).median()).collect();
            rates.iter().sum::<f64>() / rates.len() as f64
        };
        let means: Vec<String> =
            grid.subjects.iter().enumerate().map(|(at, name)| format!("{name} {:.2}", mean(at))).collect();
        println!("Mean {}: {}.\n", of.name, means.join(", "));
    }
}

fn make(kind: &str, entries: usize) -> Result<Box<dyn Cache<u64>>> {
    caches::make(kind, Some(entries as u64), 1, |_| 1)
}

fn is_hit(cache: &dyn Cache<u64>, key: u64) -> bool {
    let is_hit = black_box(cache.get(key)).is_some();
    if !is_hit {
        cache.insert(key, key);
    }
    is_hit
}

/// Weir's rate less that of the best of some peers, row by row.
fn differences(grid: &Grid, peers: &[usize]) -> Vec<f64> {
    let rate = |case: usize, subject: usize| grid.sample(case, subject, 0).median();
    let best = |case: usize| peers.iter().map(|&peer| rate(case, peer)).fold(f64::NAN, f64::max);
    (0..grid.cases.len()).map(|case| rate(case, 0) - best(case)).collect()
}

fn verdict(grid: &Grid, whom: &str, peers: &[usize]) {
    let differences = differences(grid, peers);
    let within = differences.iter().filter(|&&difference| difference >= -ALLOWED).count();
    let above = differences.iter().filter(|&&difference| difference > 0.0).count();
    let worst = differences.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "Against {whom}: within {ALLOWED} points or better in {within} of {} rows, better in {above}; at worst {}.\n",
        differences.len(),
        short(worst)
    );
}

/// Costs of one thread, and of several.
fn costs(lab: &mut Lab) {
    let (entries, operations) = lab.pick((100_000, 2_000_000), (5_000, 20_000));
    let drawn = |zipf: &Zipf, seed: usize, count: usize| {
        let mut random = Random::new(seed as u64, 7);
        (0..count).map(|_| zipf.rank(&mut random)).collect::<Vec<u64>>()
    };
    let (of_hits, of_threads) = (Zipf::new(0.99, entries / 2), Zipf::new(0.99, 2 * entries));
    let keys = drawn(&of_hits, 0, operations);
    let threads = THREADS.map(|threads| more(format!("million operations/s, {threads} thread(s)")));
    let measures = [less("a hit, ns"), less("an insertion that evicts, ns")].into_iter().chain(threads).collect();
    lab.args.subject = "weir".into();
    lab.by_case(measures, &[format!("Costs, of {entries} entries")], &KINDS, |_, kind| {
        let cache = make(kind, entries)?;
        (0..entries as u64 / 2).for_each(|key| cache.insert(key, key));
        let hit = time(operations, || keys.iter().for_each(|key| _ = black_box(cache.get(*key))));
        (0..entries as u64).for_each(|key| cache.insert((1 << 40) + key, key));
        let insert = time(operations, || (0..operations as u64).for_each(|key| cache.insert((1 << 41) + key, key)));
        let mut figures = vec![hit, insert];
        for threads in THREADS {
            let keys: Vec<Vec<u64>> =
                (0..threads).map(|thread| drawn(&of_threads, thread + 1, operations / threads)).collect();
            let cache = make(kind, entries)?;
            let cache = &*cache;
            (0..entries as u64).for_each(|key| cache.insert(key, key));
            let took = time(operations, || {
                std::thread::scope(|scope| {
                    keys.iter()
                        .for_each(|keys| _ = scope.spawn(|| keys.iter().for_each(|&key| _ = is_hit(cache, key))));
                });
            });
            figures.push(1e3 / took);
        }
        Ok(figures)
    });
}

/// What an entry takes, in a program of its own for each cache.
fn footprint(lab: &mut Lab) {
    let entries = lab.pick(1_000_000, 20_000);
    let cases = ["in", "behind"].map(|value| (value, format!("entries={entries}")));
    let labels = cases.each_ref().map(|(value, _)| match *value {
        "in" => format!("{entries} keys of 8 bytes with values of 100"),
        _ => format!("{entries} keys of 8 bytes with values of 100 behind an Arc"),
    });
    let measures = vec![less("bytes resident an entry")];
    lab.by_case(measures, &labels, &KINDS, |label, kind| {
        let (value, entries) = &cases[labels.iter().position(|of| of == label).unwrap_or(0)];
        let mut command = Command::new(beside("weir-lab-cache")?);
        command.args(["footprint", &format!("cache={kind}"), entries, &format!("value={value}")]);
        Ok(vec![number(&told_by(command, FOOTPRINT_LIMIT_S, "the program that fills a cache")?, "bytes")?])
    });
}

fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1e9 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cache_returns_what_was_put_in_and_keeps_to_its_size() {
        for kind in KINDS {
            let cache = make(kind, 200).unwrap();
            assert!(!is_hit(&*cache, 1) && cache.get(1) == Some(1), "{kind}");
            (2..5_000).for_each(|key| cache.insert(key, key));
            let held = cache.held();
            assert!(held > 100 && (held <= 200 || kind == "moka"), "{kind} holds {held}");
        }
        assert!(make("none", 200).is_err());
    }

    #[test]
    fn the_best_peer_is_none_that_is_left_out() {
        let rates = [5.0, 1.0, 6.0, 2.0, 3.0, 4.0, 9.0];
        let at = |kind: &str| KINDS.iter().position(|of| *of == kind).unwrap();
        let grid = Grid::measure(vec![told("rate")], 1, &["t"], &KINDS, |_, kind| Ok(vec![rates[at(kind)]]));
        assert_eq!((differences(&grid, &[1, 2, 3, 4, 5]), differences(&grid, &[1, 6])), (vec![-1.0], vec![-4.0]));
    }
}
