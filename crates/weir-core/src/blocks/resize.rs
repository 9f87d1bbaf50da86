//! A block grows and shrinks. Growth moves page table entries, costs no copy and leaves no hole. So a run that has grown past
//! [`FIRST_MAPPED`](super::mapped::FIRST_MAPPED) moves to a mapping of its own. Blocks of plain allocations stay in the heap,
//! where they cost no system call.
//!
//! A program may grow such blocks and free them again and again. Page faults would cost it more than copies do. So each such free
//! raises that size to the block's, up to [`LAST_MAPPED`]. The C library raises its threshold for mappings in the same way.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use super::block::Block;
use super::mapped::{FIRST_MAPPED, Mapped, moved};
use super::table::Blocks;
use crate::base::cause::Cause;
use crate::base::invalid_free::InvalidFree;
use crate::base::run::Run;
use crate::base::units::{Bytes, MAX_RUN, PAGE, PAGEBLOCK, Pages};
use crate::platform::lock::Guard;
use crate::platform::{Platform, rank};

/// The most that this size is raised to.
const LAST_MAPPED: usize = MAX_RUN.length();
/// Part of a mapped block's length that it grows by at least.
const SLACK: usize = 8;
/// And the most of that, bytes.
const MOST_SLACK: usize = 16 << 20;
/// The most of it where all that is mapped gets memory at once, bytes.
const MOST_POPULATED: usize = 1 << 20;
/// The least that is released at a block's end when it shrinks, bytes: the call takes as long as 2 faults, and a buffer that grows
/// again pays for those.
const LEAST_END: usize = 128 << 10;
/// Blocks mapped on their own beyond which no run becomes one: Linux allows a process 65,530 mappings.
const MOST_MAPPED: usize = 1 << 13;

