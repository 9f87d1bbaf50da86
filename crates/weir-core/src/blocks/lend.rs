//! The blocks that CPUs hand out and take back without the table ([`lent`](super::lent)).
//!
//! The table lends a block to the CPU that it hands it out on. That is a kept block that fits as it is, of which no look is due for
//! a number of frees ([`Constancy`](super::block::Constancy)), so nothing would be learnt of them. Then the table has it again.
//!
//! A lent block that is free costs no peak. Before the table hands out memory that it did not keep as it is wanted, or looks at
//! what is in use, it settles: each such block is freed as any other, and kept if there is room. So all that is in the table as in
//! use was so at once, just after the table handed out the last block. Reclaim and the figures settle too, so they see no lent
//! block that is free.
//!
//! A kept block that fits as it is goes out without that. It makes no new peak, so until the table settles next nothing does
//! (`Blocks::is_settled`). Else each CPU that comes to the table would take the free blocks of all others. These would come for
//! blocks in turn, and all CPUs wait for one lock.

use core::iter;
use core::mem::replace;
use core::sync::atomic::Ordering::Relaxed;

use super::block::{Block, Kept};
use super::cpu_blocks::CpuWays;
use super::lent::{Hints, MOST_FREES, Withdrawn};
use super::mapped::Mapped;
use super::retain::is_near;
use super::table::Blocks;
use crate::base::units::{Bytes, MAX_RUN, Order, PAGE};
use crate::platform::lock::Guard;
use crate::platform::{Platform, rank};
use crate::telemetry::stats;

