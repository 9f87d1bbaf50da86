//! The soak's program: threads that allocate and hand blocks on, buffers that grow, streams, forks and signals, all at
//! once. It runs in cycles, after each of which nothing is held. Every byte of every block is checked before it is
//! freed.
//!
//! It says a line for each half second, with how much of each kind was done so far. It says one at the end of each
//! cycle. Then it waits to be let into the next. Something that is not as it should be is said on standard error, and
//! ends it.

mod child;
mod debugger;
mod filled_block;
mod survivors;

use crate::base::prelude::*;
use child::forked;
use filled_block::{FilledBlock, corrupt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle, sleep};

const ALLOCATORS: usize = 4;
const SLOTS: usize = 400;
/// Blocks that lie between threads.
const SHARED: usize = 256;
const LONGEST: usize = 24 << 20;
const CHILDS_BLOCKS: usize = 20;

static STOP: AtomicBool = AtomicBool::new(false);
static HANDED_ON: Mutex<Vec<FilledBlock>> = Mutex::new(Vec::new());
/// Blocks, growths, streams, forks, signals, rounds of survivors: what was done of each.
static DONE: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
const BLOCKS: usize = 0;
const GROWTHS: usize = 1;
const STREAMS: usize = 2;
const FORKS: usize = 3;
const SIGNALS: usize = 4;
const SURVIVORS: usize = 5;

pub fn main(words: &Words) -> Result<()> {
    let [work, rest] = [words.number("work")?, words.number("rest")?].map(Duration::from_millis);
    handle_signals()?;
    named("beat", || {
        loop {
            tell("beat");
            sleep(Duration::from_millis(500));
        }
    })?;
    for cycle in 0.. {
        one_cycle(cycle, work)?;
        sleep(rest);
        tell("cycle");
        listen();
    }
    Ok(())
}

fn tell(what: &str) {
    let done = DONE.each_ref().map(|done| done.load(Relaxed));
    say(format_args!("{{\"line\":\"{what}\",\"done\":{done:?}}}"));
}

fn one_cycle(cycle: u64, work: Duration) -> Result<()> {
    STOP.store(false, Relaxed);
    let mut threads = Vec::new();
    for number in 0..ALLOCATORS {
        threads.push(named("blocks", move || allocate(number, cycle))?);
    }
    threads.push(named("growths", move || again_and_again(GROWTHS, 1000, cycle, grow_once))?);
    for number in 0..2 {
        threads.push(named("streams", move || again_and_again(STREAMS, 2000 + number, cycle, stream_once))?);
        threads.push(named("forks", move || again_and_again(FORKS, 2000 + number, cycle, fork_once))?);
    }
    threads.push(named("survivors", move || {
        again_and_again(SURVIVORS, 3000, cycle, |random| survivors::once(random, &STOP))
    })?);
    threads.push(named("signals", signal_threads)?);
    sleep(work);
    STOP.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread panicked"))?;
    }
    let mut shared = HANDED_ON.lock().map_err(|_| anyhow!("a thread panicked"))?;
    std::mem::take(&mut *shared).into_iter().for_each(FilledBlock::free);
    Ok(())
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Ok(Builder::new().name(name.into()).stack_size(256 << 10).spawn(work)?)
}

fn again_and_again(kind: usize, number: usize, cycle: u64, once: fn(&mut Random)) {
    let mut random = Random::new(cycle, number);
    while !STOP.load(Relaxed) {
        once(&mut random);
        DONE[kind].fetch_add(1, Relaxed);
    }
}

fn some_block(random: &mut Random) -> FilledBlock {
    let len = some_size(random);
    FilledBlock::of(random, len)
}

fn some_size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => random.between(4 << 20, 12 << 20),
        1..=10 => random.between(32 << 10, 2 << 20),
        11..=60 => random.between(1 << 10, 64 << 10),
        _ => random.between(1, 1 << 10),
    }
}

