//! Blocks beyond the largest order, mapped on their own: where each begins, how long it is; and those lately freed.
//!
//! The table is open addressing keyed by the block's address, in memory of the platform's; it doubles when it is half
//! full and never shrinks (24 bytes for each block of more than 4 MiB).
//!
//! A freed block is kept for a while, since mapping and touching it anew costs far more than all else. Keeping must cost
//! no peak, and what counts for that is what is resident: a buffer that doubles has been touched to its half when the
//! old one is freed, and will be touched further while that is kept. So the peak is that of the bytes in use that were
//! touched, as far as looks tell ([`UntouchedBlocks`]); and what is kept, together with all bytes in use up to that
//! peak, as if the program touched them at once, exceeds it by a twelfth at most (`Blocks::room`). Above the last
//! window's peak nothing is kept when a window ends, and nothing at all under pressure.

use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::blocks::block::{Block, Kept};
use crate::blocks::untouched::UntouchedBlocks;
use crate::policy::huge_page_advice::Density;
use crate::policy::refault::Recent;
use crate::policy::working_set::Peak;

/// Freed blocks kept at most.
pub(super) const KEPT: usize = 16;
/// Slots of the first table: a power of two, as every capacity is.
const FIRST_CAPACITY: usize = 128;
/// A kept block that is longer than wanted by at most this part of it is handed out whole.
const SLACK: usize = 8;
/// Kept blocks may raise the peak by this part of it. A buffer that grows by an eighth at a time, the new one beside
/// the old, needs a sixteenth so that the old one can be kept for the step after.
const RAISE: usize = 12;

/// All blocks mapped on their own.
pub struct Blocks {
    slots: *mut Block,
    capacity: usize,
    /// Blocks in use.
    pub count: usize,
    /// Blocks to be inserted for which room is kept (see [`Blocks::reserve`]).
    reserved: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Freed blocks, the oldest first.
    kept: [Kept; KEPT],
    kept_count: usize,
    /// Resident bytes of those.
    pub idle: usize,
    /// What of the blocks in use was not touched.
    pub untouched: UntouchedBlocks,
    /// Peak over the last window of the bytes in use that were touched.
    peak: Peak,
    /// Whether huge pages pay.
    pub density: Density,
    /// Kept blocks that went back lately.
    pub recent: Recent,
}

// SAFETY: `slots`, the only field that is not `Send` by itself, points to a mapping that this value owns alone and that has
// nothing to do with a thread.
unsafe impl Send for Blocks {}

