//! Blocks mapped on their own: what keeping freed ones costs at the peak, and what it saves.

use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::run::Run;
use weir_core::base::units::PAGE;
use weir_core::heap::Heap;
use weir_core::platform::{Diagnostics, Memory};
use weir_core::reclaim::budget::Room;

use crate::fake::{Call, Fake, memory};
use crate::held::layout;

pub const MIB: usize = 1 << 20;

/// A heap whose blocks are resident as far as they were touched, and the peaks of what is held and of what is resident.
pub struct Peaks {
    pub heap: Box<Heap<Fake>>,
    /// Bytes that the program has touched of what it holds.
    live: usize,
    live_peak: usize,
    resident_peak: usize,
}

/// A block, and how many of its bytes were touched.
pub struct Part {
    pub addr: *mut u8,
    pub touched: usize,
}

impl Peaks {
    pub fn new() -> Self {
        let fake = Fake::new();
        fake.really.store(true, Relaxed);
        let heap = Box::new(Heap::new(fake));
        heap.prepare();
        // The table of blocks is resident too, and the page for those that are lent to this CPU.
        for _ in 0..8 {
            let block = heap.alloc(5 * MIB);
            // SAFETY: allocated just now.
            unsafe { heap.free(block) };
        }
        heap.reclaim().balance_calm();
        heap.reclaim().balance_calm();
        Self { heap, live: 0, live_peak: 0, resident_peak: 0 }
    }

    pub fn alloc(&self, len: usize) -> Part {
        let addr = self.heap.alloc(len);
        assert!(!addr.is_null());
        Part { addr, touched: 0 }
    }

    /// Touches the block up to `len` bytes.
    pub fn touch(&mut self, part: &mut Part, len: usize) {
        for at in (part.touched..len).step_by(PAGE) {
            // SAFETY: inside the block.
            unsafe { part.addr.add(at).write_volatile(1) };
        }
        self.live += len - part.touched;
        part.touched = len;
        self.live_peak = self.live_peak.max(self.live);
        self.resident_peak = self.resident_peak.max(self.heap.platform().resident_blocks());
    }

    pub fn filled(&mut self, len: usize) -> Part {
        let mut part = self.alloc(len);
        self.touch(&mut part, len);
        part
    }

    pub fn free(&mut self, part: Part) {
        self.live -= part.touched;
        // SAFETY: the block is the test's.
        unsafe { self.heap.free(part.addr) };
    }

    pub fn realloc(&mut self, part: &mut Part, len: usize) {
        // SAFETY: the block is the test's.
        part.addr = unsafe { self.heap.realloc(part.addr, len) };
        assert!(!part.addr.is_null());
        self.touch(part, len);
    }

    /// Moves to a new buffer of `len` bytes: as the old one is freed, only so much of the new is touched.
    pub fn copy(&mut self, part: &mut Part, len: usize) {
        let mut new = self.alloc(len);
        self.touch(&mut new, part.touched);
        self.free(std::mem::replace(part, new));
        self.touch(part, len);
    }

    /// Kept blocks raised the peak by a tenth at most.
    pub fn check(&self, what: &str) {
        let (live, resident) = (self.live_peak / MIB, self.resident_peak / MIB);
        assert!(self.resident_peak <= self.live_peak / 10 * 11, "{what}: {resident} MiB at the peak for {live}");
    }

    /// Kept blocks raised the peak by a third at most where blocks are replaced all the time. The C library's heap has as much in
    /// holes then.
    pub fn check_churn(&self, what: &str) {
        let (live, resident) = (self.live_peak / MIB, self.resident_peak / MIB);
        assert!(self.resident_peak <= self.live_peak / 3 * 4, "{what}: {resident} MiB at the peak for {live}");
    }
}

pub fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn buffers_that_grow_cost_no_peak() {
    for count in [1, 3] {
        for (how, next) in [("doubles", 2.0), ("grows by half", 1.5), ("grows by an eighth", 1.125)] {
            for copied in [true, false] {
                let mut peaks = Peaks::new();
                let mut len = 5 * MIB;
                let mut parts: Vec<Part> = (0..count).map(|_| peaks.filled(len)).collect();
                while len < 40 * MIB {
                    len = (len as f64 * next) as usize;
                    for part in &mut parts {
                        if copied { peaks.copy(part, len) } else { peaks.realloc(part, len) }
                    }
                }
                peaks.check(&format!("{count} buffers, copied {copied}, that each {how}"));
            }
        }
    }
}

