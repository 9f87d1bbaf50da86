//! The soak's program: threads that allocate and hand blocks on, buffers that grow, streams, forks and signals, all at
//! once; in cycles, after each of which nothing is held. Every byte of every block is checked before it is freed.
//!
//! It says a line for each half second, with how much of each kind was done so far, and one at the end of each cycle;
//! then it waits to be let into the next. Something that is not as it should be is said on standard error, and ends it.

use crate::base::args::read_numbers;
use crate::base::mem::{Block, Random};
use crate::programs::soak_blocks::{FilledBlock, corrupt, some_size};
use crate::programs::soak_kinds::{STOP, WorkKind, add, fork_once, signal_threads, stream_once};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Threads that allocate: more than most machines of CI have CPUs.
const ALLOCATORS: usize = 4;
/// Blocks that such a thread holds at most.
const SLOTS: usize = 400;
/// Blocks on their way from a thread to another at most.
const SHARED: usize = 256;
/// The longest that a growing buffer becomes.
const LONGEST: usize = 24 << 20;

static HANDED_ON: Mutex<Vec<FilledBlock>> = Mutex::new(Vec::new());

/// Allocates, resizes, hands on and frees at random, until the cycle is over.
fn allocate(number: usize, cycle: u64) {
    let mut random = Random::new(cycle, number);
    let mut slots: Vec<Option<FilledBlock>> = vec![None; SLOTS];
    while !STOP.load(Relaxed) {
        for _ in 0..100 {
            let slot = &mut slots[random.below(SLOTS)];
            match slot.take() {
                None => *slot = Some(FilledBlock::new(&mut random)),
                Some(mut filled) => match random.below(4) {
                    0 => {
                        filled.resize(some_size(&mut random));
                        *slot = Some(filled);
                    }
                    1 => hand_on(filled, &mut random),
                    _ => filled.free(),
                },
            }
        }
        add(WorkKind::Blocks, 100);
    }
    slots.into_iter().flatten().for_each(FilledBlock::free);
}

/// Another thread frees it, or this one what another handed on.
fn hand_on(filled: FilledBlock, random: &mut Random) {
    let mut shared = HANDED_ON.lock().unwrap_or_else(|_| corrupt("a thread panicked"));
    let out = if shared.len() < SHARED { None } else { Some(random.below(SHARED)) };
    shared.push(filled);
    let out = out.map(|i| shared.swap_remove(i));
    drop(shared);
    if let Some(other) = out {
        other.free();
    }
}

/// Buffers that grow: by doubling, by a part, by steps; by `realloc`, or copied to a new one.
fn grow(cycle: u64) {
    let mut random = Random::new(cycle, 1000);
    while !STOP.load(Relaxed) {
        let (how, copied) = (random.below(3), random.below(2) == 0);
        let longest = random.doublings(16, 24).min(LONGEST);
        let mut buffer = FilledBlock { block: Block::new(100), len: 100, seed: random.next() };
        buffer.fill(0);
        while buffer.len < longest && !STOP.load(Relaxed) {
            let len = match how {
                0 => buffer.len * 2,
                1 => buffer.len + buffer.len / 8 + 16,
                _ => buffer.len + longest / 64,
            };
            if copied {
                let mut new = FilledBlock { block: Block::new(len), len, ..buffer };
                new.bytes_mut()[..buffer.len].copy_from_slice(buffer.bytes());
                buffer.free();
                new.fill(buffer.len);
                buffer = new;
            } else {
                buffer.resize(len);
            }
            add(WorkKind::Growths, 1);
        }
        buffer.free();
    }
}

/// `soak work=MS rest=MS`: cycles of so many milliseconds of work, then of rest, until its input ends.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut work, mut rest) = (2000, 500);
    read_numbers(args, "work, rest", |key, number| {
        match key {
            "work" => work = number,
            "rest" => rest = number,
            _ => return false,
        }
        true
    })?;
    crate::programs::soak_kinds::handle_signals()?;
    named("beat", || {
        loop {
            crate::programs::soak_kinds::say("beat");
            std::thread::sleep(Duration::from_millis(500));
        }
    })?;
    for cycle in 0.. {
        one_cycle(cycle, Duration::from_millis(work))?;
        std::thread::sleep(Duration::from_millis(rest));
        crate::programs::soak_kinds::say("cycle");
        let mut byte = [0];
        if std::io::stdin().read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
    }
    std::io::stdout().flush().map_err(|why| why.to_string())
}

fn one_cycle(cycle: u64, work: Duration) -> Result<(), String> {
    STOP.store(false, Relaxed);
    let mut threads = Vec::new();
    for number in 0..ALLOCATORS {
        threads.push(named("blocks", move || allocate(number, cycle))?);
    }
    threads.push(named("growths", move || grow(cycle))?);
    for number in 0..2 {
        threads.push(named("streams", move || until_the_end(WorkKind::Streams, number, cycle, stream_once))?);
        threads.push(named("forks", move || until_the_end(WorkKind::Forks, number, cycle, fork_once))?);
    }
    threads.push(named("signals", signal_threads)?);
    std::thread::sleep(work);
    STOP.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_string())?;
    }
    let mut shared = HANDED_ON.lock().map_err(|_| "a thread panicked".to_string())?;
    std::mem::take(&mut *shared).into_iter().for_each(FilledBlock::free);
    Ok(())
}

fn until_the_end(kind: WorkKind, number: usize, cycle: u64, once: fn(&mut Random)) {
    let mut random = Random::new(cycle, 2000 + number);
    while !STOP.load(Relaxed) {
        once(&mut random);
        add(kind, 1);
    }
}

/// A thread with a name that whoever looks for a hang can read.
fn named(name: &str, work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>, String> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(256 << 10);
    builder.spawn(work).map_err(|why| format!("a thread does not start: {why}"))
}