impl Blocks {
    /// No blocks.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self {
            slots: core::ptr::null_mut(),
            capacity: 0,
            count: 0,
            reserved: 0,
            bytes: 0,
            kept: [Kept { block: Block::NONE, resident: 0 }; KEPT],
            kept_count: 0,
            idle: 0,
            untouched: UntouchedBlocks::new(),
            peak: Peak::new(),
            density: Density::new(),
            recent: Recent::NONE,
        }
    }

    // ---- freed blocks ------------------------------------------------------------------------------------------

    /// Bytes in use that were touched, as far as is known.
    fn touched(&self) -> usize {
        self.bytes.saturating_sub(self.untouched.bytes)
    }

    /// Notes that the bytes in use that were touched, and `more` just freed, were resident at once.
    pub fn note(&mut self, more: usize) {
        let touched = self.touched() + more;
        self.peak.note(touched);
    }

    /// Resident bytes that may be kept. The program may touch all that it holds; up to the peak that is no new peak, and
    /// beyond it the program raises the peak by itself.
    fn room(&self) -> usize {
        let high = self.peak.high();
        high + high / RAISE - self.bytes.min(high)
    }

    /// Resident bytes that this window's peak wants again.
    pub fn wanted_again(&self) -> usize {
        let high = self.peak.now();
        high - self.bytes.min(high)
    }

    /// Ends a window.
    pub fn roll(&mut self) {
        let touched = self.touched();
        self.peak.roll(touched);
    }

    /// Whether there is room to keep a block that has `resident` bytes behind it.
    pub fn has_room(&self, resident: usize) -> bool {
        self.idle + resident <= self.room()
    }

    /// Keeps a freed block if there is room for it; returns one to unmap: the oldest of those kept before, or this one.
    pub fn keep(&mut self, mut kept: Kept) -> Option<Kept> {
        if !self.has_room(kept.resident) {
            return Some(kept);
        }
        kept = self.join(kept);
        let dropped = if self.kept_count == KEPT { self.drop_oldest() } else { None };
        self.kept[self.kept_count] = kept;
        self.kept_count += 1;
        self.idle += kept.resident;
        dropped
    }

    /// Joins a freed block to what it was cut off, and to what was cut off it, if those are kept. Where one of the two
    /// has moved since and another block lies in its place, the kernel has two mappings, which `mremap` refuses to
    /// move as one: the platform then copies, or the block is not used again.
    fn join(&mut self, mut kept: Kept) -> Kept {
        while let Some(i) = (0..self.kept_count).find(|&i| {
            let other = &self.kept[i].block;
            other.follows(&kept.block) || kept.block.follows(other)
        }) {
            let other = self.take_kept(i);
            let (first, second) =
                if other.block.run.addr < kept.block.run.addr { (other, kept) } else { (kept, other) };
            kept = first;
            kept.block.run.len += second.block.run.len;
            kept.resident += second.resident;
        }
        kept
    }

    /// What is kept of what was cut off `block`, right behind it.
    pub fn take_rest(&mut self, block: &Block) -> Option<Kept> {
        let i = (0..self.kept_count).find(|&i| self.kept[i].block.follows(block))?;
        Some(self.take_kept(i))
    }

    /// A kept block for `len` bytes: one that is a little longer if there is one, else the longest that is shorter
    /// (to be grown), else the shortest that is longer (to be cut).
    pub fn reuse(&mut self, len: usize) -> Option<Kept> {
        let fit = |kept: &Kept| match kept.block.run.len {
            have if have >= len && have - len <= len / SLACK => (0, have - len),
            have if have < len => (1, len - have),
            have => (2, have - len),
        };
        let best = (0..self.kept_count).min_by_key(|&i| fit(&self.kept[i]))?;
        Some(self.take_kept(best))
    }

    /// The oldest kept block while more than `keep` resident bytes are kept; the caller unmaps it. With 0 all go: few
    /// looks may have missed that a block was touched.
    pub fn drop_above(&mut self, keep: usize) -> Option<Kept> {
        if self.idle > keep || keep == 0 { self.drop_oldest() } else { None }
    }

    /// The oldest kept block while more is kept than there is room for; the caller unmaps it.
    pub fn drop_over(&mut self) -> Option<Kept> {
        if self.idle > self.room() { self.drop_oldest() } else { None }
    }

    fn drop_oldest(&mut self) -> Option<Kept> {
        (self.kept_count > 0).then(|| self.take_kept(0))
    }

    fn take_kept(&mut self, i: usize) -> Kept {
        let kept = self.kept[i];
        self.kept.copy_within(i + 1..self.kept_count, i);
        self.kept_count -= 1;
        self.idle -= kept.resident;
        kept
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
    pub fn get(&self, addr: usize) -> Option<Block> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: there is a table, as its capacity is not 0, and `find` returns a slot of it; slots are plain data.
        let block = unsafe { *self.find(addr) };
        (block.run.addr == addr).then_some(block)
    }

    /// Copies the runs of blocks in use to `out`, from slot `from` on, which is then the one to go on from; returns how
    /// many.
    pub fn runs_from(&self, from: &mut usize, out: &mut [Run]) -> usize {
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
    pub fn copy_kept(&self, out: &mut [Kept; KEPT]) -> usize {
        *out = self.kept;
        self.kept_count
    }

    /// The memory of the table.
    pub fn memory(&self) -> Run {
        Run { addr: self.slots as usize, len: table_bytes(self.capacity) }
    }

    /// Keeps room for one block that is to be inserted; `Err`: there is none, and the capacity of the table to pass to
    /// [`Blocks::rehash`]. Any number of threads may be between this and their insertion, each in a slow system call.
    pub fn reserve(&mut self) -> Result<(), usize> {
        if (self.count + self.reserved + 1) * 2 > self.capacity {
            return Err((self.capacity * 2).max(FIRST_CAPACITY));
        }
        self.reserved += 1;
        Ok(())
    }

    /// Gives up the room that [`Blocks::reserve`] kept.
    pub fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// Moves to a zeroed table of `capacity` slots at `table`; returns the memory to unmap: the old table, or the new
    /// one if another thread was quicker.
    pub fn rehash(&mut self, table: usize, capacity: usize) -> Option<Run> {
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

    /// Adds a block, in the room that was reserved for it; `untouched` bytes of it have no memory behind them.
    pub fn insert(&mut self, block: Block, untouched: usize) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
        // SAFETY: room was reserved, so there is a table with an empty slot, which `find` returns.
        unsafe { *self.find(block.run.addr) = block };
        self.count += 1;
        self.bytes += block.run.len;
        self.untouched.add(block, untouched);
        self.note(0);
    }

    /// The block at `addr` has no memory behind it any more.
    pub fn released(&mut self, addr: usize) {
        let Some(mut block) = self.get(addr) else { return };
        block.is_touched = false;
        // SAFETY: the block is in the table, as `get` found it, so `find` returns its slot.
        unsafe { *self.find(addr) = block };
        self.untouched.remove(addr);
        self.untouched.add(block, block.run.len);
    }

    /// Takes a block out that is to come back in another place or length: room for it is kept.
    pub fn lift(&mut self, addr: usize) -> Option<(Block, usize)> {
        let lifted = self.remove(addr)?;
        self.reserved += 1;
        Some(lifted)
    }

    /// Takes a block out, and says how many bytes of it were untouched as far as is known.
    pub fn remove(&mut self, addr: usize) -> Option<(Block, usize)> {
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
        self.bytes -= gone.run.len;
        Some((gone, self.untouched.remove(addr)))
    }
}

/// Bytes of a table of `capacity` slots, whole pages.
pub const fn table_bytes(capacity: usize) -> usize {
    (capacity * size_of::<Block>()).next_multiple_of(PAGE)
}

/// Where in the table a search for `addr` begins (multiplicative hashing; the capacity's mask is applied later).
fn home(addr: usize) -> usize {
    (addr / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
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
        (1..1000).for_each(|i| blocks.insert(Block { run: run(i), ..Block::NONE }, 0));
        assert_eq!((blocks.count, blocks.reserved), (999, 0));
        let (lifted, untouched) = blocks.lift(run(7).addr).unwrap();
        reserve(&mut blocks);
        blocks.insert(lifted, untouched);
        blocks.unreserve();
        assert!((1..1000).all(|i| blocks.get(run(i).addr).is_some()));
    }
}
