//! Hint lists against a hint bitmap: what marking a pageblock costs, and finding the next one to report.
//!
//! `cargo run --release -p weir-memory-core --example hints`; the figures are in docs/design.

use std::hint::black_box;
use std::time::Instant;

/// As large as a pageblock's descriptor; the links lie where they lie there.
#[repr(C, align(32))]
#[derive(Clone)]
struct Block {
    _bitmaps: [u64; 16],
    _lists: [u32; 3],
    next: u32,
    prev: u32,
}

const NONE: u32 = u32::MAX;
const ROUNDS: u32 = 4_000_000;

struct List {
    blocks: Vec<Block>,
    ends: [u32; 2],
}

impl List {
    fn add(&mut self, block: u32) {
        let tail = std::mem::replace(&mut self.ends[1], block);
        if tail == NONE {
            self.ends[0] = block;
        } else {
            self.blocks[tail as usize].next = block;
        }
        let block = &mut self.blocks[block as usize];
        (block.next, block.prev) = (NONE, tail);
    }

    fn remove(&mut self, block: u32) {
        let (next, prev) = (self.blocks[block as usize].next, self.blocks[block as usize].prev);
        if next == NONE {
            self.ends[1] = prev
        } else {
            self.blocks[next as usize].prev = prev
        }
        if prev == NONE { self.ends[0] = next } else { self.blocks[prev as usize].next = next }
    }
}

fn ns(f: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    f();
    begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn main() {
    println!("| heap | mark and unmark, list | bitmap | next of one, list | bitmap |\n|---|--:|--:|--:|--:|");
    for gib in [1usize, 64, 1024] {
        let count = gib * 512;
        let block = Block { _bitmaps: [0; 16], _lists: [0; 3], next: NONE, prev: NONE };
        let mut list = List { blocks: vec![block; count], ends: [NONE; 2] };
        let mut bits = vec![0u64; count / 64];
        // A quarter is marked; the marks move at random.
        (0..count as u32).step_by(4).for_each(|block| list.add(block));
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize % (count / 4) * 4) as u32
        };
        let marks: Vec<u32> = (0..1 << 16).map(|_| random()).collect();
        let mark = |i: u32| marks[i as usize % marks.len()];
        let by_list = ns(|| {
            for i in 0..ROUNDS {
                list.remove(mark(i));
                list.add(mark(i));
            }
        });
        let by_bits = ns(|| {
            for i in 0..ROUNDS {
                let at = mark(i) as usize;
                bits[at / 64] &= !(1 << (at % 64));
                bits[at / 64] |= 1 << (at % 64);
                black_box(&mut bits);
            }
        });
        bits.fill(0);
        let from_list = ns(|| (0..ROUNDS).for_each(|_| drop(black_box(list.ends[0]))));
        // One mark, anywhere: on average half of the bitmap is gone over.
        let rounds = ROUNDS / 400;
        let begin = Instant::now();
        for i in 0..rounds {
            let at = mark(i) as usize;
            bits[at / 64] |= 1 << (at % 64);
            black_box(bits.iter().position(|&word| word != 0));
            bits[at / 64] = 0;
        }
        let from_bits = begin.elapsed().as_nanos() as f64 / f64::from(rounds);
        println!("| {gib} GiB | {by_list:.1} ns | {by_bits:.1} ns | {from_list:.1} ns | {from_bits:.0} ns |");
    }
}

fn drop<T>(_: T) {}