/// Memory that was mapped and never touched is in no peak that could be kept below.
#[test]
fn a_sparse_block_makes_no_room_for_kept_ones() {
    let mut peaks = Peaks::new();
    let mut table = peaks.alloc(1 << 30);
    peaks.touch(&mut table, PAGE);
    let mut part = peaks.filled(5 * MIB);
    for len in [10, 20, 40] {
        peaks.copy(&mut part, len * MIB);
    }
    peaks.check("a buffer that doubles beside a sparse table");
}

#[test]
fn kept_blocks_make_room_for_blocks_of_another_size() {
    let mut peaks = Peaks::new();
    for (count, len) in [(12, 6), (8, 9), (12, 6), (7, 10), (1, 64), (12, 6)] {
        let parts: Vec<Part> = (0..count).map(|_| peaks.filled(len * MIB)).collect();
        parts.into_iter().for_each(|part| peaks.free(part));
    }
    peaks.check("bursts of blocks of several sizes");
}

#[test]
fn blocks_replaced_at_random_cost_no_peak_and_few_mappings() {
    let (mut peaks, mut state) = (Peaks::new(), 42);
    let mut size = || 5 * MIB + random(&mut state) % (10 * MIB);
    let mut parts: Vec<Part> = (0..8).map(|_| peaks.filled(size())).collect();
    peaks.heap.platform().fail(Call::Map, 0);
    for i in 0..200 {
        let old = parts.remove(i * 5 % 7);
        peaks.free(old);
        parts.push(peaks.filled(size()));
    }
    peaks.check("blocks replaced at random");
    let mapped = peaks.heap.platform().calls(Call::Map);
    assert!(mapped < 30, "{mapped} of 200 blocks mapped anew");
}

/// One buffer at a time, of any size up to the largest so far. What is cut off a kept block is kept, and joined again.
#[test]
fn one_buffer_of_changing_size_is_never_mapped_anew() {
    let mut peaks = Peaks::new();
    let first = peaks.filled(30 * MIB);
    peaks.free(first);
    let (mut state, resident) = (42, peaks.heap.platform().resident_blocks());
    peaks.heap.platform().fail(Call::Map, 0);
    for _ in 0..200 {
        let part = peaks.filled(5 * MIB + random(&mut state) % (25 * MIB));
        peaks.free(part);
        assert_eq!(peaks.heap.platform().resident_blocks(), resident, "touched anew");
    }
    assert_eq!(peaks.heap.platform().calls(Call::Map), 0);
}

/// A buffer that grows from scratch again and again. In the end it is neither mapped nor moved, whether its growth ends in the
/// heap's sizes or beyond them.
#[test]
fn a_buffer_that_grows_again_takes_back_what_was_cut_off() {
    for len in [4 * MIB, 8 * MIB, 20 * MIB] {
        for doubles in [true, false] {
            let mut peaks = Peaks::new();
            let mut grow = || {
                let mut now = len / 16;
                let mut part = peaks.filled(now);
                while now < len {
                    now += if doubles { now } else { len / 16 };
                    peaks.realloc(&mut part, now);
                }
                peaks.free(part);
                let fake = peaks.heap.platform();
                let calls = [Call::Map, Call::Remap].map(|call| fake.calls(call));
                [Call::Map, Call::Remap].into_iter().for_each(|call| fake.fail(call, 0));
                calls
            };
            (0..4).for_each(|_| _ = grow());
            for _ in 0..5 {
                assert_eq!(grow(), [0, 0], "maps and remaps, {len} bytes, doubling {doubles}");
            }
        }
    }
}

/// Blocks that are replaced, and of which little is touched, take no more memory however often that happens. Else all of it would
/// seem to be gone by the time of the next reading, and each allocation would search for something to release.
#[test]
fn blocks_replaced_untouched_take_nothing_from_the_budget() {
    let mut peaks = Peaks::new();
    const GIB: u64 = 1 << 30;
    let mut parts: Vec<Part> = (0..100).map(|_| peaks.alloc(5 * MIB)).collect();
    parts.iter_mut().for_each(|part| peaks.touch(part, PAGE));
    peaks.heap.reclaim().read_room(Room::shared(GIB, GIB / 2));
    for i in 0..2_000 {
        peaks.free(parts.swap_remove(i * 7 % 100));
        parts.push(peaks.alloc(5 * MIB));
        peaks.touch(parts.last_mut().unwrap(), PAGE);
    }
    let left = peaks.heap.reclaim().budget_figures().free;
    // Until the program's habit is known each new block counts as a whole.
    assert!(left >= GIB as usize / 2 - 16 * 5 * MIB - 8 * MIB, "{left} bytes seem to be left");
    let released = &peaks.heap.platform().stats().given_back;
    let released: u64 = released.iter().map(|bytes| bytes.load(Relaxed)).sum();
    assert!(released <= 100 * PAGE as u64, "{released} bytes were released of which nothing was resident");
    parts.into_iter().for_each(|part| peaks.free(part));
}

