//! Blocks beyond the largest order, mapped on their own: where each begins, how long it is; and those lately freed.
//!
//! The table is open addressing keyed by the block's address, in memory of the platform's. It doubles when it is half
//! full and never shrinks (40 bytes for each block of more than 4 MiB).
//!
//! Which freed blocks are kept, and which is handed out again: `retain.rs`.

use crate::base::run::Run;
use crate::base::time::Time;
use crate::base::units::{Bytes, PAGE};
use crate::blocks::block::{Block, Kept};
use crate::blocks::cpu_blocks::Pairs;
use crate::blocks::habits::Churn;
use crate::blocks::habits::Expected;
use crate::blocks::habits::Filled;
use crate::policy::huge_page_advice::Density;
use crate::policy::refault::Recent;
use crate::policy::working_set::Peak;

/// Freed blocks kept at most: as many as a program may free and want again in one phase of its work.
pub(super) const KEPT: usize = 64;
/// Slots of the first table: a power of two, as every capacity is.
const FIRST_CAPACITY: usize = 64;
/// All blocks mapped on their own.
pub struct Blocks {
    slots: *mut Block,
    capacity: usize,
    /// Blocks in use.
    pub count: usize,
    /// Blocks to be inserted for which room is kept (see [`Blocks::reserve`]).
    reserved: usize,
    /// All of those in use.
    pub bytes: Bytes,
    /// Freed blocks, the oldest first.
    pub(super) kept: [Kept; KEPT],
    pub(super) kept_count: usize,
    /// What of those is resident.
    pub idle: Bytes,
    /// What of the blocks in use was not touched, as far as is known.
    pub untouched: Bytes,
    /// When those are looked at.
    pub watch: Watch,
    /// Peak over the last windows of what is in use and was touched.
    pub(super) peak: Peak<Bytes>,
    /// All that is here as in use was so at once, just after the last block was handed out. Else some lent blocks were free.
    pub(super) is_settled: bool,
    /// What of lent blocks was touched, as far as is known.
    pub(super) lent: Bytes,
    /// Which part of blocks is touched.
    pub filled: Filled,
    /// Bytes of blocks handed out that are expected to become resident.
    pub expected: Expected,
    /// Whether they are replaced all the time.
    pub churn: Churn,
    /// Looks that found other than was expected of a block that had been as expected.
    pub surprises: u8,
    /// Whether huge pages pay.
    pub density: Density,
    /// Kept blocks that went back lately.
    pub recent: Recent,
    /// What was done without the table.
    pub pairs: Pairs,
}

// SAFETY: `slots`, the only field that is not `Send` by itself, points to a mapping. This value owns the mapping alone,
// and it has nothing to do with a thread.
unsafe impl Send for Blocks {}

impl Blocks {
    /// No blocks.
    pub(crate) const fn new() -> Self {
        Self {
            slots: core::ptr::null_mut(),
            capacity: 0,
            count: 0,
            reserved: 0,
            bytes: Bytes::ZERO,
            kept: [Kept { block: Block::NONE, resident: Bytes::ZERO }; KEPT],
            kept_count: 0,
            idle: Bytes::ZERO,
            untouched: Bytes::ZERO,
            watch: Watch::new(),
            peak: Peak::new(Bytes::ZERO),
            is_settled: true,
            lent: Bytes::ZERO,
            filled: Filled::new(),
            expected: Expected::new(),
            churn: Churn::new(),
            surprises: 0,
            density: Density::new(),
            recent: Recent::NONE,
            pairs: Pairs::new(),
        }
    }

    // ---- the table ---------------------------------------------------------------------------------------------

    fn slot(&self, i: usize) -> *mut Block {
        self.slots.wrapping_add(i & (self.capacity - 1))
    }

    /// The slot that holds `addr`, or the empty one where it would go.
    fn find(&self, addr: usize) -> *mut Block {
        let mut i = home(addr);
        loop {
            let slot = self.slot(i);
            // SAFETY: `slot` masks the index, so the slot is inside the table, which callers know to have one. At least half of it
            // is empty, so the loop ends.
            let at = unsafe { (*slot).run.addr };
            if at == addr || at == 0 {
                return slot;
            }
            i += 1;
        }
    }

