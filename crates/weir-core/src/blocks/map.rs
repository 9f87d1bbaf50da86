//! A block is mapped: a retained one if one fits, else a new mapping. And it is freed.

use core::sync::atomic::Ordering::Relaxed;

use super::block::Constancy;
use super::block::{Block, Kept};
use super::looks::NEARLY_ALL;
use super::looks::look;
use super::mapped::{Mapped, moved};
use super::table::{Blocks, table_bytes};
use crate::base::cause::Cause;
use crate::base::run::Run;
use crate::base::units::{Bytes, MAX_RUN, Order, PAGE, PAGEBLOCK, Pages};
use crate::pages::{Hold, Short};
use crate::platform::lock::Guard;
use crate::platform::{Contents, Platform, rank};

/// Longest block, bytes, mapped on its own that is made zero by writing: in a longer one few samples tell too little.
const WIPE_MAX: usize = 64 << 20;

/// Shortest run of the heap, bytes, whose residence is looked at before it is made zero: the look is short beside the writing.
const SPARSE_MIN: usize = 512 << 10;
/// Part of such a run that may be resident where it is released in place of written to: a program that fills it again then has
/// few faults more.
const SPARSE_PART: usize = 4;
/// Bytes in its middle that are looked at first.
const GLANCE: usize = 4 * PAGE;
/// Runs that are written to without a look after one that was filled: a program that fills its runs pays for few looks.
const FILLED_RUNS: usize = 7;

/// A block just mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) addr: usize,
    /// The block is known to be zero.
    pub(crate) zero: bool,
    /// What is expected to become resident, of this block and those before it. It is told once it is enough to be worth a release
    /// elsewhere; else 0.
    pub(crate) expected: Bytes,
}

/// Memory for a block, with its room below the hard limit.
struct Found<'a> {
    kept: Kept,
    /// Bytes at its end that are new, and so zero.
    fresh: usize,
    _hold: Hold<'a>,
}

