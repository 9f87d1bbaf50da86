//! The program of experiment `report`: it comes to hold idle memory, has a pressure event sent to itself, and watches its
//! own resident set until nothing of it goes any more.

use crate::base::args::read_numbers;
use crate::base::mem::Block;
use crate::base::pressure::{PressurePipe, Resident};
use std::time::{Duration, Instant};

/// Objects and runs of many sizes.
const MIXED: &[usize] = &[48, 512, 4000, 30_000, 160 << 10, 1 << 20, 3 << 20];
/// Runs of pages alone.
const RUNS: &[usize] = &[64 << 10, 256 << 10, 1 << 20];
/// Bytes allocated of one size before it is the next one's turn.
const TURN: usize = 4 << 20;
/// The resident set has come to rest when it stood for so long.
const REST: Duration = Duration::from_millis(150);
/// Between two looks at it: what the figures are exact to.
const LOOK: Duration = Duration::from_micros(50);

/// `report-time mib=N events=N mixed=0|1`: prints each event's time, processor time and fall of the resident set.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut mib, mut events, mut mixed) = (1024usize, 50usize, 1);
    read_numbers(args, "mib, events, mixed=0|1", |key, number| {
        match key {
            "mib" => mib = number as usize,
            "events" => events = number as usize,
            "mixed" => mixed = number,
            _ => return false,
        }
        true
    })?;
    let sizes = if mixed != 0 { MIXED } else { RUNS };
    let mut blocks = Vec::with_capacity((mib << 20) / sizes[0] + sizes.len());
    let resident = Resident::open()?;
    let mut pipe = None;
    let (mut ns, mut cpu_ns, mut fell, mut huge) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for event in 0..=events {
        hold(&mut blocks, mib << 20, sizes);
        huge.push(huge_bytes());
        blocks.drain(..).for_each(Block::free);
        // What is freed is the event's to give back; the first event is to settle the program itself.
        std::thread::sleep(Duration::from_millis(20));
        let told = tell_and_watch(&resident, &mut pipe)?;
        if event > 0 {
            ns.push(told.0.as_nanos() as u64);
            cpu_ns.push(told.1);
            fell.push(told.2);
        }
    }
    println!("{{\"ns\":{ns:?},\"cpu_ns\":{cpu_ns:?},\"fell\":{fell:?},\"huge\":{:?}}}", &huge[1..]);
    Ok(())
}

fn hold(blocks: &mut Vec<Block>, bytes: usize, sizes: &[usize]) {
    let mut held = 0;
    for size in sizes.iter().cycle() {
        if held >= bytes {
            return;
        }
        for _ in 0..TURN.div_ceil(*size) {
            let block = Block::new(*size);
            block.touch_pages(*size);
            blocks.push(block);
            held += size;
        }
    }
}

/// Sends an event; how long the resident set fell from then on, what the other threads' work on it cost, and by how much.
fn tell_and_watch(resident: &Resident, pipe: &mut Option<PressurePipe>) -> Result<(Duration, u64, u64), String> {
    let pipe = match pipe {
        Some(pipe) => pipe,
        none => none.insert(PressurePipe::open()?),
    };
    let (before, cpu) = (resident.now()?, others_cpu_ns());
    let begin = Instant::now();
    pipe.send()?;
    let (mut least, mut last) = (before, begin);
    while last.elapsed() < REST {
        let now = resident.now()?;
        if now < least {
            (least, last) = (now, Instant::now());
        }
        std::thread::sleep(LOOK);
    }
    Ok((last - begin, others_cpu_ns() - cpu, before - least))
}

fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Processor time of all threads but this one.
fn others_cpu_ns() -> u64 {
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills `time`.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    read(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(read(libc::CLOCK_THREAD_CPUTIME_ID))
}