    /// The block that begins at `addr`.
    pub(crate) fn get(&self, addr: usize) -> Option<Block> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: there is a table, as its capacity is not 0, and `find` returns a slot of it; slots are plain data.
        let block = unsafe { *self.find(addr) };
        (block.run.addr == addr).then_some(block)
    }

    /// Copies the runs of blocks in use to `out`, from slot `from` on, which is then the one to go on from; returns how
    /// many.
    pub(crate) fn runs_from(&self, from: &mut usize, out: &mut [Run]) -> usize {
        let mut n = 0;
        while n < out.len() && *from < self.capacity {
            // SAFETY: a slot below the capacity, and the caller holds the lock that the table is reached through.
            let run = unsafe { (*self.slot(*from)).run };
            if run.addr != 0 {
                out[n] = run;
                n += 1;
            }
            *from += 1;
        }
        n
    }

    /// Copies the freed blocks to `out`; returns how many there are.
    pub(crate) fn copy_kept(&self, out: &mut [Kept; KEPT]) -> usize {
        *out = self.kept;
        self.kept_count
    }

    /// The memory of the table.
    pub(crate) fn memory(&self) -> Run {
        Run { addr: self.slots as usize, len: table_bytes(self.capacity) }
    }

    /// Keeps room for one block that is to be inserted; `Err`: there is none, and the capacity of the table to pass to
    /// [`Blocks::rehash`]. Any number of threads may be between this and their insertion, each in a slow system call.
    pub(crate) fn reserve(&mut self) -> Result<(), usize> {
        if (self.count + self.reserved + 1) * 2 > self.capacity {
            return Err((self.capacity * 2).max(FIRST_CAPACITY));
        }
        self.reserved += 1;
        Ok(())
    }

    /// Gives up the room that [`Blocks::reserve`] kept.
    pub(crate) fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// Moves to a zeroed table of `capacity` slots at `table`. Returns the memory to unmap: the old table, or the new
    /// one if another thread was quicker.
    pub(crate) fn rehash(&mut self, table: usize, capacity: usize) -> Option<Run> {
        if capacity <= self.capacity {
            return Some(Run { addr: table, len: table_bytes(capacity) });
        }
        let (old, old_capacity) = (self.slots, self.capacity);
        (self.slots, self.capacity) = (table as *mut Block, capacity);
        for i in 0..old_capacity {
            // SAFETY: `i` is below the old table's capacity. The new one is larger, mapped and zero, so `find` ends at an empty
            // slot of it. The caller unmaps the old one only after this.
            unsafe {
                let block = *old.add(i);
                if block.run.addr != 0 {
                    *self.find(block.run.addr) = block;
                }
            }
        }
        let len = table_bytes(old_capacity);
        (len != 0).then_some(Run { addr: old as usize, len })
    }

    /// Slots of the table.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The block in slot `i`, modulo the capacity.
    pub(super) fn at(&self, i: usize) -> Block {
        if self.capacity == 0 {
            return Block::NONE;
        }
        // SAFETY: there is a table, and `slot` masks the index, so the slot is inside it.
        unsafe { *self.slot(i) }
    }

    /// Writes what is known of a block, if it is in the table.
    pub(super) fn put(&mut self, block: Block) {
        let Some(before) = self.get(block.run.addr) else { return };
        self.lent = self.lent - before.lent_bytes() + block.lent_bytes();
        // SAFETY: the block is in the table, as `get` found it, so there is one, and `find` returns its slot.
        unsafe { *self.find(block.run.addr) = block };
    }

    /// Adds a block that is handed out, in the room that was reserved for it.
    pub(crate) fn insert(&mut self, block: Block) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
        // SAFETY: room was reserved, so there is a table with an empty slot, which `find` returns.
        unsafe { *self.find(block.run.addr) = block };
        self.count += 1;
        self.bytes += block.bytes();
        self.untouched += block.untouched;
        self.lent += block.lent_bytes();
        self.watch.note_newest(block.run.addr);
        self.note(Bytes::ZERO);
    }

    /// The block at `addr` has no memory behind it any more.
    pub(crate) fn released(&mut self, addr: usize) {
        let Some(block) = self.get(addr) else { return };
        self.untouched = self.untouched - block.untouched + block.bytes();
        self.put(Block { is_touched: false, untouched: block.bytes(), fresh: 0, ..block });
    }

    /// Takes a block out that is to come back in another place or length: room for it is kept.
    pub(crate) fn lift(&mut self, addr: usize) -> Option<Block> {
        let lifted = self.remove(addr)?;
        self.reserved += 1;
        Some(lifted)
    }

    /// Takes a block out.
    pub(crate) fn remove(&mut self, addr: usize) -> Option<Block> {
        let gone = self.get(addr)?;
        let mut hole = (self.find(addr) as usize - self.slots as usize) / size_of::<Block>();
        let mut at = hole;
        // Entries behind the hole that were pushed past it move back, so that no search stops short.
        loop {
            at += 1;
            // SAFETY: `slot` masks `at` to the table's capacity, which is not 0, as a block was found.
            let block = unsafe { *self.slot(at) };
            if block.run.addr == 0 {
                break;
            }
            let mask = self.capacity - 1;
            if (at.wrapping_sub(home(block.run.addr)) & mask) >= (at.wrapping_sub(hole) & mask) {
                // SAFETY: `hole` is the index of a slot, as `at` was when the hole moved there; `slot` masks it.
                unsafe { *self.slot(hole) = block };
                hole = at;
            }
        }
        // SAFETY: `slot` masks the index of the hole that is left, so this is a slot, and no other entry is in it.
        unsafe { *self.slot(hole) = Block::NONE };
        self.count -= 1;
        self.bytes -= gone.bytes();
        self.untouched -= gone.untouched;
        self.lent -= gone.lent_bytes();
        Some(gone)
    }
}

