//! The heap profile against a model of what was allocated and freed, to the byte.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use weir_core::base::size_class::MAX_SIZE;
use weir_core::base::time::Time;
use weir_core::base::units::PAGE;
use weir_core::heap::Heap;
use weir_core::profile::interval::next_random;
use weir_core::profile::layout::{MAGIC, VERSION};
use weir_core::profile::recorder::Origin;

use crate::fake::Fake;
use crate::held::layout;
use crate::profile::{Counts, counted, heap, live, table};

const MIB: usize = 1 << 20;

struct Block {
    len: usize,
    /// The stack that it is a sample of.
    stack: Option<usize>,
    /// A resized block may be in a class larger than its size's.
    is_resized: bool,
}

/// A program that does at random what programs do with blocks, and knows what the profile has to say.
struct Program {
    heap: Box<Heap<Fake>>,
    blocks: BTreeMap<usize, Block>,
    counts: BTreeMap<Vec<usize>, Counts>,
    state: u64,
}

fn frames_of(stack: usize) -> Vec<usize> {
    (0..=stack * 7).map(|depth| 0x40_0000 + stack * 0x1000 + depth).collect()
}

impl Program {
    fn random(&mut self, below: usize) -> usize {
        next_random(&mut self.state) as usize % below
    }

    fn size(&mut self) -> usize {
        // At a mean of 1 a block of 40 bytes and more is sampled for certain, and counts for itself alone.
        let most = [200, MAX_SIZE, 100_000, 6 * MIB][self.random(4)];
        40 + self.random(most - 40)
    }

    fn add(&mut self, addr: *mut u8, block: Block) {
        let Block { len, stack, .. } = block;
        // SAFETY: a block of at least that length, fresh or resized by this program.
        unsafe { addr.write_bytes(0xa5, len.min(3 * PAGE)) };
        if let Some(stack) = stack {
            let counts = self.counts.entry(frames_of(stack)).or_default();
            [1, len as u64, 1, len as u64].iter().zip(counts).for_each(|(by, count)| *count += by);
        }
        // SAFETY: the block is live.
        assert!(unsafe { self.heap.usable_size(addr) } >= len);
        assert!(self.blocks.insert(addr as usize, block).is_none());
    }

    fn remove(&mut self) -> Option<(*mut u8, Block)> {
        let nth = self.random(self.blocks.len().max(1));
        let addr = *self.blocks.keys().nth(nth)?;
        let block = self.blocks.remove(&addr)?;
        if let Some(stack) = block.stack {
            let counts = self.counts.get_mut(&frames_of(stack)).unwrap();
            counts[0] -= 1;
            counts[1] -= block.len as u64;
        }
        Some((addr as *mut u8, block))
    }

    fn alloc(&mut self) {
        let (size, stack) = (self.size(), self.random(9));
        let (frames, align) = (frames_of(stack), 16 << self.random(12));
        let random = next_random(&mut self.state);
        let origin = Origin { frames: &frames, mean: 1, random };
        let is_zeroed = random.is_multiple_of(2);
        if self.random(2) == 0 {
            let addr = self.heap.samples().alloc(layout(align, size), is_zeroed, origin);
            assert!((addr as usize).is_multiple_of(align) && !addr.is_null());
            if is_zeroed {
                // SAFETY: fresh, of that length.
                let bytes = unsafe { std::slice::from_raw_parts(addr, size.min(3 * PAGE)) };
                assert!(bytes.iter().all(|&byte| byte == 0));
            }
            self.add(addr, Block { len: size, stack: Some(stack), is_resized: false });
        } else {
            let addr = if is_zeroed { self.heap.alloc_zeroed(size) } else { self.heap.alloc(size) };
            self.add(addr, Block { len: size, stack: None, is_resized: false });
        }
    }

    fn free(&mut self) {
        let Some((addr, block)) = self.remove() else { return };
        let by_size = block.stack.is_none() && !block.is_resized && self.random(2) == 0;
        // SAFETY: a live block, given up; by its size only where that is allowed.
        unsafe { if by_size { self.heap.free_sized(addr, block.len) } else { self.heap.free(addr) } }
    }

    fn realloc(&mut self) {
        let (size, stack) = (self.size(), self.random(9));
        let frames = frames_of(stack);
        let Some((addr, block)) = self.remove() else { return };
        let origin = Origin { frames: &frames, mean: 1, random: 1 };
        let is_sampled = self.random(2) == 0;
        // SAFETY: a live block, given up for the new one.
        let new = unsafe {
            if is_sampled { self.heap.samples().realloc(addr, size, origin) } else { self.heap.realloc(addr, size) }
        };
        // SAFETY: the new block has as many bytes.
        let kept = unsafe { std::slice::from_raw_parts(new, size.min(block.len).min(3 * PAGE)) };
        assert!(kept.iter().all(|&byte| byte == 0xa5));
        self.add(new, Block { len: size, stack: is_sampled.then_some(stack), is_resized: true });
    }
}

#[test]
fn counts_are_exact_where_every_sample_counts_for_itself() {
    for seed in 1..=4 {
        let mut program = Program { heap: heap(), blocks: BTreeMap::new(), counts: BTreeMap::new(), state: seed };
        program.heap.profile().switch(program.heap.platform(), 1, Time(77)).unwrap();
        for step in 0..1500 {
            match program.random(8) {
                0..4 => program.alloc(),
                4..7 => program.free(),
                _ => program.realloc(),
            }
            if step % 50 == 0 {
                assert_eq!(counted(&program.heap), program.counts, "seed {seed}, step {step}");
            }
        }
        while !program.blocks.is_empty() {
            program.free();
        }
        assert_eq!(counted(&program.heap), program.counts);
        assert_eq!((live(&program.heap), program.heap.profile().live()), ([0, 0], 0));
        let header = &table(&program.heap).header;
        assert_eq!((header.magic.load(Relaxed), header.version.load(Relaxed)), (MAGIC, VERSION));
        assert_eq!((header.mean_bytes.load(Relaxed), header.began_ns.load(Relaxed)), (1, 77));
        assert_eq!(header.stacks.load(Relaxed) as usize, program.counts.len());
        program.heap.audit().unwrap();
        assert_eq!(program.heap.platform().take_misuses(), []);
    }
}
