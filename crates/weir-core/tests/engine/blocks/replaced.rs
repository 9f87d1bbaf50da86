//! Blocks mapped on their own that are replaced again and again: in the end without a call of the platform.

use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::units::PAGE;

use crate::blocks::mapped::{MIB, Part, Peaks, random};
use crate::fake::Call;
use crate::heap::model::config;

/// Frees after which a block that does not change is looked at again.
const LOOKED_AT: usize = 256;

/// Calls that map, move, unmap, advise or release; and looks.
fn take_calls(peaks: &Peaks) -> ([u64; 5], usize) {
    let fake = peaks.heap.platform();
    let calls = [Call::Map, Call::Remap, Call::Release].map(|call| {
        let calls = fake.calls(call);
        fake.fail(call, 0);
        calls
    });
    let advised = std::mem::take(&mut *fake.advised.lock().unwrap()).len() as u64;
    let unmapped = fake.unmapped.swap(0, Relaxed) as u64;
    ([calls[0], calls[1], calls[2], advised, unmapped], fake.take_looks().len())
}

/// Replaces blocks of `slots` at random, each of a length of its own, of which `touched` bytes are touched.
fn replace(
    peaks: &mut Peaks,
    slots: &mut [Part],
    steps: usize,
    len: impl Fn(usize) -> usize,
    touched: impl Fn(usize) -> usize,
) {
    let mut state = 42;
    for _ in 0..steps {
        let slot = random(&mut state) % slots.len();
        peaks.free(std::mem::replace(&mut slots[slot], Part { addr: std::ptr::null_mut(), touched: 0 }));
        let len = len(random(&mut state));
        let mut part = peaks.alloc(len);
        peaks.touch(&mut part, touched(len));
        slots[slot] = part;
    }
}

#[test]
fn a_block_that_is_freed_and_wanted_again_costs_no_call() {
    for len in [4 * MIB + PAGE, 8 * MIB, 64 * MIB] {
        for touched in [0, PAGE, len / 2, len] {
            let mut peaks = Peaks::new();
            let mut slots = [peaks.alloc(len)];
            replace(&mut peaks, &mut slots, 2 * LOOKED_AT, |_| len, |_| touched);
            take_calls(&peaks);
            // Up to the next look, of one that is touched in part.
            for _ in 0..LOOKED_AT {
                replace(&mut peaks, &mut slots, 1, |_| len, |_| touched);
                if take_calls(&peaks).1 > 0 {
                    break;
                }
            }
            replace(&mut peaks, &mut slots, LOOKED_AT - 1, |_| len, |_| touched);
            assert_eq!(take_calls(&peaks), ([0; 5], 0), "{len} bytes, {touched} of them touched");
            replace(&mut peaks, &mut slots, LOOKED_AT, |_| len, |_| touched);
            let (calls, looks) = take_calls(&peaks);
            assert!(calls == [0; 5] && looks <= 8, "{looks} looks in {LOOKED_AT} frees, {calls:?}");
        }
    }
}

/// Lengths that differ: what has no memory behind it is handed out whole.
#[test]
fn blocks_of_similar_lengths_that_are_hardly_touched_cost_no_call() {
    for count in [1, 8] {
        let mut peaks = Peaks::new();
        let mut slots: Vec<Part> = (0..count).map(|_| peaks.alloc(5 * MIB)).collect();
        let len = |random: usize| 4 * MIB + 1 + random % (4 * MIB);
        replace(&mut peaks, &mut slots, 16 * LOOKED_AT, len, |_| PAGE);
        take_calls(&peaks);
        replace(&mut peaks, &mut slots, 4 * LOOKED_AT, len, |_| PAGE);
        let (calls, looks) = take_calls(&peaks);
        assert_eq!(calls, [0; 5]);
        assert!(looks <= 5 * 24 * 4, "{looks} looks in {} frees", 4 * LOOKED_AT);
        let resident = peaks.heap.platform().resident_blocks();
        assert!(resident <= 256 << 10, "{resident} bytes of {count} blocks that are hardly touched");
    }
}

#[test]
fn half_touched_blocks_are_kept_too() {
    let mut peaks = Peaks::new();
    let mut slots: Vec<Part> = (0..8).map(|_| peaks.alloc(5 * MIB)).collect();
    let len = |random: usize| 4 * MIB + 1 + random % (4 * MIB);
    replace(&mut peaks, &mut slots, 400, len, |len| len / 2);
    take_calls(&peaks);
    replace(&mut peaks, &mut slots, 400, len, |len| len / 2);
    let ([mapped, ..], _) = take_calls(&peaks);
    assert!(mapped < 20, "{mapped} of 400 blocks mapped anew");
    peaks.check_churn("half-touched blocks");
}

