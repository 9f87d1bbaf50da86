//! The sampled blocks by address: what to take off when one is freed.
//!
//! A hash table with linear probing, of fixed length, at most three quarters full. So each search ends at a free slot,
//! after a few steps. A removal moves the blocks behind it back where they would have been without it. So there are no
//! marks of removed blocks that would fill the table up over time.

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// Address of the block; 0: the slot is free.
    pub(super) block: usize,
    /// Place of the stack in the table of stacks.
    pub(super) stack: usize,
    /// Objects that the sample stands for.
    pub(super) objects: u64,
    /// Bytes that the sample stands for.
    pub(super) bytes: u64,
    /// Bytes of the block, as they were asked for. What it stands for is rounded, so that the size does not follow from it.
    pub(super) size: usize,
}

impl Sample {
    /// The bytes that it stands for.
    pub(crate) fn weight(&self) -> u64 {
        self.bytes
    }

    /// The bytes of the block, as they were asked for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

const FREE: Sample = Sample { block: 0, stack: 0, objects: 0, bytes: 0, size: 0 };

/// The table.
pub(super) struct Samples {
    /// A power of two of them; zero is free.
    slots: &'static mut [Sample],
    used: usize,
}

impl Samples {
    /// An empty table in zeroed slots.
    pub(super) fn new(slots: &'static mut [Sample]) -> Self {
        debug_assert!(slots.len().is_power_of_two());
        Self { slots, used: 0 }
    }

    fn home(&self, block: usize) -> usize {
        // Blocks begin at pages: the bits below tell nothing apart. The factor is 2^64 over the golden ratio.
        let product = (block as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (product >> 32) as usize & (self.slots.len() - 1)
    }

    /// Slots from one to another, in the order of probing.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }

    /// The slot of the block, or the free one where it would be.
    fn find(&self, block: usize) -> usize {
        let mut at = self.home(block);
        while self.slots[at].block != 0 && self.slots[at].block != block {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Adds a block that is not in the table; `false`: there is no place.
    pub(super) fn insert(&mut self, sample: Sample) -> bool {
        if self.used >= self.slots.len() / 4 * 3 {
            return false;
        }
        let at = self.find(sample.block);
        debug_assert!(self.slots[at] == FREE, "sampled twice");
        self.slots[at] = sample;
        self.used += 1;
        true
    }

    /// Takes a block out.
    pub(super) fn remove(&mut self, block: usize) -> Option<Sample> {
        let mut hole = self.find(block);
        let found = self.slots[hole];
        if found.block == 0 {
            return None;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & (self.slots.len() - 1);
            let next = self.slots[at];
            if next.block == 0 {
                break;
            }
            // It may go back to the hole unless its search begins behind that.
            if self.distance(self.home(next.block), at) >= self.distance(hole, at) {
                self.slots[hole] = next;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.used -= 1;
        Some(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::profile::interval::next_random;
    use std::boxed::Box;
    use std::collections::BTreeMap;
    use std::vec;

    fn sample(block: usize) -> Sample {
        Sample { block, stack: block % 7, objects: block as u64, bytes: 3 * block as u64, size: 3 }
    }

    #[test]
    fn it_keeps_what_a_map_keeps() {
        let mut table = Samples::new(Box::leak(vec![FREE; 64].into_boxed_slice()));
        let (mut model, mut state) = (BTreeMap::new(), 9);
        let (mut refused, mut removed) = (0, 0);
        for _ in 0..20_000 {
            let block = (next_random(&mut state) as usize % 100 + 1) * 4096;
            if next_random(&mut state).is_multiple_of(5) {
                assert_eq!(table.remove(block), model.remove(&block), "{block:#x}");
                removed += 1;
            } else if !model.contains_key(&block) {
                let fits = model.len() < 48;
                assert_eq!(table.insert(sample(block)), fits);
                refused += usize::from(!fits);
                if fits {
                    model.insert(block, sample(block));
                }
            }
            assert_eq!(table.used, model.len());
        }
        assert!(refused > 100 && removed > 100);
        for block in model.into_keys() {
            assert_eq!(table.remove(block), Some(sample(block)));
        }
        assert!(table.slots.iter().all(|slot| *slot == FREE));
    }
}
