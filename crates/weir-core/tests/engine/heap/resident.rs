//! Resident memory against what lives: buffers that grow, and sizes that change.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::units::PAGE;
use weir_core::heap::Heap;
use weir_core::platform::Diagnostics;

use crate::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Calls from one look at what is resident to the next.
const LOOK: usize = 64;

/// A heap whose blocks are not touched, and the most that can have been resident of it.
struct Meter {
    heap: Box<Heap<Fake>>,
    peak: usize,
    calls: usize,
}

impl Meter {
    fn new() -> Self {
        let heap = Box::new(Heap::new(Fake::new()));
        heap.prepare();
        Self { heap, peak: 0, calls: 0 }
    }

    /// In use or idle, or mapped on its own.
    fn resident(&self) -> usize {
        let audit = self.heap.audit().unwrap();
        let stats = self.heap.platform().stats();
        let in_use = stats.page_bytes.load(Relaxed) + stats.mapped_bytes.load(Relaxed);
        in_use as usize + audit.idle_pages * PAGE
    }

    /// Looks now and then: a look costs what the heap is long.
    fn look(&mut self) {
        self.calls += 1;
        if self.calls.is_multiple_of(LOOK) {
            self.peak = self.peak.max(self.resident());
        }
    }

    fn alloc(&mut self, size: usize) -> *mut u8 {
        let block = self.heap.alloc(size);
        assert!(!block.is_null());
        block
    }

    fn free(&mut self, block: *mut u8) {
        // SAFETY: the tests free what they hold.
        unsafe { self.heap.free(block) };
    }

    fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the tests hold it.
        let block = unsafe { self.heap.realloc(block, size) };
        assert!(!block.is_null());
        self.look();
        block
    }
}

/// `count` buffers grow in turn to `len` bytes by `step`, or by doubling; 4 KiB of objects stay from each step if `small`.
/// Returns the most that was resident and the most that lived.
fn grow(by_copies: bool, count: usize, len: usize, step: usize, small: bool) -> (usize, usize) {
    let mut meter = Meter::new();
    let (mut now, mut objects) = (64 * KIB, 0);
    let mut buffers: Vec<_> = (0..count).map(|_| meter.alloc(now)).collect();
    while now < len {
        now = if step == 0 { now * 2 } else { now + step };
        for buffer in &mut buffers {
            if by_copies {
                let copy = meter.alloc(now);
                meter.look();
                meter.free(std::mem::replace(buffer, copy));
            } else {
                *buffer = meter.realloc(*buffer, now);
            }
            if small {
                for _ in 0..40 {
                    meter.alloc(100);
                    objects += 112;
                }
            }
        }
    }
    meter.peak = meter.peak.max(meter.resident());
    (meter.peak, count * now + objects + if by_copies { now } else { 0 })
}

#[test]
fn a_buffer_that_grows_holds_little_more_than_it_has() {
    for by_copies in [false, true] {
        for (count, len) in [(1, 4 * MIB), (2, 4 * MIB), (20, MIB)] {
            for step in [0, 4 * KIB, 64 * KIB, 68_000] {
                for small in [false, true] {
                    // A buffer of the length it doubles to counts from the start, though it is not touched yet.
                    let spare = if by_copies && step == 0 { count.min(2) * len } else { 2 * MIB };
                    let (peak, live) = grow(by_copies, count, len, step, small);
                    let what = format!("copies {by_copies}, {count} of {len} by {step}, objects {small}");
                    assert!(peak <= live * 13 / 10 + spare, "{what}: {peak} for {live}");
                }
            }
        }
    }
}

/// 64 MiB in blocks of `before` bytes, all freed but one in `keep`; then 85 % of that in blocks of `after` bytes. Returns
/// the most that was resident and the most that was in use.
fn change(before: usize, keep: usize, after: usize) -> (usize, usize) {
    let mut meter = Meter::new();
    let all = 64 * MIB;
    let blocks: Vec<_> = (0..all / before).map(|_| meter.alloc(before)).collect();
    let used = |meter: &Meter| {
        let stats = meter.heap.platform().stats();
        (stats.page_bytes.load(Relaxed) + stats.mapped_bytes.load(Relaxed)) as usize
    };
    let most = used(&meter);
    for (i, block) in blocks.into_iter().enumerate() {
        if keep == 0 || i % keep > 0 {
            meter.free(block);
        }
    }
    let count = all * 85 / 100 / after;
    for i in 1..=count {
        meter.alloc(after);
        // From look to look it can only rise by what is allocated: less than what the peak may exceed.
        if i.is_multiple_of((4 * MIB / after).max(1)) {
            meter.peak = meter.peak.max(meter.resident());
        }
    }
    meter.peak = meter.peak.max(meter.resident());
    (meter.peak, most.max(used(&meter)))
}

#[test]
fn sizes_that_change_find_the_memory_that_is_there() {
    let larges = [300 * KIB, 600 * KIB, MIB, 2 * MIB, 5 * MIB / 2, 3 * MIB];
    let mut faults = Vec::new();
    for before in larges {
        for after in larges.into_iter().chain([4 * KIB, 5000, 20_000, 100_000, 5 * MIB]) {
            for keep in [0, 20] {
                let (peak, most) = change(before, keep, after);
                if peak > most * 11 / 10 + MIB {
                    faults.push(format!("{before}, 1 in {keep} kept, then {after}: {peak} for {most}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Blocks of one size replaced at random: each finds the hole of the last one freed. Little more is resident than lives,
/// and once all are there nothing is released any more.
#[test]
fn blocks_of_one_size_replaced_at_random_stay_where_they_are() {
    const SLOTS: usize = 64;
    for size in [160_000, 300 * KIB, 571_736, 900 * KIB, 1_143_480, 1_600_000, 5 * MIB / 2, 3 * MIB] {
        let mut meter = Meter::new();
        let (mut slots, mut state) = ([std::ptr::null_mut::<u8>(); SLOTS], 42_u64);
        let mut replace = |meter: &mut Meter, count: usize| {
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let slot = &mut slots[(state >> 32) as usize % SLOTS];
                if !slot.is_null() {
                    meter.free(*slot);
                }
                *slot = meter.alloc(size);
                meter.look();
            }
        };
        replace(&mut meter, 20 * SLOTS);
        assert!(meter.peak <= SLOTS * size * 11 / 10, "{} resident for {SLOTS} of {size}", meter.peak);
        meter.heap.platform().take_released();
        replace(&mut meter, 20 * SLOTS);
        assert!(meter.heap.platform().take_released().is_empty(), "released of {SLOTS} of {size}");
    }
}