impl<P: Platform> Mapped<'_, P> {
    /// Whether a run of `pages` pages that is to have `size` bytes is better off in a mapping of its own, wherever it is.
    pub(crate) fn outgrows(&self, pages: Pages, size: usize) -> bool {
        let from = self.blocks.mapped_from.load(Relaxed);
        size >= from && pages.length() < size && pages.length() < 2 * from
    }

    /// Whether a run that has grown to `size` bytes is to become a block mapped on its own.
    pub(crate) fn takes_grown(&self, size: usize) -> bool {
        let is_long = (self.blocks.mapped_from.load(Relaxed)..=MAX_RUN.length()).contains(&size);
        is_long && self.lock().count < MOST_MAPPED
    }

    /// What a block of `len` bytes may have more than is wanted, so that a buffer that grows by small steps does not cost a system
    /// call each. It is addresses, not memory. A hard limit counts it as memory, so there is none under one.
    fn slack(&self, len: usize) -> usize {
        if self.pages.hard_limit().is_some() { 0 } else { (len / SLACK).min(MOST_SLACK) }
    }

    /// Resizes the block in use that begins at `addr` where it needs no other length: its length, and whether that was done.
    /// `None`: none begins there.
    pub(crate) fn resize_in_place(&self, addr: usize, size: usize) -> Option<(usize, bool)> {
        let blocks = self.lock();
        let block = blocks.get(addr).filter(|block| !self.is_free_on_cpu(block))?;
        let len = block.run.len;
        let stays = (FIRST_MAPPED..=len).contains(&size) && len - size <= self.slack(len);
        if stays {
            self.release_end(blocks, &block, size);
        }
        Some((len, stays))
    }

    /// Resizes a block mapped on its own to another length. One that grows by less than its slack gets that at once.
    pub(crate) fn resize_mapped(&self, block: *mut u8, len: usize, size: usize) -> *mut u8 {
        let (step, mut new) = (self.slack(len), null_mut());
        if size > len && size - len < step {
            // Where addresses are memory, there is little slack.
            let step = if self.pages.platform.populates() { step.min(MOST_POPULATED) } else { step };
            // What ends below the last size that stays in the heap must not look longer when it is freed.
            let most = if size <= LAST_MAPPED { LAST_MAPPED } else { usize::MAX };
            new = self.remap(block as usize, len, (len + step).max(size).min(most));
        }
        if new.is_null() {
            new = self.remap(block as usize, len, size);
        }
        if !new.is_null() {
            let blocks = self.lock();
            if let Some(block) = blocks.get(new as usize) {
                self.release_end(blocks, &block, size);
            }
        }
        new
    }

    /// What the program touches of `bytes` more, by its habit.
    pub(crate) fn touched_of(&self, bytes: Bytes) -> Bytes {
        if bytes <= Bytes(PAGEBLOCK) { bytes } else { self.lock().filled.of(bytes) }
    }

    /// A block is to have `size` bytes, and may stay longer: the addresses, not the memory. What its owner asked for before is
    /// released behind them, once it is worth the call. The slack of a block that grows by small steps is not.
    fn release_end(&self, mut blocks: Guard<'_, Blocks, P, { rank::BLOCKS }>, block: &Block, size: usize) {
        let (addr, unit) = (block.run.addr, self.pages.platform.release_unit());
        let begin = (addr + size).next_multiple_of(unit);
        let end = Run { addr: begin, len: (addr + block.asked).next_multiple_of(unit).saturating_sub(begin) };
        let is_released = end.len >= LEAST_END;
        blocks.put(Block { asked: if is_released { size } else { block.asked.max(size) }, ..*block });
        drop(blocks);
        if is_released {
            let _ = self.pages.platform.release(&[end], false);
        }
    }

    /// A block of `len` bytes that is mapped on its own is freed.
    pub(super) fn note_mapped_free(&self, len: usize) {
        if len <= LAST_MAPPED {
            self.blocks.mapped_from.fetch_max(len + PAGE, Relaxed);
        }
    }

    pub(crate) fn remap(&self, addr: usize, len: usize, size: usize) -> *mut u8 {
        let unit = self.pages.platform.release_unit();
        let Some(new_len) = size.checked_next_multiple_of(unit).filter(|&l| l <= isize::MAX as usize) else {
            return null_mut();
        };
        if new_len == len {
            return addr as *mut u8;
        }
        // What is retained behind the block, and absorbed, counts already: where only that is missing, reclaim makes the room.
        let Some(_hold) = self.pages.hold(Bytes(new_len.saturating_sub(len))) else { return null_mut() };
        // Out of the table first: once moved, the old addresses may be another thread's new block.
        let mut blocks = self.settled();
        let lifted = if self.withdraw(&mut blocks, addr) { blocks.lift(addr) } else { None };
        drop(blocks);
        let Some(block) = lifted else {
            self.pages.platform.invalid_free(InvalidFree::DoubleFree, addr, 0);
            return null_mut();
        };
        let (more, resident) = if new_len > len { self.absorb(&block, new_len - len) } else { (0, Bytes::ZERO) };
        let before = Run { addr, len: len + more };
        let is_enough = before.len == new_len;
        let remapped = if is_enough { Ok(addr) } else { self.pages.platform.remap(before, new_len) };
        let now = remapped.map_or(before, |addr| Run { addr, len: new_len });
        let counted = Bytes(len) + resident;
        let untouched = (block.untouched + Bytes(now.len)).saturating_sub(counted);
        let is_touched = block.is_touched && untouched.is_zero();
        let asked = block.asked.min(now.len);
        self.settled().insert(Block { is_touched, untouched, fresh: 0, asked, ..moved(block, now) });
        self.unmap_those(Cause::Idle, Blocks::drop_over);
        self.pages.hard_limit.recharge(counted, Bytes(now.len));
        let (more, shown) = ((now.len as u64).wrapping_sub(len as u64), &self.pages.platform.stats().mapped_bytes);
        self.pages.gauges.mapped_bytes.add(more, shown);
        match remapped {
            Ok(addr) => addr as *mut u8,
            // Programs do not expect that less may be refused: the block stays as long as it is.
            Err(_) if new_len < len => addr as *mut u8,
            Err(_) => null_mut(),
        }
    }
}
