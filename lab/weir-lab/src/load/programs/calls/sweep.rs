//! E11's program: what a free and a malloc cost at each size, so that a size at which they suddenly cost more is seen.
//!
//! `sweep pattern=NAME threads=N from=BYTES to=BYTES ms=N steps=N` goes through the sizes between the two, so many to a doubling.
//! It prints for each a line of JSON: the processor time of an operation over all threads, and the resident set's high mark.
//!
//! Where blocks are replaced, `live=N` of a thread are live (64), `spread=N` draws sizes from an Nth of the size to N times it (1),
//! and `heap=MIB` are live beside them (0).

use crate::base::clock::processor_ns;
use crate::base::prelude::*;
use std::sync::Barrier;
use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Release},
};

/// Live blocks a thread at most, and as far as [`LIVE_BYTES`] allows.
const SLOTS: usize = 64;
/// Bytes that all threads hold at most.
const LIVE_BYTES: usize = 512 << 20;
/// One block in so many of the heap beside was freed: holes of all sizes, and hardly less memory.
const FREED: usize = 8;
/// Fewest operations that are made of a size, however long they take.
const LEAST_OPS: u64 = 8;
/// Operations of a handover between two looks at the clock.
const CLOCK_OPS: u64 = 16;
/// Into how many steps the growth of a block is divided, and the small blocks that are taken between two of them.
const GROWTH: usize = 16;
const BETWEEN: usize = 4;

/// The work of a thread; returns how many operations it made while it was measured.
type Pattern = fn(&Worker) -> u64;

/// A thread's part.
struct Worker<'a> {
    size: usize,
    spread: usize,
    slots: usize,
    index: usize,
    /// Processor time to use, ns.
    ns: f64,
    gate: &'a Barriers,
}

/// When measuring begins and ends, for all threads.
struct Barriers {
    ready: Barrier,
    done: Barrier,
}

impl Worker<'_> {
    /// Repeats `work`, which returns how many operations it made, until the thread has used its share of processor time. On
    /// a busy machine it waits, and is measured as long all the same.
    fn repeat(&self, mut work: impl FnMut() -> u64) -> u64 {
        // All are ready, then the clock is read, then all begin.
        self.gate.ready.wait();
        self.gate.ready.wait();
        let begin = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let (mut ops, mut batch) = (0, 1);
        loop {
            (0..batch).for_each(|_| ops += work());
            let spent = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin;
            if spent >= self.ns && ops >= LEAST_OPS {
                break;
            }
            // The clock is to be read some tens of times.
            if spent < self.ns / 64.0 {
                batch *= 2;
            }
        }
        self.gate.done.wait();
        ops
    }
}

/// The pattern of two threads, which is measured by itself.
const HANDOVER: &str = "handover";

/// The patterns, in the order of the report.
const PATTERNS: &[(&str, Pattern)] = &[
    ("untouched", |worker| replace(worker, malloc)),
    ("first-byte", |worker| replace(worker, Block::new)),
    ("whole", |worker| {
        replace(worker, |size| {
            let block = malloc(size);
            block.fill(size);
            block
        })
    }),
    ("calloc", |worker| replace(worker, Block::zeroed)),
    ("aligned", |worker| replace(worker, Block::aligned)),
    ("steps", grow_by_steps),
    ("doubling", grow_by_doubling),
    (HANDOVER, |_| 0),
];

pub fn main(words: &Words) -> Result<()> {
    let (pattern, run) = (words.text("pattern")?, Run::read(words, 1, 10)?);
    let found = PATTERNS.iter().find(|(name, _)| *name == pattern);
    let (name, work) = found.with_context(|| format!("no pattern is called '{pattern}'"))?;
    let [from, to, steps] = ["from", "to", "steps"].map(|key| words.number(key).map(|number| number as usize));
    let [live, spread] = [("live", SLOTS), ("spread", 1)].map(|(key, or)| words.number_or(key, or as u64));
    let (live, spread) = (live? as usize, spread? as usize);
    fill_heap((words.number_or("heap", 0)? as usize) << 20);
    for size in sizes(from?, to?, steps?) {
        let _ = std::fs::write("/proc/self/clear_refs", "5"); // The high mark begins anew.
        let (ops, ns) =
            if *name == HANDOVER { hand_over(&run, size) } else { measure(&run, [size, spread, live], *work) };
        println!("{{\"size\":{size},\"ns\":{:.2},\"peak_kib\":{}}}", ns / ops.max(1) as f64, peak_kib()?);
    }
    Ok(())
}

/// Takes blocks of 16 B to 64 KiB, which live to the end but for a few.
fn fill_heap(bytes: usize) {
    let (mut random, mut blocks, mut held) = (Random::new(SEED, 0), Vec::new(), 0);
    while held < bytes {
        let size = random.doublings(4, 16);
        blocks.push(Block::new(size));
        blocks[blocks.len() - 1].touch_pages(size);
        held += size;
    }
    blocks.iter().step_by(FREED).for_each(|block| block.free());
}