impl<P: Platform> Mapped<'_, P> {
    /// Maps a block of its own.
    pub(crate) fn map_block(&self, pages: Pages, align: Order) -> Result<Fresh, Short> {
        let len = pages.length().next_multiple_of(self.pages.platform.release_unit());
        let is_exact = self.pages.hard_limit().is_some();
        let mut blocks = self.mapped_room()?;
        // Room in the table is kept from here on. What other CPUs have free is theirs, as long as a kept block fits as it is: each
        // would come here for another, and take those of all others.
        let mut best = blocks.best(len, align, is_exact);
        let is_whole = best.is_some_and(|(_, is_whole)| is_whole);
        if !is_whole {
            blocks = self.settle_all(blocks);
            best = blocks.best(len, align, is_exact);
        }
        let mut reused = best.map(|(i, is_whole)| (blocks.take_kept(i), is_whole));
        if let Some((kept, true)) = reused
            && !is_exact
            && blocks.is_newest_seen()
            && (kept.block.huge || !self.asks_for_huge() || !blocks.density.pays())
        {
            // As most are: there is no room to be held, nothing to be looked at, no advice to be given. The lock is taken once.
            let block = self.lend(&mut blocks, kept);
            let (run, expected) = self.insert(blocks, block, kept.resident, 0);
            if self.pages.platform.renew(run, run.len).is_ok() {
                self.allow_lending();
                return Ok(self.note_mapped(run, kept.resident, 0, expected));
            }
            let mut blocks = self.lock();
            self.withdraw(&mut blocks, run.addr);
            blocks.lift(run.addr);
            drop(blocks);
            self.unmap_kept(kept);
            reused = None;
        } else {
            drop(blocks);
        }
        let reused = reused.map_or(Ok(None), |(kept, is_whole)| self.reuse_block(len, kept, is_whole));
        let found = reused.and_then(|found| found.map_or_else(|| self.new_block(len, align), Ok));
        let Found { kept: Kept { block, resident }, fresh, _hold } = found.inspect_err(|_| self.lock().unreserve())?;
        let (run, expected) = self.hand_out(block, resident, fresh, !is_whole || fresh > 0);
        Ok(self.note_mapped(run, resident, fresh, expected))
    }

    /// Counts a block that is handed out, `resident` of which was so before.
    fn note_mapped(&self, run: Run, resident: Bytes, fresh: usize, expected: Bytes) -> Fresh {
        let shown = &self.pages.platform.stats().mapped_bytes;
        self.pages.gauges.mapped_bytes.add(run.len as u64, shown);
        self.pages.hard_limit.recharge(resident, Bytes(run.len));
        Fresh { addr: run.addr, zero: fresh == run.len, expected }
    }

    /// [`Mapped::insert`] of a block: the one before it is looked at first, and huge pages are asked for where they pay.
    fn hand_out(&self, mut block: Block, resident: Bytes, fresh: usize, settles: bool) -> (Run, Bytes) {
        let mut blocks = self.look_at_newest(settles);
        let wants_huge = blocks.density.wants_huge() && !block.huge;
        if wants_huge && self.asks_for_huge() {
            drop(blocks);
            self.pages.platform.advise_huge(block.run);
            block.huge = true;
            blocks = self.table(settles);
        }
        self.insert(blocks, block, resident, fresh)
    }

    fn asks_for_huge(&self) -> bool {
        self.pages.platform.tunables().huge_blocks.get() != 0
    }

    /// Puts a block into the table, of which the last `fresh` bytes are new. Returns where it is, and what is expected to become
    /// resident, as [`Fresh`] has it.
    fn insert(
        &self,
        mut blocks: Guard<'_, Blocks, P, { rank::BLOCKS }>,
        block: Block,
        resident: Bytes,
        fresh: usize,
    ) -> (Run, Bytes) {
        let untouched = block.bytes() - resident;
        blocks.insert(Block { is_touched: untouched.is_zero(), untouched, fresh, asked: block.run.len, ..block });
        let expected = blocks.filled.of(block.bytes()).saturating_sub(resident);
        let (expected, is_over) = (blocks.expected.add(expected), blocks.is_over());
        drop(blocks);
        if is_over {
            // Before the program touches it. Kept blocks that make room for others are no report.
            self.unmap_those(Cause::Idle, Blocks::drop_over);
        }
        (block.run, expected)
    }

    /// A new mapping.
    fn new_block(&self, len: usize, align: Order) -> Result<Found<'_>, Short> {
        let _hold = self.pages.hold(Bytes(len)).ok_or(Short)?;
        let again = self.lock().recent.taken(Pages::in_bytes(len));
        self.pages.events.taken_again(&self.pages.platform, again);
        // At a pageblock where huge pages are to come; else at any page, which is harder to guess.
        let huge = self.pages.platform.huge_on_touch() || self.lock().density.pays();
        let align = if huge { align.max(Order::BLOCK) } else { align };
        let addr = self.pages.platform.map(len, align)?;
        let kept = Kept { block: Block { run: Run { addr, len }, ..Block::NONE }, resident: Bytes::ZERO };
        Ok(Found { kept, fresh: len, _hold })
    }

    /// Reserves room in the table for one block; returns the table.
    fn mapped_room(&self) -> Result<Guard<'_, Blocks, P, { rank::BLOCKS }>, Short> {
        loop {
            let mut blocks = self.table(false);
            let Err(capacity) = blocks.reserve() else { return Ok(blocks) };
            drop(blocks);
            let table = self.pages.platform.map_metadata(table_bytes(capacity), Order::PAGE)?;
            let old = self.lock().rehash(table, capacity);
            if let Some(run) = old {
                self.pages.platform.unmap(run);
            }
        }
    }

    /// A block freed a while ago, which was taken out of those that are kept, whole or grown or cut to `len`; `None`: it
    /// could not be had. What is resident of it counts already, so that at the hard limit only the rest is wanted.
    fn reuse_block(&self, len: usize, mut kept: Kept, is_whole: bool) -> Result<Option<Found<'_>>, Short> {
        if kept.block.run.len > len && !is_whole {
            kept = self.cut_kept(kept, len);
        }
        let Kept { block, resident } = kept;
        let len = block.run.len.max(len);
        let Some(_hold) = self.pages.hold(Bytes(len) - resident) else {
            self.keep_or_unmap(kept);
            return Err(Short);
        };
        let Ok(addr) = self.pages.platform.renew(block.run, len) else {
            self.unmap_kept(kept);
            return Ok(None);
        };
        let kept = Kept { block: moved(block, Run { addr, len }), resident };
        Ok(Some(Found { kept, fresh: len - block.run.len, _hold }))
    }

    /// The first `len` bytes of a kept block; the rest is kept on, as far as memory is behind it.
    fn cut_kept(&self, Kept { mut block, resident }: Kept, len: usize) -> Kept {
        let rest = Run { addr: block.run.addr + len, len: block.run.len - len };
        block.run.len = len;
        // A program touches a block from its beginning.
        let first = resident.min(Bytes(len));
        let rest = Kept {
            block: Block { run: rest, is_rest: true, constancy: Constancy::NONE, ..block },
            resident: resident - first,
        };
        if !rest.resident.is_zero() {
            self.keep_or_unmap(rest);
        } else {
            self.unmap_kept(rest);
        }
        Kept { block, resident: first }
    }

    /// Takes up to `more` bytes that were cut off `block`, and are kept right behind it, into the block. Returns how many,
    /// and what of them is resident.
    pub(super) fn absorb(&self, block: &Block, more: usize) -> (usize, Bytes) {
        let rest = self.lock().take_rest(block);
        let Some(mut kept) = rest else { return (0, Bytes::ZERO) };
        if kept.block.run.len > more {
            kept = self.cut_kept(kept, more);
        }
        let run = kept.block.run;
        if self.pages.platform.renew(run, run.len).is_err() {
            self.unmap_kept(kept);
            return (0, Bytes::ZERO);
        }
        (run.len, kept.resident)
    }

    /// Makes a block that was used before, and has just been allocated, read as zero.
    ///
    /// # Safety
    /// All of `run` is a block's, and nobody else has its address.
    pub(crate) unsafe fn wipe(&self, run: Run) {
        let addr = run.addr;
        // Writing zeros makes all of a block resident, of which the program may never touch more than a few pages (a sparse
        // table). Only a short block, or one that has memory behind nearly all of it, is written to, and a run of the heap that has
        // memory behind a good part of it. Any other is released, so that it is as a fresh one.
        let (untouched, fresh) = self.lock().get(addr).map_or((0, 0), |block| (block.untouched.0, block.fresh));
        // What is new at its end is zero as it is.
        let (len, untouched) = (run.len - fresh, untouched.saturating_sub(fresh));
        let write = if len <= MAX_RUN.length() {
            !self.is_sparse(run)
        } else {
            len <= WIPE_MAX && untouched <= len / NEARLY_ALL
        };
        let zero = || {
            let released = self.pages.platform.release(&[run], false);
            released.runs == 1 && released.contents == Contents::Zero
        };
        if write || !zero() {
            // SAFETY: at most all of the caller's block, of which nobody else has the address.
            unsafe { core::ptr::write_bytes(addr as *mut u8, 0, len) };
            return;
        }
        let mut blocks = self.lock();
        // Its next free is to be the table's, which knows that it was released.
        self.withdraw(&mut blocks, addr);
        blocks.released(addr);
    }
}

