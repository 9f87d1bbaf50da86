//! E6's program: tasks that each map 128 MiB, write to every page and unmap it, over and over, through malloc.
//!
//! `page-fault tasks=N as=threads|processes block=BYTES ms=N [pause=MS]`. The measure is that of page faults a second,
//! whether or not the allocator lets the kernel see each of them. With a pause between the rounds only the time of
//! the rounds counts.

use crate::base::args::{number, read_words};
use crate::base::mem::{Block, PAGE};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a task maps in one round.
const ROUND: usize = 128 << 20;
/// After every task's first round, before counting begins.
const WARM_UP: Duration = Duration::from_millis(100);
const MOST_TASKS: usize = 64;

struct Setting {
    tasks: usize,
    processes: bool,
    block: usize,
    ms: u64,
    pause: Duration,
}

fn read(args: impl Iterator<Item = String>) -> Result<Setting, String> {
    let mut setting = Setting { tasks: 1, processes: false, block: ROUND, ms: 1000, pause: Duration::ZERO };
    read_words(args, "tasks, as=threads|processes, block, ms, pause", |key, value| {
        match (key, value) {
            ("as", "threads") => setting.processes = false,
            ("as", "processes") => setting.processes = true,
            ("tasks", _) => setting.tasks = (number(value)? as usize).clamp(1, MOST_TASKS),
            ("block", _) => setting.block = (number(value)? as usize).clamp(PAGE, ROUND),
            ("ms", _) => setting.ms = number(value)?,
            ("pause", _) => setting.pause = Duration::from_millis(number(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(setting)
}

/// A task's count of pages and of nanoseconds, alone on its cache lines.
#[repr(align(128))]
struct TaskCount {
    pages: AtomicU64,
    busy_ns: AtomicU64,
}

/// What all tasks see, threads and processes alike.
struct SharedCounts {
    ready: AtomicU32,
    counts: [TaskCount; MOST_TASKS],
}

/// Runs it.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let setting = read(args)?;
    let shared = shared()?;
    for task in 0..setting.tasks {
        if setting.processes {
            fork(&setting, shared, task)?;
        } else {
            let (block, pause) = (setting.block, setting.pause);
            std::thread::spawn(move || work(block, pause, shared, task));
        }
    }
    while shared.ready.load(Ordering::Acquire) < setting.tasks as u32 {
        std::thread::sleep(Duration::from_millis(1));
    }
    if setting.pause.is_zero() {
        std::thread::sleep(WARM_UP);
    }
    let (before, start) = (total(shared), Instant::now());
    std::thread::sleep(Duration::from_millis(setting.ms));
    let (after, ns) = (total(shared), start.elapsed().as_nanos());
    let (pages, busy) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{{\"ops\":{pages},\"ns\":{},\"tasks\":{}}}",
        if setting.pause.is_zero() { ns } else { busy.into() },
        setting.tasks
    );
    // The tasks go with this process: threads at once, processes by the parent-death signal they asked for.
    // SAFETY: ends the process, whatever its threads do.
    unsafe { libc::_exit(0) }
}

fn total(shared: &SharedCounts) -> (u64, u64) {
    let sum = |field: fn(&TaskCount) -> &AtomicU64| {
        shared.counts.iter().map(|count| field(count).load(Ordering::Relaxed)).sum()
    };
    (sum(|count| &count.pages), sum(|count| &count.busy_ns))
}

/// A mapping that forked children keep in common. It starts as zeros.
fn shared() -> Result<&'static SharedCounts, String> {
    // SAFETY: a fresh anonymous mapping, chosen by the kernel.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<SharedCounts>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(format!("cannot map the counts: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: page-aligned, large enough, never unmapped; atomics may begin as zeros.
    Ok(unsafe { &*base.cast::<SharedCounts>() })
}

fn fork(setting: &Setting, shared: &'static SharedCounts, task: usize) -> Result<(), String> {
    // SAFETY: this process has a single thread of its own, so the child may do anything.
    match unsafe { libc::fork() } {
        0 => {
            crate::base::process::end_with_the_harness();
            work(setting.block, setting.pause, shared, task)
        }
        -1 => Err(format!("cannot fork: {}", std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}

fn work(block: usize, pause: Duration, shared: &SharedCounts, task: usize) -> ! {
    let count = &shared.counts[task];
    let mut blocks = vec![Block::NONE; ROUND / block];
    let (mut pages, mut busy, mut rounds) = (0, 0, 0u64);
    loop {
        // The first round is the allocator's start, and no part of what is measured.
        rounds += 1;
        if rounds == 2 {
            shared.ready.fetch_add(1, Ordering::Release);
        }
        let start = Instant::now();
        for slot in &mut blocks {
            *slot = Block::new(block);
            for offset in (0..block).step_by(PAGE) {
                slot.touch(offset);
                pages += 1;
                if pause.is_zero() {
                    count.pages.store(pages, Ordering::Relaxed);
                }
            }
        }
        blocks.iter().for_each(|block| block.free());
        if !pause.is_zero() {
            busy += start.elapsed().as_nanos() as u64;
            count.pages.store(pages, Ordering::Relaxed);
            count.busy_ns.store(busy, Ordering::Relaxed);
            std::thread::sleep(pause);
        }
    }
}