impl<P: Platform> Mapped<'_, P> {
    /// The blocks that are lent to this CPU. Under a hard limit none are: what counts against it is looked at.
    #[inline]
    fn ways_here(&self) -> Option<&CpuWays> {
        let ways = self.blocks.cpus.ways(self.pages.platform.cpu())?;
        self.pages.hard_limit().is_none().then_some(ways)
    }

    /// A block for `len` bytes, aligned to `align`, that is free on this CPU.
    #[inline]
    pub(crate) fn take_here(&self, len: usize, align: Order) -> Option<usize> {
        let run = self.ways_here()?.take(|run| is_near(run.len, len, false) && align.aligns(run.addr))?;
        if self.pages.platform.renew(run, run.len).is_err() {
            self.free_mapped(run.addr);
            return None;
        }
        Some(run.addr)
    }

    /// Whether the block at `addr` is lent to this CPU.
    #[inline]
    pub(crate) fn is_here(&self, addr: usize) -> bool {
        self.ways_here().is_some_and(|ways| ways.has(addr))
    }

    /// Frees the block at `addr`, if it is lent to this CPU, and the table does not want it.
    #[inline]
    pub(crate) fn free_here(&self, addr: usize) -> bool {
        let surprises = self.blocks.cpus.surprises.load(Relaxed);
        let Some(resident) = self.ways_here().and_then(|ways| ways.free(addr, surprises)).map(Bytes) else {
            return false;
        };
        if !resident.is_zero() {
            self.pages.events.freed(&self.pages.platform, resident);
        }
        true
    }

    /// Gives this CPU a page for blocks that are lent to it, if it has none. Where that is refused none are.
    pub(super) fn allow_lending(&self) {
        let cpu = self.pages.platform.cpu();
        if self.blocks.cpus.ways(cpu).is_none()
            && let Ok(page) = self.pages.platform.map_metadata(PAGE, Order::PAGE)
            && let Some(run) = self.blocks.cpus.install(cpu, page)
        {
            self.pages.platform.unmap(run);
        }
    }

    /// A surprise ends loans.
    pub(super) fn tell_surprises(&self, blocks: &Blocks) {
        self.blocks.cpus.surprises.store(blocks.surprises, Relaxed);
    }

    /// Bytes of those pages.
    pub(super) fn lending_bytes(&self) -> usize {
        self.blocks.cpus.pages().count() * PAGE
    }

    /// Lends a block that is about to be handed out to this CPU, if no look at it is due: with its home.
    pub(super) fn lend(&self, blocks: &mut Blocks, Kept { mut block, resident }: Kept) -> Block {
        block.home = 0;
        let is_touched = block.bytes() == resident;
        let frees = if is_touched { MOST_FREES } else { block.constancy.frees_unlooked(blocks.surprises) };
        if frees == 0 || block.run.len <= MAX_RUN.length() {
            return block;
        }
        let cpu = self.pages.platform.cpu();
        let hints = Hints { resident: resident.0, surprises: blocks.surprises, frees };
        if let Some((home, before)) = self.blocks.cpus.lend(cpu, block.run, hints) {
            block.home = home;
            if let Some(before) = before {
                end_loan(blocks, before.run().addr, before.frees(), before.frees());
            }
        }
        block
    }

    /// Takes the block in use at `addr` back from its CPU, where it was lent to one; `false`: it is free there.
    pub(super) fn withdraw(&self, blocks: &mut Blocks, addr: usize) -> bool {
        let home = blocks.get(addr).map_or(0, |block| block.home);
        match self.blocks.cpus.home(home).map_or(Withdrawn::NotLent, |ways| ways.withdraw(addr)) {
            Withdrawn::NotLent => true,
            Withdrawn::Free => false,
            Withdrawn::Frees(frees) => {
                end_loan(blocks, addr, frees, frees);
                true
            }
        }
    }

    /// Whether the block, which the table has as one in use, is free on its CPU.
    pub(super) fn is_free_on_cpu(&self, block: &Block) -> bool {
        self.blocks.cpus.home(block.home).is_some_and(|ways| ways.is_free(block.run.addr))
    }

    /// The table, once each lent block that is free was freed in it.
    pub(super) fn settled(&self) -> Guard<'_, Blocks, P, { rank::BLOCKS }> {
        self.settle_all(self.lock())
    }

    /// The table again, settled: it may be unlocked meanwhile.
    pub(super) fn settle_all<'a>(
        &'a self,
        mut blocks: Guard<'a, Blocks, P, { rank::BLOCKS }>,
    ) -> Guard<'a, Blocks, P, { rank::BLOCKS }> {
        loop {
            match self.settle(blocks) {
                Some(blocks) => return blocks,
                None => blocks = self.lock(),
            }
        }
    }

    /// The table, settled if `settles`; else to hand out a kept block as it is.
    pub(super) fn table(&self, settles: bool) -> Guard<'_, Blocks, P, { rank::BLOCKS }> {
        let mut blocks = self.lock();
        if settles {
            return self.settle_all(blocks);
        }
        blocks.is_settled = false;
        blocks
    }

    /// As [`Mapped::settled`]; `None`: another thread has the table.
    pub(super) fn try_settled(&self) -> Option<Guard<'_, Blocks, P, { rank::BLOCKS }>> {
        loop {
            if let Some(blocks) = self.settle(self.blocks.table.try_lock(&self.pages.platform)?) {
                return Some(blocks);
            }
        }
    }

    /// Frees lent blocks that are free in the table, until one of them is to be unmapped, for which it is unlocked: `None`.
    fn settle<'a>(
        &self,
        mut blocks: Guard<'a, Blocks, P, { rank::BLOCKS }>,
    ) -> Option<Guard<'a, Blocks, P, { rank::BLOCKS }>> {
        for lent in self.blocks.cpus.pages().flat_map(|ways| iter::from_fn(|| ways.settle())) {
            let addr = lent.run().addr;
            end_loan(&mut blocks, addr, lent.frees(), lent.frees() - 1);
            let Some(block) = blocks.remove(addr) else { continue };
            let resident = block.bytes() - block.untouched;
            blocks.note_freed(resident, resident, block.run.len);
            if let Some(gone) = self.keep_freed(&mut blocks, block, resident) {
                drop(blocks);
                self.unmap_kept(gone);
                return None;
            }
        }
        blocks.is_settled = true;
        Some(blocks)
    }

    /// Brings the counters up to what was done on CPUs.
    pub(crate) fn count_pairs(&self) {
        self.count_pairs_in(&mut self.lock());
    }

    pub(super) fn count_pairs_in(&self, blocks: &mut Blocks) {
        let (lent, ended) = (self.blocks.cpus.counts(), blocks.pairs.ended);
        let now = (ended.0 + lent.0, ended.1 + lent.1);
        let (before, stats) = (replace(&mut blocks.pairs.counted, now), self.pages.platform.stats());
        stats::add(&stats.free_misses, now.0 - before.0);
        stats::add(&stats.large_allocs, now.1 - before.1);
    }

    /// In a forked child: ends what the parent's other threads had begun.
    pub(crate) fn inherit(&self) {
        self.blocks.cpus.pages().for_each(CpuWays::inherit);
    }
}

/// The block at `addr` is lent no more. It was freed `frees` times without a look meanwhile, and taken `takes` times.
fn end_loan(blocks: &mut Blocks, addr: usize, frees: u8, takes: u8) {
    if let Some(mut block) = blocks.get(addr) {
        block.constancy.skip(frees);
        block.home = 0;
        blocks.put(block);
        blocks.churn.free((block.bytes() - block.untouched) * usize::from(takes));
    }
    blocks.pairs.ended.0 += u64::from(frees);
    blocks.pairs.ended.1 += u64::from(takes);
}
