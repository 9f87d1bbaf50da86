//! Small programs in the manner of three that allocator papers always use. They are cfrac (numbers that live for a
//! moment), espresso (sets that are copied, grown and merged) and barnes. In barnes a tree is built and torn down
//! each step.

use crate::base::prelude::*;

/// A number of a few 64-bit limbs, each on the heap: the length in word 0, then the limbs, lowest first.
#[derive(Clone, Copy)]
struct LimbNumber(Block);

impl LimbNumber {
    fn small(value: u64) -> LimbNumber {
        let block = Block::new(16);
        block.set_word(0, 1);
        block.set_word(1, value);
        LimbNumber(block)
    }

    /// `self * times + plus`, cut at seven limbs: always a new block, as cfrac's numbers are.
    fn times_plus(self, times: u64, plus: u64) -> LimbNumber {
        let length = self.0.word(0).min(7) as usize;
        let result = Block::new((length + 2) * 8);
        let mut carry = u128::from(plus);
        for limb in 1..=length {
            carry += u128::from(self.0.word(limb)) * u128::from(times);
            result.set_word(limb, carry as u64);
            carry >>= 64;
        }
        let grown = carry != 0 && length < 7;
        if grown {
            result.set_word(length + 1, carry as u64);
        }
        result.set_word(0, (length + usize::from(grown)) as u64);
        LimbNumber(result)
    }

    fn remainder(self, by: u64) -> u64 {
        let length = self.0.word(0) as usize;
        (1..=length).rev().fold(0u128, |rest, limb| ((rest << 64) | u128::from(self.0.word(limb))) % u128::from(by))
            as u64
    }

    fn free(self) {
        self.0.free();
    }
}

/// Convergents of the continued fraction of a square root, as cfrac makes them: p' = a p + q. Counts numbers made.
pub fn cfrac(run: &Run) -> u64 {
    let steps = run.scaled(6_000_000);
    let mut random = Random::new(run.seed, 0);
    let (mut p, mut q) = (LimbNumber::small(1), LimbNumber::small(0));
    for _ in 0..steps {
        let quotient = random.next() >> 56 | 1;
        let scratch = q.times_plus(3, 1);
        let next = p.times_plus(quotient, scratch.remainder(1_000_003));
        scratch.free();
        let small = LimbNumber::small(next.remainder(65_537));
        q.free();
        (q, p) = (p, next);
        small.free();
        if p.0.word(0) >= 7 {
            p.free();
            p = LimbNumber::small(quotient);
        }
    }
    p.free();
    q.free();
    steps * 3
}

/// Covers of bit sets: copy a set, meet it with another, keep it or not, grow the cover's table. Counts sets made.
pub fn espresso(run: &Run) -> u64 {
    let rounds = run.scaled(20_000);
    let mut random = Random::new(run.seed, 0);
    let mut made = 0;
    for _ in 0..rounds {
        let words = random.between(1, 12);
        let mut cover = SetTable::new();
        for _ in 0..64 {
            cover.push(set(words, |_| random.next()));
        }
        for _ in 0..1_000 {
            let (a, b) = (cover.get(random.below(cover.length)), cover.get(random.below(cover.length)));
            let meet = set(words, |word| a.word(word) & b.word(word));
            made += 1;
            if meet.word(0) & 7 == 0 && cover.length < 600 {
                cover.push(meet);
            } else {
                cover.replace(random.below(cover.length), meet);
            }
        }
        made += 64;
        cover.free();
    }
    made
}

fn set(words: usize, mut value: impl FnMut(usize) -> u64) -> Block {
    let block = Block::new(words * 8);
    (0..words).for_each(|word| block.set_word(word, value(word)));
    block
}

/// A table of sets that grows by realloc, as espresso's do.
struct SetTable {
    table: Block,
    length: usize,
    capacity: usize,
}

impl SetTable {
    fn new() -> SetTable {
        SetTable { table: Block::new(8 * 8), length: 0, capacity: 8 }
    }

    fn get(&self, index: usize) -> Block {
        Block::from_address(self.table.word(index) as *mut u8)
    }

    fn push(&mut self, set: Block) {
        if self.length == self.capacity {
            self.capacity += self.capacity / 2;
            self.table = self.grown();
        }
        self.table.set_word(self.length, set.address() as u64);
        self.length += 1;
    }

    /// `Block::resized` writes the first byte; a table's must stay.
    fn grown(&self) -> Block {
        let first = self.table.word(0);
        let table = self.table.resized(self.capacity * 8);
        table.set_word(0, first);
        table
    }

    fn replace(&mut self, index: usize, set: Block) {
        self.get(index).free();
        self.table.set_word(index, set.address() as u64);
    }

    fn free(self) {
        (0..self.length).for_each(|index| self.get(index).free());
        self.table.free();
    }
}

const BODIES: usize = 20_000;
/// Words of a tree node: eight children, then count, mass and centre.
const NODE_WORDS: usize = 13;
const DEPTH: u32 = 12;

/// Builds an octree over moving bodies, sums over it, frees it. Counts nodes made.
pub fn barnes(run: &Run) -> u64 {
    let mut random = Random::new(run.seed, 0);
    let mut bodies: Vec<u64> = (0..BODIES).map(|_| random.next()).collect();
    let mut made = 0;
    for _ in 0..run.scaled(240) {
        let root = Block::zeroed(NODE_WORDS * 8);
        root.set_word(0, 0);
        made += 1 + bodies.iter().map(|&body| insert(root, body)).sum::<u64>();
        black_box(walk(root));
        for body in &mut bodies {
            *body = body.wrapping_add(random.next() >> 20);
        }
    }
    made
}

/// Three bits of the body's place choose the child at each level, until one is empty.
fn insert(root: Block, body: u64) -> u64 {
    let mut node = root;
    for level in 0..DEPTH {
        node.set_word(9, node.word(9).wrapping_add(body >> 32));
        let child = (body >> (61 - 3 * level)) as usize & 7;
        let address = node.word(child);
        if address == 0 {
            let leaf = Block::zeroed(NODE_WORDS * 8);
            leaf.set_word(0, 0);
            leaf.set_word(9, body >> 32);
            node.set_word(child, leaf.address() as u64);
            return 1;
        }
        node = Block::from_address(address as *mut u8);
    }
    0
}

/// Sums the masses and frees the nodes, children first.
fn walk(node: Block) -> u64 {
    let mut sum = node.word(9);
    for child in 0..8 {
        let address = node.word(child);
        if address != 0 {
            sum = sum.wrapping_add(walk(Block::from_address(address as *mut u8)));
        }
    }
    node.free();
    sum
}