impl<P: Platform> Mapped<'_, P> {
    /// Whether only a small part of a run is resident. What is swapped out is not, and goes as well. Most runs were filled, and of
    /// these a few pages in the middle tell, and for the next runs as well.
    fn is_sparse(&self, run: Run) -> bool {
        let platform = &self.pages.platform;
        let is_off = platform.tunables().report.get() == 0 || platform.release_unit() > PAGE;
        if run.len < SPARSE_MIN || is_off {
            return false;
        }
        let skipped = &self.blocks.filled_runs;
        // Of threads that do it together some look once more, or once less.
        let left = skipped.load(Relaxed);
        if left > 0 {
            skipped.store(left - 1, Relaxed);
            return false;
        }
        let glance = Run { addr: (run.addr + run.len / 2).next_multiple_of(PAGE) - GLANCE / 2, len: GLANCE };
        if platform.resident(glance).is_none_or(|pages| pages * PAGE > GLANCE / 2) {
            skipped.store(FILLED_RUNS, Relaxed);
            return false;
        }
        let end = run.addr + run.len;
        let mut pieces = (run.addr..end).step_by(PAGEBLOCK);
        let resident = pieces.try_fold(0, |sum, addr| {
            Some(sum + platform.resident(Run { addr, len: PAGEBLOCK.min(end - addr) })? * PAGE)
        });
        resident.is_some_and(|resident| resident <= run.len / SPARSE_PART)
    }
}

