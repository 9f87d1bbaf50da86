//! E6's program: tasks that each map 128 MiB, write to every page and unmap it, over and over, through malloc.
//!
//! `page-fault tasks=N processes=0|1 block=BYTES ms=N [pause=MS]`. The measure is that of page faults a second,
//! whether or not the allocator lets the kernel see each of them. With a pause between the rounds only the time of
//! the rounds counts.

use crate::base::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const ROUND: usize = 128 << 20;
const WARM_UP: Duration = Duration::from_millis(100);
const MOST_TASKS: usize = 64;

/// Work that a task has done, on cache lines of its own.
#[repr(align(128))]
struct TaskCount {
    pages: AtomicU64,
    busy_ns: AtomicU64,
}

struct SharedCounts {
    ready: AtomicU32,
    counts: [TaskCount; MOST_TASKS],
}

pub fn main(words: &Words) -> Result<()> {
    let tasks = (words.number_or("tasks", 1)? as usize).clamp(1, MOST_TASKS);
    let block = (words.number("block")? as usize).clamp(PAGE, ROUND);
    let pause = Duration::from_millis(words.number_or("pause", 0)?);
    let shared = share()?;
    for task in 0..tasks {
        if words.number_or("processes", 0)? == 0 {
            std::thread::spawn(move || work(block, pause, shared, task));
            continue;
        }
        // SAFETY: there is one thread yet; the child works until it is killed.
        match unsafe { libc::fork() } {
            0 => {
                end_with_the_harness();
                work(block, pause, shared, task)
            }
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            _ => {}
        }
    }
    while shared.ready.load(Acquire) < tasks as u32 {
        std::thread::sleep(Duration::from_millis(1));
    }
    if pause.is_zero() {
        std::thread::sleep(WARM_UP);
    }
    let (before, start) = (total(shared), Instant::now());
    std::thread::sleep(Duration::from_millis(words.number("ms")?));
    let (after, ns) = (total(shared), start.elapsed().as_nanos() as u64);
    let ns = if pause.is_zero() { ns } else { after.1 - before.1 };
    say(format_args!("{{\"ops\":{},\"ns\":{ns}}}", after.0 - before.0));
    end()
}

fn total(shared: &SharedCounts) -> (u64, u64) {
    let sum = |of: fn(&TaskCount) -> &AtomicU64| shared.counts.iter().map(|count| of(count).load(Relaxed)).sum();
    (sum(|count| &count.pages), sum(|count| &count.busy_ns))
}

/// Counts that forked children share.
fn share() -> Result<&'static SharedCounts> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of the kernel's choice replaces none.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<SharedCounts>(), access, kind, -1, 0) };
    ensure!(at != libc::MAP_FAILED, "cannot map the counts: {}", std::io::Error::last_os_error());
    // SAFETY: the mapping is as large, aligned to a page, zero, and never unmapped.
    Ok(unsafe { &*at.cast() })
}

fn work(block: usize, pause: Duration, shared: &SharedCounts, task: usize) -> ! {
    let count = &shared.counts[task];
    let mut blocks = vec![Block::NONE; ROUND / block];
    let (mut pages, mut rounds) = (0, 0u64);
    loop {
        rounds += 1;
        if rounds == 2 {
            shared.ready.fetch_add(1, Release);
        }
        let start = Instant::now();
        for slot in &mut blocks {
            *slot = Block::new(block);
            for offset in (0..block).step_by(PAGE) {
                slot.touch(offset);
                pages += 1;
                if pause.is_zero() {
                    count.pages.store(pages, Relaxed);
                }
            }
        }
        blocks.iter().for_each(|block| block.free());
        if !pause.is_zero() {
            count.busy_ns.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
            count.pages.store(pages, Relaxed);
            std::thread::sleep(pause);
        }
    }
}