/// A kept block that the system does not give again is unmapped, and a new one is in its place; whatever its length was.
#[test]
fn a_kept_block_that_cannot_be_renewed_gives_way_to_a_new_one() {
    let mut peaks = Peaks::new();
    for wanted in [5 * MIB, 6 * MIB] {
        let mut part = peaks.alloc(5 * MIB);
        peaks.touch(&mut part, PAGE);
        peaks.free(part);
        let fake = peaks.heap.platform();
        let unmapped = fake.unmapped.load(Relaxed);
        fake.fail(Call::Renew, u64::MAX);
        let new = peaks.alloc(wanted);
        let fake = peaks.heap.platform();
        fake.fail_nothing();
        assert_eq!(fake.unmapped.load(Relaxed), unmapped + 1, "{wanted}");
        assert_eq!(peaks.heap.audit().unwrap().mapped, 1);
        // SAFETY: the block is the test's.
        assert!(unsafe { peaks.heap.usable_size(new.addr) } >= wanted);
        peaks.free(new);
        peaks.heap.purge();
        assert_eq!(peaks.heap.platform().stats().mapped_bytes.load(Relaxed), 0);
    }
}

/// A page that few looks missed goes too where everything is to go.
#[test]
fn a_page_that_no_look_saw_does_not_stay() {
    let peaks = Peaks::new();
    let before = peaks.heap.platform().resident_blocks();
    let part = peaks.alloc(64 * MIB);
    // SAFETY: inside the block.
    unsafe { part.addr.add(11 * MIB).write_volatile(1) };
    // SAFETY: the block is the test's.
    unsafe { peaks.heap.free(part.addr) };
    peaks.heap.purge();
    assert_eq!(peaks.heap.platform().resident_blocks(), before);
}

/// A pair of malloc and free of one block. There are two looks at a block of two pageblocks that is hardly touched, and none at
/// one that has memory behind all of it.
#[test]
fn no_pageblock_is_looked_at_twice() {
    for (touched, most) in [(PAGE, 2), (5 * MIB, 0)] {
        let mut peaks = Peaks::new();
        let mut warm = peaks.alloc(5 * MIB);
        peaks.touch(&mut warm, touched);
        peaks.free(warm);
        peaks.heap.platform().take_looks();
        for _ in 0..10 {
            let mut part = peaks.alloc(5 * MIB);
            peaks.touch(&mut part, touched);
            peaks.free(part);
            let looks = peaks.heap.platform().take_looks();
            assert!(looks.len() <= most, "{looks:x?}");
        }
    }
    for len in [3, 5, 6, 8, 15, 64].map(|mib| mib * MIB) {
        let peaks = Peaks::new();
        peaks.heap.purge();
        let align = if len < 4 * MIB { 8 * MIB } else { 16 };
        let block = peaks.heap.alloc_aligned(layout(align, len));
        peaks.heap.platform().take_looks();
        // SAFETY: allocated just now.
        unsafe { peaks.heap.free(block) };
        let mut looks = peaks.heap.platform().take_looks();
        let count = looks.len();
        looks.sort_by_key(|run| run.addr);
        looks.dedup();
        assert!(looks.len() == count && count > 0, "{len}: {looks:x?}");
    }
}

/// What lies in swap is not resident, and a program that writes to it waits for the disk.
#[test]
fn a_freed_block_that_lies_in_swap_is_not_kept_there() {
    for (swapped, is_released) in [(0, false), (4 * MIB, false), (32 * MIB, true), (64 * MIB, true)] {
        for is_looked_at in [false, true] {
            let mut peaks = Peaks::new();
            let part = peaks.filled(64 * MIB);
            if is_looked_at {
                let next = peaks.alloc(5 * MIB);
                peaks.free(next);
            }
            let run = Run { addr: part.addr.addr(), len: 64 * MIB };
            memory::wipe(Run { len: swapped, ..run });
            peaks.heap.platform().take_released();
            peaks.free(part);
            let released = peaks.heap.platform().take_released().concat();
            // Nothing tells a block of which a part was never touched from one of which it is in swap, unless it was looked at.
            let expected = is_released && (is_looked_at || swapped == run.len);
            let is_whole = released.iter().any(|gone| gone.addr == run.addr && gone.len >= run.len);
            assert_eq!(is_whole, expected, "{swapped} {is_looked_at}: {released:x?}");
        }
    }
}