// A block is freed: it is retained for a while, if that costs no peak.

/// Part of a block that must have gone since it was touched for it to count as swapped out. Its owner may have released some of it.
const SWAPPED_PART: usize = 4;

/// Whether a block lies in swap, as far as a look tells. One of which nothing is resident may do so: to release it costs little.
/// Where the look before found the same, it was released then, and stayed untouched.
fn is_in_swap(block: &Block, resident: Bytes, touched: Bytes) -> bool {
    resident.is_zero() && !block.constancy.has_agreed() || touched - resident > block.bytes() / SWAPPED_PART
}

impl<P: Platform> Mapped<'_, P> {
    /// Frees the block mapped on its own that begins at `addr`: it is kept for a while, if that costs no peak. `false`: none does.
    pub(crate) fn free_mapped(&self, addr: usize) -> bool {
        let mut blocks = self.lock();
        if !self.withdraw(&mut blocks, addr) {
            return false;
        }
        let Some(mut block) = blocks.remove(addr) else { return false };
        self.note_mapped_free(block.run.len);
        let surprises = blocks.surprises;
        let (untouched, is_known) = (block.untouched, !block.untouched.is_zero());
        // What counts against a hard limit is looked at.
        let is_sure = is_known && block.constancy.is_sure(surprises) && self.pages.hard_limit().is_none();
        // Of one that was resident before nothing can be learnt.
        let looks = !block.is_touched && !is_sure;
        let mut found = None;
        if looks {
            drop(blocks);
            found = look(&self.pages.platform, block.run);
            blocks = self.lock();
        }
        let mut resident =
            block.bytes() - if is_sure { untouched } else { super::looks::untouched(block.run.len, found) };
        let touched = resident.max(block.bytes() - untouched);
        let is_swapped = looks && is_in_swap(&block, resident, touched);
        if is_sure {
            block.constancy.skip(1);
        } else if looks {
            let as_expected = is_known && resident == block.bytes() - untouched;
            blocks.surprises = blocks.surprises.wrapping_add(block.constancy.observe(as_expected, surprises).into());
            self.tell_surprises(&blocks);
        }
        if let Some(look) = found.filter(|_| !block.huge) {
            blocks.density.observe(look.filled);
        }
        blocks.note_freed(resident, touched, block.run.len);
        if is_swapped {
            drop(blocks);
            resident = self.leave_swap(block.run, resident);
            blocks = self.lock();
        }
        if !blocks.untouched.is_zero() && !blocks.has_room(resident) {
            drop(blocks);
            self.look_at_untouched();
            blocks = self.lock();
            blocks.note(resident);
        }
        let gone = self.keep_freed(&mut blocks, block, resident);
        drop(blocks);
        if let Some(kept) = gone {
            self.unmap_kept(kept);
        }
        if !resident.is_zero() {
            // What is not resident can not be released.
            self.pages.events.freed(&self.pages.platform, resident);
        }
        true
    }

    /// Releases what was freed and lies in swap: its next owner would wait for the disk at each first write. Returns what is
    /// resident then, of `resident`.
    #[cold]
    fn leave_swap(&self, run: Run, resident: Bytes) -> Bytes {
        let is_done = self.pages.is_reporting() && self.pages.platform.release(&[run], false).runs == 1;
        if is_done { Bytes::ZERO } else { resident }
    }

    /// Keeps a block that was freed, if there is room; returns one to unmap.
    pub(super) fn keep_freed(&self, blocks: &mut Blocks, block: Block, resident: Bytes) -> Option<Kept> {
        self.pages.hard_limit.recharge(block.bytes(), resident);
        let shown = &self.pages.platform.stats().mapped_bytes;
        self.pages.gauges.mapped_bytes.sub(block.run.len as u64, shown);
        blocks.keep(Kept { block, resident })
    }

    pub(super) fn keep_or_unmap(&self, kept: Kept) {
        let gone = self.lock().keep(kept);
        if let Some(kept) = gone {
            self.unmap_kept(kept);
        }
    }
}