fn allocate(number: usize, cycle: u64) {
    let mut random = Random::new(cycle, number);
    let mut slots: Vec<Option<FilledBlock>> = vec![None; SLOTS];
    while !STOP.load(Relaxed) {
        for _ in 0..100 {
            let slot = &mut slots[random.below(SLOTS)];
            let Some(mut filled) = slot.take() else {
                *slot = Some(some_block(&mut random));
                continue;
            };
            match random.below(4) {
                0 => {
                    filled.resize(some_size(&mut random));
                    *slot = Some(filled);
                }
                1 => hand_on(filled, &mut random),
                _ => filled.free(),
            }
        }
        DONE[BLOCKS].fetch_add(100, Relaxed);
    }
    slots.into_iter().flatten().for_each(FilledBlock::free);
}

fn hand_on(filled: FilledBlock, random: &mut Random) {
    let mut shared = HANDED_ON.lock().unwrap_or_else(|_| corrupt("a thread panicked"));
    shared.push(filled);
    let other = (shared.len() > SHARED).then(|| shared.swap_remove(random.below(SHARED)));
    drop(shared);
    other.into_iter().for_each(FilledBlock::free);
}

/// A buffer that grows to some length, by realloc or by copies.
fn grow_once(random: &mut Random) {
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
            new.bytes()[..buffer.len].copy_from_slice(buffer.bytes());
            buffer.free();
            new.fill(buffer.len);
            buffer = new;
        } else {
            buffer.resize(len);
        }
    }
    buffer.free();
}

/// A stream of C's: written, flushed or not, and read again.
fn stream_once(random: &mut Random) {
    let widths: [i32; 8] = std::array::from_fn(|_| random.between(10, 20_000) as i32);
    // SAFETY: the stream is this function's own until it closes it, formats fit their arguments, and lines are freed.
    unsafe {
        let stream = libc::tmpfile();
        if stream.is_null() {
            eprintln!("weir-lab-load: no file for a stream: {}", std::io::Error::last_os_error());
            std::process::exit(2);
        }
        for width in widths {
            libc::fprintf(stream, c"%-*d\n".as_ptr(), width - 1, width);
        }
        if random.below(4) == 0 {
            libc::fflush(std::ptr::null_mut());
        }
        libc::rewind(stream);
        for width in widths {
            let (mut line, mut room) = (std::ptr::null_mut(), 0);
            let got = libc::getline(&mut line, &mut room, stream);
            if got != width as isize || libc::atoi(line) != width {
                corrupt("a stream does not hold what was written to it");
            }
            libc::free(line.cast());
        }
        libc::fclose(stream);
    }
}

/// A child that allocates in what it inherited.
fn fork_once(random: &mut Random) {
    let mut childs = Random::new(random.next(), 0);
    forked(|| (0..CHILDS_BLOCKS).for_each(|_| some_block(&mut childs).free()));
}

extern "C" fn on_signal(_number: libc::c_int) {
    DONE[SIGNALS].fetch_add(1, Relaxed);
}

fn handle_signals() -> Result<()> {
    for signal in [libc::SIGUSR1, libc::SIGPROF] {
        // SAFETY: the action is plain data, and its handler adds to a counter.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut()) != 0
        };
        ensure!(!failed, "signal {signal} cannot be handled: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

fn signal_threads() {
    let me = std::process::id() as libc::pid_t;
    while !STOP.load(Relaxed) {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        for task in tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok()) {
            if takes_signals(task) {
                // SAFETY: the signal is handled.
                unsafe { libc::syscall(libc::SYS_tgkill, me, task, libc::SIGUSR1) };
            }
        }
        // SAFETY: the signal is handled.
        unsafe { libc::kill(me, libc::SIGPROF) };
        sleep(Duration::from_millis(3));
    }
}

/// Threads of the allocator's own block signals: one more that waits for them would only fill their queue.
fn takes_signals(task: libc::pid_t) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    blocked.is_some_and(|mask| mask >> (libc::SIGUSR1 - 1) & 1 == 0)
}
