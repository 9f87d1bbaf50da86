//! One order: which caches shrink first. A cache with dear misses (100 us), one with cheap misses (10 us), a heap that peaks now
//! and then, and a neighbour that wants 10 to 60 % of the limit by turns, all in one cgroup.
//!
//! Each cache is asked 4,000 times a second for values of 16 KiB, by Zipf 0.9 of three quarters of the limit each. The work is the
//! time that hits save, as a share of what an oracle saves: it knows the neighbour's demand, gives the rest of the limit to the
//! keys that are worth most, and has them at once. As much swap as the limit. Root. The arms:
//!
//! - `weir` runs the three under one `weir run`, so that they read each other's curves; in `alike` they do not.
//! - `moka-shrinker`: caches of moka's, which `weir::Shrinker` evicts of under pressure by the ten lines of `tests/adapters.rs`. Each
//!   gives as if it were alone, under a `weir run` too, as a shrinker has no curve. Moka's own capacity is all of the limit, as a
//!   program would write it that leaves the rest to pressure.
//! - `static`: caches of moka's, a quarter of the limit each; in `static-45` 45 %, which fit only while the neighbour is small.

use crate::harness::prelude::*;
use std::io::{BufRead, BufReader};

const BLOCK: u64 = 16 << 10;
const RATE: u64 = 4000;
const SKEW: f64 = 0.9;
/// What a miss takes, us.
const MISSES: [(&str, u64); 2] = [("dear", 100), ("cheap", 10)];
/// The neighbour's least and most, percent of the limit.
const SWING: [u64; 2] = [10, 60];

