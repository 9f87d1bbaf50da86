//! The program of experiment `squeeze`: page pools come to hold idle pages, a pressure event is sent to itself, and it
//! watches how they go, while threads use the pools or none does.

use crate::base::args::read_numbers;
use crate::base::mem::PAGE;
use crate::base::pressure::{PressurePipe, Resident};
use crate::base::weir_pools::PagePool;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pages of a run: 64 KiB.
const RUN: usize = 16;
/// Between two looks.
const LOOK: Duration = Duration::from_micros(20);
/// How long a thread works for a request, about: a read of 64 KiB from memory.
const REQUEST: Duration = Duration::from_micros(20);
/// What the resident set may be above what it should be: the kernel counts it in batches a CPU, and what the threads
/// have in flight and in their next requests.
const SLACK: u64 = 1 << 20;
/// What is not returned in so long is said to be never returned.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before and after an event: two of them are longer than a squeeze window, and than the 100 ms for which a source of pressure
/// is not listened to after an event (an event in that time is answered at its end).
const PAUSE: Duration = Duration::from_millis(60);

/// `page-pools pools=N mib=N threads=N events=N`: prints each event's times.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut pools, mut mib, mut threads, mut events) = (1, 4, 0, 50);
    read_numbers(args, "pools, mib, threads, events", |key, number| {
        let place = match key {
            "pools" => &mut pools,
            "mib" => &mut mib,
            "threads" => &mut threads,
            "events" => &mut events,
            _ => return false,
        };
        *place = number as usize;
        true
    })?;
    let pools = (0..pools).map(|number| PagePool::new(&format!("device {number}"))).collect::<Result<Vec<_>, _>>()?;
    let runs = (mib << 20) / PAGE / RUN;
    let (is_over, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        for first in 0..threads {
            let (pools, is_over, is_full) = (&pools, &is_over, &is_full);
            scope.spawn(move || use_them(pools, first, is_full, is_over));
        }
        // A thread puts a run of its own into each pool that it comes to.
        let left = if threads > 0 { pools.len() * RUN } else { 0 };
        let times = measure(&pools, runs, events, left, &is_full);
        is_over.store(true, Ordering::Release);
        times
    });
    let (empty, returned): (Vec<u64>, Vec<u64>) = times?.into_iter().unzip();
    println!("{{\"empty_ns\":{empty:?},\"returned_ns\":{returned:?}}}");
    Ok(())
}

/// A request after the other, each on the next pool, while the pools are full and while they are squeezed.
fn use_them(pools: &[PagePool], first: usize, is_full: &AtomicBool, is_over: &AtomicBool) {
    for pool in pools.iter().cycle().skip(first) {
        while !is_full.load(Ordering::Acquire) && !is_over.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
        }
        // Also where the measuring ended with an error, between full and empty.
        if is_over.load(Ordering::Acquire) {
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

/// `left`: pages that the threads put into the pools meanwhile, at most.
fn measure(
    pools: &[PagePool],
    runs: usize,
    events: usize,
    left: usize,
    is_full: &AtomicBool,
) -> Result<Vec<(u64, u64)>, String> {
    let (mut pipe, resident) = (None, Resident::open()?);
    let mut times = Vec::new();
    // The first event is to settle the program itself.
    for event in 0..=events {
        for pool in pools {
            let held = (0..runs).map(|_| pool.take(RUN)).collect::<Result<Vec<_>, _>>()?;
            held.into_iter().for_each(|run| pool.put(run));
        }
        let pipe = match &mut pipe {
            Some(pipe) => pipe,
            none => none.insert(PressurePipe::open()?),
        };
        let idle = idle_pages(pools);
        is_full.store(true, Ordering::Release);
        // The threads come in.
        std::thread::sleep(PAUSE);
        let time = tell_and_watch(pools, (idle, left), &resident, pipe)?;
        is_full.store(false, Ordering::Release);
        std::thread::sleep(PAUSE);
        if event > 0 {
            times.push(time);
        }
    }
    Ok(times)
}

fn idle_pages(pools: &[PagePool]) -> usize {
    pools.iter().map(|pool| pool.stats().idle_pages).sum()
}

/// Sends an event; after how many ns the pools had no more than `left` idle pages, and what was idle beyond these was not
/// resident any more.
fn tell_and_watch(
    pools: &[PagePool],
    (idle, left): (usize, usize),
    resident: &Resident,
    pipe: &mut PressurePipe,
) -> Result<(u64, u64), String> {
    let goes = (idle.saturating_sub(left) * PAGE) as u64;
    let goal = resident.now()?.saturating_sub(goes) + SLACK.min(goes / 2);
    let (mut empty, mut returned) = (None, None);
    let begin = Instant::now();
    pipe.send()?;
    while begin.elapsed() < PATIENCE && (empty.is_none() || returned.is_none()) {
        // One after another: a pool that is found empty stays so in the window.
        if empty.is_none() && idle_pages(pools) <= left {
            empty = Some(begin.elapsed());
        }
        if returned.is_none() && resident.now()? <= goal {
            returned = Some(begin.elapsed());
        }
        std::thread::sleep(LOOK);
    }
    let ns = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
    let (Some(empty), Some(returned)) = (ns(empty), ns(returned)) else {
        let now = resident.now()?;
        return Err(format!("{} pages are idle and {now} bytes resident, not {goal}", idle_pages(pools)));
    };
    Ok((empty, returned))
}
