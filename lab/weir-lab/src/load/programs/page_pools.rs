//! The program of experiment `squeeze`. Page pools come to hold idle pages, and a pressure event is sent to itself.
//! The program watches how the pages go, while threads use the pools or none does.

use crate::base::prelude::*;
use crate::base::pressure::PressurePipe;
use crate::base::weir_h::PagePool;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::sleep;

/// Pages of a run.
const RUN: usize = 16;
const LOOK: Duration = Duration::from_micros(20);
const REQUEST: Duration = Duration::from_micros(20);
const SLACK: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(60);

pub fn main(words: &Words) -> Result<()> {
    let number = |key| words.number(key).map(|number| number as usize);
    let [count, mib, threads, events] = [number("pools")?, number("mib")?, number("threads")?, number("events")?];
    let pools = (0..count).map(|number| PagePool::new(&format!("device {number}"))).collect::<Result<Vec<_>>>()?;
    let runs = (mib << 20) / PAGE / RUN;
    let (is_over, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        for first in 0..threads {
            let (pools, is_over, is_full) = (&pools, &is_over, &is_full);
            scope.spawn(move || use_them(pools, first, is_full, is_over));
        }
        // A thread that uses a pool may put one run back behind the squeeze.
        let left = if threads > 0 { pools.len() * RUN } else { 0 };
        let times = measure(&pools, runs, events, left, &is_full);
        is_over.store(true, Release);
        times
    });
    let (empty, returned): (Vec<u64>, Vec<u64>) = times?.into_iter().unzip();
    println!("{{\"empty_ns\":{empty:?},\"returned_ns\":{returned:?}}}");
    Ok(())
}

fn use_them(pools: &[PagePool], first: usize, is_full: &AtomicBool, is_over: &AtomicBool) {
    for pool in pools.iter().cycle().skip(first) {
        while !is_full.load(Acquire) && !is_over.load(Acquire) {
            sleep(LOOK);
        }
        if is_over.load(Acquire) {
            return;
        }
        if let Ok(run) = pool.take(RUN) {
            let begin = Instant::now();
            while begin.elapsed() < REQUEST {
                std::hint::spin_loop();
            }
            pool.put(run);
        }
    }
}

fn measure(
    pools: &[PagePool],
    runs: usize,
    events: usize,
    left: usize,
    is_full: &AtomicBool,
) -> Result<Vec<(u64, u64)>> {
    let (mut pipe, mut times) = (None, Vec::new());
    for event in 0..=events {
        for pool in pools {
            let held = (0..runs).map(|_| pool.take(RUN)).collect::<Result<Vec<_>>>()?;
            held.into_iter().for_each(|run| pool.put(run));
        }
        let pipe = match &mut pipe {
            Some(pipe) => pipe,
            none => none.insert(PressurePipe::open()?),
        };
        let goes = idle_pages(pools).saturating_sub(left) * PAGE;
        is_full.store(true, Release);
        sleep(PAUSE);
        let time = tell_and_watch(pools, left, goes as u64, pipe)?;
        is_full.store(false, Release);
        sleep(PAUSE);
        if event > 0 {
            times.push(time); // The first warms up.
        }
    }
    Ok(times)
}

fn idle_pages(pools: &[PagePool]) -> usize {
    pools.iter().map(PagePool::idle_pages).sum()
}

/// The times until no more pages are idle than are `left`, and until what `goes` is not resident.
fn tell_and_watch(pools: &[PagePool], left: usize, goes: u64, pipe: &mut PressurePipe) -> Result<(u64, u64)> {
    let goal = own_resident().saturating_sub(goes) + SLACK.min(goes / 2);
    let (mut empty, mut returned) = (None, None);
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    pipe.send()?;
    while begin.elapsed() < PATIENCE {
        empty = empty.or_else(|| (idle_pages(pools) <= left).then(now));
        returned = returned.or_else(|| (own_resident() <= goal).then(now));
        if let (Some(empty), Some(returned)) = (empty, returned) {
            return Ok((empty, returned));
        }
        sleep(LOOK);
    }
    bail!("{} pages are idle and {} bytes resident, not {goal}", idle_pages(pools), own_resident())
}