/// An arm: its name, the tenants' program, their caches, and of how many percent of the limit each is.
type Arm = (&'static str, &'static str, &'static str, u64);
const TOGETHER: &str = "weir";
const ARMS: [Arm; 5] = [
    (TOGETHER, "weir-lab-cache-weir", "weir", 0),
    ("alike", "weir-lab-cache-weir", "weir", 0),
    ("moka-shrinker", "weir-lab-cache-weir", "moka-shrinker", 100),
    ("static", "weir-lab-cache", "moka", 25),
    ("static-45", "weir-lab-cache", "moka", 45),
];

pub fn run(lab: &mut Lab) -> Result<()> {
    let arms = lab.chosen(&ARMS.map(|arm| arm.0))?;
    let _lock = machine::lock()?;
    let (seconds, limit) = (lab.args.seconds.unwrap_or(lab.pick(120, 10)), lab.pick(512u64 << 20, 128 << 20));
    drop(Cgroup::make("trial", limit)?);
    let _swap = swap::make(&lab.args.swap_dir, limit * 2)?;
    let command = lab.weir_command()?;
    lab.args.subject = "weir".into();
    let measures = vec![
        more("work, % of the oracle's"),
        told("dear hits, %"),
        told("cheap hits, %"),
        told("dear at least, MiB").mib(),
        told("cheap at least, MiB").mib(),
        more("neighbour, MiB/s"),
        less("swapped in, MiB").mib(),
        less("killed"),
    ];
    let case = format!("a cgroup of {} MiB, with as much swap, for {seconds} s", limit >> 20);
    let arm = |name: &str| ARMS.into_iter().find(|arm| arm.0 == name).context("no such arm");
    lab.by_case(measures, &[case], &arms, |_, name| one(arm(name)?, &command, limit, seconds));
    Ok(())
}

/// A `weir run` that does nothing but have a file of pages, and the file's name.
fn pages(command: &Path) -> Result<(KilledOnDrop, String)> {
    let mut run = Command::new(command);
    run.args(["run", "--", "sh", "-c", "echo $WEIR_STATS; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = KilledOnDrop::start(run, "weir run")?;
    let mut name = String::new();
    BufReader::new(run.0.stdout.take().context("no output")?).read_line(&mut name)?;
    ensure!(name.starts_with("/proc/"), "weir run names no file of pages");
    Ok((run, name.trim().to_owned()))
}

fn one((arm, program, kind, percent): Arm, command: &Path, limit: u64, seconds: u32) -> Result<Vec<f64>> {
    let cgroup = Cgroup::make("order", limit)?;
    cgroup.limit_swap(limit, limit)?;
    let (ms, period) = (u64::from(seconds) * 1000, (u64::from(seconds) * 1000 / 6).max(3000));
    let keys = limit * 3 / 4 / BLOCK;
    let file = if arm == TOGETHER { Some(pages(command)?) } else { None };
    let tenant = |name: &str, words: String| -> Result<Program> {
        let mut tenant = Command::new(beside(program)?);
        tenant.args([
            "tenant",
            &format!("cache={kind}"),
            &format!("bytes={}", limit * percent / 100),
            &format!("ms={ms}"),
        ]);
        tenant.args(words.split_whitespace()).envs(file.iter().map(|(_, name)| ("WEIR_STATS", name)));
        Program::start(name, tenant, Some(&cgroup))
    };
    let before = swapped()?;
    let caches: Vec<Program> = MISSES
        .iter()
        .map(|(name, us)| {
            let skew = SKEW * 100.0;
            tenant(name, format!("keys={keys} block={BLOCK} skew={skew} rate={RATE} miss_us={us}"))
        })
        .collect::<Result<_>>()?;
    let idle = tenant("the idle heap", format!("idle={} period={period}", limit / 4))?;
    let [least, most] = SWING.map(|percent| limit / 100 * percent);
    let swing = plain_load(&format!("swing least={least} most={most} period={period} ms={ms}"))?;
    let neighbour = Program::start("the neighbour", swing, Some(&cgroup))?;
    let told: Vec<_> = caches.into_iter().map(Program::rest).collect::<Result<_>>()?;
    let ((_, idle), (swung, fourth)) = (idle.rest()?, neighbour.rest()?);
    let after = swapped()?;
    let last = |lines: &[Value], key: &str| lines.last().and_then(|line| line[key].as_f64()).unwrap_or(0.0);
    let saved: f64 = told.iter().zip(MISSES).map(|((lines, _), (_, us))| last(lines, "hits") * us as f64).sum();
    let requests: f64 = told.iter().map(|(lines, _)| last(lines, "requests")).sum();
    let percent = |lines: &[Value]| 100.0 * last(lines, "hits") / last(lines, "requests");
    let at_least = |lines: &[Value]| -> f64 {
        lines[lines.len() / 4..].iter().filter_map(|line| line["cached"].as_f64()).collect::<Sample>().min()
    };
    let killed = told.iter().map(|(_, ended)| ended).chain([&idle, &fourth]).filter(|ended| !ended.success()).count();
    let oracle = oracle(limit, keys as usize) * requests / MISSES.len() as f64;
    Ok(vec![
        100.0 * saved / oracle,
        percent(&told[0].0),
        percent(&told[1].0),
        at_least(&told[0].0),
        at_least(&told[1].0),
        last(&swung, "work") / f64::from(seconds),
        after[0] - before[0],
        killed as f64,
    ])
}

/// The time that hits save, us for a request to each cache, where the neighbour's demand is known and nothing else takes room.
fn oracle(limit: u64, keys: usize) -> f64 {
    let zipf = Zipf::new(SKEW, keys);
    // The most that so many of both caches' keys are worth: each next key is of the cache where it is worth more.
    let mut best = vec![0.0];
    let mut taken = [0, 0];
    for _ in 0..2 * keys {
        let worth = [0, 1]
            .map(|cache| if taken[cache] < keys { zipf.share(taken[cache]) * MISSES[cache].1 as f64 } else { 0.0 });
        let next = usize::from(worth[1] > worth[0]);
        taken[next] += 1;
        best.push(best[best.len() - 1] + worth[next]);
    }
    const STEPS: u64 = 1000;
    let at = |step: u64| {
        let used = limit / 100 * (SWING[0] * (STEPS - step) + SWING[1] * step) / STEPS;
        best[((limit - used) / BLOCK).min(2 * keys as u64) as usize]
    };
    (0..STEPS).map(at).sum::<f64>() / STEPS as f64
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_oracle_saves_more_with_more_room_and_no_more_than_all() {
        let [small, large] = [super::oracle(64 << 20, 3072), super::oracle(128 << 20, 3072)];
        assert!(small > 50.0 && large > small && large <= 110.0, "{small} {large}");
    }
}