/// A program that fills its blocks after it had hardly touched them is noticed.
#[test]
fn blocks_that_are_filled_all_at_once_cost_no_peak() {
    for count in [1, 4] {
        let mut peaks = Peaks::new();
        let mut slots: Vec<Part> = (0..count).map(|_| peaks.alloc(8 * MIB)).collect();
        replace(&mut peaks, &mut slots, 2 * LOOKED_AT, |_| 8 * MIB, |_| PAGE);
        replace(&mut peaks, &mut slots, LOOKED_AT, |_| 8 * MIB, |len| len);
        slots.into_iter().for_each(|part| peaks.free(part));
        let mut part = peaks.filled(5 * MIB);
        for len in [8, 12, 16, 24, 32, 40] {
            peaks.copy(&mut part, len * MIB);
        }
        peaks.check(&format!("{count} blocks filled at last, and a buffer that grows"));
    }
}

/// A step of a program with a slot.
#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, usize),
    Zeroed(usize, usize),
    Realloc(usize),
    Free,
    Calm,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let len = || prop_oneof![4 * MIB + 1..8 * MIB, 4 * MIB + 1..20 * MIB];
    let step = prop_oneof![
        4 => (len(), 0usize..4).prop_map(|(len, quarters)| Step::Alloc(len, quarters)),
        4 => (len(), 0usize..4).prop_map(|(len, quarters)| Step::Zeroed(len, quarters)),
        2 => len().prop_map(Step::Realloc),
        4 => Just(Step::Free),
        1 => Just(Step::Calm),
    ];
    (0usize..5, step)
}

/// Writes `mark` to a byte of each of the first `len` bytes' pages.
fn mark(part: &mut Part, len: usize, mark: u8) {
    // SAFETY: inside the block.
    (0..len).step_by(PAGE).for_each(|at| unsafe { part.addr.add(at).write(mark) });
    part.touched = len;
}

fn holds(part: &Part, len: usize, mark: u8) -> bool {
    // SAFETY: inside the block.
    (0..len).step_by(PAGE).all(|at| unsafe { part.addr.add(at).read() } == mark)
}

fn is_zero(part: &Part, len: usize) -> bool {
    // SAFETY: inside the block.
    let bytes = unsafe { std::slice::from_raw_parts(part.addr, len) };
    *bytes == vec![0; len][..]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_block_is_its_own_and_zero_where_it_was_asked_for(steps in prop::collection::vec(step(), 1..30)) {
        let peaks = Peaks::new();
        let mut slots: [Option<(Part, u8)>; 5] = Default::default();
        for (i, (slot, step)) in steps.into_iter().enumerate() {
            let slot = &mut slots[slot];
            if let Some((part, written)) = slot {
                prop_assert!(holds(part, part.touched, *written));
                match step {
                    Step::Realloc(len) => {
                        // SAFETY: the block is the test's.
                        part.addr = unsafe { peaks.heap.realloc(part.addr, len) };
                        part.touched = part.touched.min(len);
                        prop_assert!(holds(part, part.touched, *written));
                    }
                    _ => {
                        // SAFETY: the block is the test's.
                        unsafe { peaks.heap.free(part.addr) };
                        *slot = None;
                    }
                }
            }
            match step {
                Step::Alloc(len, quarters) => {
                    let mut part = peaks.alloc(len);
                    mark(&mut part, len / 4 * quarters, i as u8 + 1);
                    *slot = Some((part, i as u8 + 1));
                }
                Step::Zeroed(len, quarters) => {
                    let mut part = Part { addr: peaks.heap.alloc_zeroed(len), touched: 0 };
                    prop_assert!(is_zero(&part, len));
                    mark(&mut part, len / 4 * quarters, i as u8 + 1);
                    *slot = Some((part, i as u8 + 1));
                }
                Step::Calm => {
                    peaks.heap.platform().pass_ms(300);
                    peaks.heap.reclaim().balance_calm();
                }
                Step::Realloc(_) | Step::Free => {}
            }
            peaks.heap.audit().unwrap();
        }
        // SAFETY: the blocks are the test's.
        slots.into_iter().flatten().for_each(|(part, _)| unsafe { peaks.heap.free(part.addr) });
        prop_assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
        peaks.heap.purge();
    }
}