/// What lies behind the size that was asked for last is released where that was asked for before, and nowhere else.
#[test]
fn a_block_that_grows_inside_its_slack_releases_nothing() {
    let peaks = Peaks::new();
    let (heap, fake) = (&peaks.heap, peaks.heap.platform());
    fake.take_released();
    let mut block = heap.alloc(32 * MIB);
    let mut resize = |size: usize| {
        fake.fail(Call::Release, 0);
        // SAFETY: the block is the test's.
        block = unsafe { heap.realloc(block, size) };
        assert!(!block.is_null());
        fake.calls(Call::Release)
    };
    const STEP: usize = 64 << 10;
    for step in 1..=50 {
        assert_eq!(resize(32 * MIB + step * STEP), 0, "step {step}");
    }
    let most = 32 * MIB + 50 * STEP;
    assert_eq!(resize(most - MIB), 1);
    // Small steps down add up.
    assert_eq!([1, 2, 3, 4].map(|steps| resize(most - MIB - steps * STEP)), [0, 1, 0, 1]);
    assert_eq!([3, 2, 1, 0].map(|steps| resize(most - MIB - steps * STEP)), [0; 4]);
    let released = fake.take_released().concat();
    let begin = |size: usize| block.addr() + size;
    let below =
        [(most - MIB, most), (most - MIB - 2 * STEP, most - MIB), (most - MIB - 4 * STEP, most - MIB - 2 * STEP)];
    assert_eq!(released, below.map(|(from, to)| Run { addr: begin(from), len: to - from }));
    // SAFETY: the block is the test's.
    unsafe { heap.free(block) };
}

/// Resident bytes of zeroed runs of 1 MiB, one after another, each touched as `touch` says before it is freed.
fn zeroed_runs(report: u64, touch: impl Fn(&mut [u8])) -> Vec<usize> {
    let fake = Fake::new();
    fake.really.store(true, Relaxed);
    fake.tunables().report.set(report);
    let heap = Heap::new(fake);
    heap.prepare();
    let mut found = Vec::new();
    for _ in 0..4 {
        let block = heap.alloc_zeroed(MIB);
        found.push(heap.platform().resident(Run { addr: block as usize, len: MIB }).unwrap() * PAGE);
        // SAFETY: allocated just now.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block, MIB) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        let after_reads = Run { addr: block as usize, len: MIB };
        crate::fake::memory::wipe(after_reads);
        touch(bytes);
        // SAFETY: allocated above.
        unsafe { heap.free(block) };
    }
    heap.audit().unwrap();
    found
}

#[test]
fn a_run_that_was_hardly_touched_is_not_written_to_by_calloc() {
    // The page in the middle is what the first look is at.
    let sparse = |bytes: &mut [u8]| (bytes[0], bytes[MIB / 2]) = (1, 1);
    assert_eq!(zeroed_runs(1, sparse), [0; 4]);
    assert_eq!(zeroed_runs(0, sparse)[1..], [MIB; 3]);
    assert_eq!(zeroed_runs(1, |bytes| bytes.fill(1))[1..], [MIB; 3]);
    assert_eq!(zeroed_runs(1, |bytes| bytes[..MIB / 2].fill(1))[1..], [MIB; 3]);
}

#[test]
fn a_kept_block_serves_an_alignment_that_it_has() {
    let mut peaks = Peaks::new();
    let align = 2 * MIB;
    let alloc = |peaks: &Peaks, len: usize| peaks.heap.alloc_aligned(layout(align, len));
    let first = alloc(&peaks, 8 * MIB);
    // SAFETY: allocated just now, of this length; freed once.
    unsafe {
        first.write_bytes(1, 8 * MIB);
        peaks.heap.free(first);
    }
    let again = alloc(&peaks, 8 * MIB);
    assert_eq!(again, first, "it is the one that was kept");
    // SAFETY: as above.
    unsafe { peaks.heap.free(again) };
    // One that lies elsewhere does not, and none is cut or grown for it.
    let mut plain = peaks.alloc(8 * MIB);
    peaks.touch(&mut plain, 8 * MIB);
    peaks.free(plain);
    for len in [6 * MIB, 8 * MIB, 12 * MIB] {
        let block = alloc(&peaks, len);
        assert!(!block.is_null() && (block as usize).is_multiple_of(align), "{len}");
        // SAFETY: as above.
        unsafe { peaks.heap.free(block) };
    }
}