/// So many to a doubling, multiples of 8.
fn sizes(from: usize, to: usize, steps: usize) -> Vec<usize> {
    let first = (steps as f64 * (from as f64).log2()).round() as usize;
    let size = |step: usize| 2f64.powf(step as f64 / steps as f64) as usize / 8 * 8;
    let mut sizes: Vec<usize> = (first..).map(size).take_while(|&size| size <= to).filter(|&size| size >= 8).collect();
    sizes.dedup();
    sizes
}

/// Operations of all threads, and the processor time that the process took for them, ns.
fn measure(run: &Run, [size, spread, live]: [usize; 3], work: Pattern) -> (u64, f64) {
    let slots = (LIVE_BYTES / run.threads / size).clamp(1, live.clamp(1, SLOTS));
    let gate = Barriers { ready: Barrier::new(run.threads + 1), done: Barrier::new(run.threads + 1) };
    let mut ns = 0.0;
    let mut ops = 0;
    std::thread::scope(|scope| {
        let gate = &gate;
        let worker = move |index| Worker { size, spread, slots, index, ns: run.ms as f64 * 1e6, gate };
        let threads: Vec<_> = (0..run.threads).map(|index| scope.spawn(move || work(&worker(index)))).collect();
        gate.ready.wait();
        let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        gate.ready.wait();
        gate.done.wait();
        ns = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin;
        ops = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    });
    (ops, ns)
}

/// Replaces blocks at random among the slots, which were filled before.
fn replace(worker: &Worker, make: impl Fn(usize) -> Block) -> u64 {
    let mut random = Random::new(7, worker.index);
    let mut slots = [Block::NONE; SLOTS];
    let (size, spread) = (worker.size, worker.spread);
    let next = |random: &mut Random| if spread > 1 { random.between(size / spread, size * spread) } else { size };
    slots[..worker.slots].fill_with(|| make(next(&mut random)));
    let ops = worker.repeat(|| {
        let slot = &mut slots[random.below(worker.slots)];
        slot.free();
        *slot = make(next(&mut random));
        1
    });
    slots.iter().for_each(|block| block.free());
    ops
}

/// A block grows to the size in equal steps, with small blocks taken in between; an operation is a step.
fn grow_by_steps(worker: &Worker) -> u64 {
    let step = (worker.size / GROWTH).max(1);
    worker.repeat(|| {
        let mut small = [Block::NONE; GROWTH * BETWEEN];
        let mut block = Block::new(step);
        for i in 1..GROWTH {
            small[i * BETWEEN..][..BETWEEN].fill_with(|| Block::new(100));
            block = block.resized(step * (i + 1));
            block.touch_pages(step * (i + 1));
        }
        block.free();
        small.iter().for_each(|block| block.free());
        GROWTH as u64
    })
}

/// A block grows to the size by doubling, from 64 bytes; an operation is a doubling.
fn grow_by_doubling(worker: &Worker) -> u64 {
    worker.repeat(|| {
        let mut len = 64.min(worker.size);
        let (mut block, mut ops) = (Block::new(len), 1);
        while len < worker.size {
            len = (len * 2).min(worker.size);
            block = block.resized(len);
            block.touch_pages(len);
            ops += 1;
        }
        block.free();
        ops
    })
}

/// One thread allocates and writes a byte, another frees; pairs of threads if there are more than two.
fn hand_over(run: &Run, size: usize) -> (u64, f64) {
    let slots = (LIVE_BYTES / size).clamp(1, SLOTS);
    let ring: Vec<AtomicPtr<u8>> = (0..slots).map(|_| AtomicPtr::default()).collect();
    let over = AtomicBool::new(false);
    let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let until = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) + run.ms as f64 * 1e6;
    let mut made = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            loop {
                let address = ring[at % slots].swap(std::ptr::null_mut(), Acquire);
                if !address.is_null() {
                    Block::from_address(address).free();
                    at += 1;
                } else if over.load(Acquire) {
                    break;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        while made < LEAST_OPS || made % CLOCK_OPS != 0 || processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) < until {
            let block = Block::new(size);
            while !ring[made as usize % slots].load(Acquire).is_null() {
                std::thread::yield_now();
            }
            ring[made as usize % slots].store(block.address(), Release);
            made += 1;
        }
        over.store(true, Release);
    });
    (made, processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin)
}

/// A malloc of which nothing is touched.
fn malloc(size: usize) -> Block {
    // SAFETY: malloc takes any size; its result is not used as memory here.
    Block::from_address(black_box(unsafe { libc::malloc(size) }).cast())
}