/// Bytes of a table of `capacity` slots, whole pages.
pub(crate) const fn table_bytes(capacity: usize) -> usize {
    (capacity * size_of::<Block>()).next_multiple_of(PAGE)
}

/// Where in the table a search for `addr` begins (multiplicative hashing; the capacity's mask is applied later).
fn home(addr: usize) -> usize {
    (addr / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

// Which blocks in use were looked at last, and when others are.

/// See the module.
#[derive(Debug)]
pub struct Watch {
    /// The block that was handed out last; 0: none.
    pub(super) newest: usize,
    /// The newest block was looked at as the next one was wanted.
    pub(super) is_seen: bool,
    /// The slot of the table that the next look at many begins at.
    pub(super) next: usize,
    /// When that may be, ns.
    pub(super) due: Time,
}

impl Watch {
    /// No block yet.
    pub(crate) const fn new() -> Self {
        Self { newest: 0, is_seen: true, next: 0, due: Time::ZERO }
    }

    /// A block is handed out.
    pub(super) fn note_newest(&mut self, addr: usize) {
        (self.newest, self.is_seen) = (addr, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number of threads may have reserved before the first of them inserts.
    #[test]
    fn room_that_is_reserved_is_there() {
        let mut blocks = Blocks::new();
        let mut tables = std::vec::Vec::new();
        let mut reserve = |blocks: &mut Blocks| {
            while let Err(capacity) = blocks.reserve() {
                let mut table = std::vec![Block::NONE; capacity];
                let _old = blocks.rehash(table.as_mut_ptr() as usize, capacity);
                tables.push(table);
            }
        };
        (0..1000).for_each(|_| reserve(&mut blocks));
        blocks.unreserve();
        let run = |i: usize| Run { addr: i << 22, len: 1 << 22 };
        (1..1000).for_each(|i| blocks.insert(Block { run: run(i), ..Block::NONE }));
        assert_eq!((blocks.count, blocks.reserved), (999, 0));
        let lifted = blocks.lift(run(7).addr).unwrap();
        reserve(&mut blocks);
        blocks.insert(lifted);
        blocks.unreserve();
        assert!((1..1000).all(|i| blocks.get(run(i).addr).is_some()));
    }
}
