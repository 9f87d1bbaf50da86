//! How often calls ask the table of blocks. All CPUs share its lock, so what takes it in each call does not scale.
#![cfg(debug_assertions)]

use std::sync::atomic::Ordering::Relaxed;
use weir_core::platform::{Diagnostics, rank};

use crate::blocks::mapped::{MIB, Part, Peaks, random};
use crate::fake::run_on;
use crate::held::layout;

const LEN: usize = 6 * MIB;
const CPUS: usize = 16;

/// Turns of the table's lock that `calls` take.
fn turns(peaks: &mut Peaks, calls: impl FnOnce(&mut Peaks)) -> usize {
    *peaks.heap.platform().turns.lock().unwrap() = Some(Vec::new());
    calls(peaks);
    let turns = peaks.heap.platform().turns.lock().unwrap().take().unwrap();
    turns.iter().filter(|turn| turn.rank == rank::BLOCKS && turn.is_taken).count()
}

/// Once in 256 pairs a CPU asks the table for its block. What others have free meanwhile stays theirs: else each of them asks in
/// turn, and takes the free blocks of all others again.
#[test]
fn cpus_leave_each_other_their_blocks() {
    const CALLS: usize = CPUS * 2000;
    for touched in [0, LEN] {
        let mut peaks = Peaks::new();
        let step = |peaks: &mut Peaks, held: &mut Option<Part>| match held.take() {
            Some(part) => peaks.free(part),
            None => {
                let mut part = peaks.alloc(LEN);
                peaks.touch(&mut part, touched);
                *held = Some(part);
            }
        };
        let mut held: [Option<Part>; CPUS] = Default::default();
        for cpu in (0..64 * CPUS).map(|i| i % CPUS) {
            run_on(cpu);
            step(&mut peaks, &mut held[cpu]);
        }
        let mut state = 42;
        let taken = turns(&mut peaks, |peaks| {
            for _ in 0..CALLS {
                let cpu = random(&mut state) % CPUS;
                run_on(cpu);
                step(peaks, &mut held[cpu]);
            }
        });
        assert!(taken <= CALLS / 64, "{touched} bytes touched: {taken} turns in {CALLS} calls");
        if touched > 0 {
            peaks.check("a block a CPU");
        }
    }
}

/// Blocks that are free on CPUs make no room for others beyond what was in use at once.
#[test]
fn what_cpus_have_free_raises_no_peak() {
    for lens in [1, 4] {
        let mut peaks = Peaks::new();
        let (mut held, mut state) = (Vec::new(), 42);
        for round in 0..4000 {
            run_on(random(&mut state) % CPUS);
            if held.len() == 8 || !held.is_empty() && random(&mut state).is_multiple_of(2) {
                peaks.free(held.swap_remove(random(&mut state) % held.len()));
            } else {
                let len = LEN + random(&mut state) % lens * MIB;
                held.push(peaks.filled(len));
            }
            if round % 500 == 0 {
                peaks.heap.reclaim().balance_calm();
            }
        }
        peaks.check_churn(&format!("up to 8 blocks of {lens} lengths"));
    }
}

/// A block that stays where it is, and as long, is looked up and noted in one turn.
#[test]
fn a_resize_in_place_takes_one_turn() {
    let mut peaks = Peaks::new();
    let mut part = peaks.alloc(8 * MIB);
    peaks.realloc(&mut part, 8 * MIB + 16);
    let addr = part.addr;
    let taken = turns(&mut peaks, |peaks| {
        for more in 2..=1000 {
            // SAFETY: the block is the test's.
            assert_eq!(unsafe { peaks.heap.realloc(addr, 8 * MIB + 16 * more) }, addr);
        }
    });
    assert!(taken <= 1000, "{taken} turns for 1,000 resizes");
    peaks.free(part);
}

/// Buffers for huge pages are aligned to more than a page.
#[test]
fn aligned_blocks_are_handed_out_by_their_cpu() {
    let peaks = Peaks::new();
    let pairs = |count| {
        for _ in 0..count {
            let block = peaks.heap.alloc_aligned(layout(2 * MIB, 8 * MIB));
            assert!(!block.is_null() && (block as usize).is_multiple_of(2 * MIB));
            // SAFETY: allocated just now.
            unsafe { peaks.heap.free(block) };
        }
    };
    pairs(2000);
    let counted = || peaks.heap.platform().stats().large_allocs.load(Relaxed);
    let before = counted();
    pairs(512);
    assert!(counted() - before <= 4, "{} of 512 by the table", counted() - before);
}
