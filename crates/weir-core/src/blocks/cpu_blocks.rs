//! The blocks that CPUs hand out and take back without the table ([`lent`](super::lent)).
//!
//! The table lends a block to the CPU that it hands it out on. That is a kept block that fits as it is, of which no look is due for
//! a number of frees ([`Constancy`](super::block::Constancy)), so nothing would be learnt of them. Then the table has it again.
//!
//! A lent block that is free costs no peak. Before the table hands out a block, or looks at what is in use, it settles: each such
//! block is freed as any other, and kept if there is room. So all that is in the table as in use was so at once, just after the
//! table handed out the last block. Reclaim and the figures settle too, so they see no lent block that is free.

use core::mem::replace;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize};

use super::block::{Block, Kept};
use super::lent::{Hints, Lent, MOST_FREES, Ways, Withdrawn};
use super::mapped::Mapped;
use super::retain::is_near;
use super::table::Blocks;
use crate::base::run::Run;
use crate::base::units::{MAX_RUN, PAGE};
use crate::platform::lock::Guard;
use crate::platform::{Platform, rank};
use crate::telemetry::stats;

/// CPUs with blocks of their own; others share with these. The table has a CPU's number in a byte.
const CPUS: usize = 32;

/// The blocks lent to a CPU: as many as a page has words for. A thread that has 64 at a time, of which it replaces one at random, finds
/// room for nearly all of them.
type CpuWays = Ways<4, 60>;

const _: () = assert!(size_of::<CpuWays>() <= PAGE && CPUS < u8::MAX as usize);

/// The blocks lent to all CPUs.
#[derive(Debug)]
pub(super) struct CpuBlocks {
    /// Null where nothing was lent yet; else there for good.
    cpus: [AtomicPtr<CpuWays>; CPUS],
    /// CPUs up to the last that has a page.
    used: AtomicUsize,
    /// Blocks lent so far: which of several gives way to the next.
    turn: AtomicUsize,
    /// Surprises so far, as the table has them: they end loans.
    surprises: AtomicU8,
}

impl CpuBlocks {
    pub(super) const fn new() -> Self {
        Self {
            cpus: [const { AtomicPtr::new(null_mut()) }; CPUS],
            used: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            surprises: AtomicU8::new(0),
        }
    }

    #[inline]
    fn ways(&self, cpu: usize) -> Option<&CpuWays> {
        // SAFETY: null, or a page of metadata that `install` was given, which is never unmapped. It was zero, which is a valid value of
        // these atomics, and the page is longer than they are. Only shared references to it are made.
        unsafe { self.cpus[cpu % CPUS].load(Acquire).as_ref() }
    }

    /// The ways that `home` in the table names.
    fn home(&self, home: u8) -> Option<&CpuWays> {
        self.ways(usize::from(home).checked_sub(1)?)
    }

    /// Gives `cpu` a page of zeros; returns it where it has one.
    fn install(&self, cpu: usize, page: usize) -> Option<Run> {
        let cpu = cpu % CPUS;
        // First: who settles is to look at what is lent there.
        self.used.fetch_max(cpu + 1, Relaxed);
        if self.cpus[cpu].compare_exchange(null_mut(), page as *mut CpuWays, AcqRel, Relaxed).is_err() {
            return Some(Run { addr: page, len: PAGE });
        }
        None
    }

    fn pages(&self) -> impl Iterator<Item = &CpuWays> {
        (0..self.used.load(Relaxed)).filter_map(|cpu| self.ways(cpu))
    }

    /// Lends a block to `cpu`; its home, and the block that is lent no more for it. The caller has the table's lock.
    fn lend(&self, cpu: usize, block: Run, hints: Hints) -> Option<(u8, Option<Lent>)> {
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn.wrapping_add(1), Relaxed);
        let before = self.ways(cpu)?.lend(block, hints, turn).ok()?;
        Some(((cpu % CPUS + 1) as u8, before))
    }

    /// How often blocks that are lent were freed, and taken.
    fn counts(&self) -> (u64, u64) {
        self.pages().map(CpuWays::counts).fold((0, 0), |sum, here| (sum.0 + here.0, sum.1 + here.1))
    }

    /// Takes a free block off its CPU. The caller has the table's lock.
    fn settle(&self) -> Option<Lent> {
        self.pages().find_map(CpuWays::settle)
    }
}

impl<P: Platform> Mapped<'_, P> {
    /// The blocks that are lent to this CPU. Under a hard limit none are: what counts against it is looked at.
    #[inline]
    fn ways_here(&self) -> Option<&CpuWays> {
        let ways = self.blocks.cpus.ways(self.pages.platform.cpu())?;
        self.pages.hard_limit().is_none().then_some(ways)
    }

    /// A block for `len` bytes that is free on this CPU.
    #[inline]
    pub(crate) fn take_here(&self, len: usize) -> Option<usize> {
        let run = self.ways_here()?.take(|have| is_near(have, len, false))?;
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
        let Some(resident) = self.ways_here().and_then(|ways| ways.free(addr, surprises)) else { return false };
        if resident > 0 {
            self.pages.events.freed(&self.pages.platform, resident);
        }
        true
    }

    /// Gives this CPU a page for blocks that are lent to it, if it has none. Where that is refused none are.
    pub(super) fn allow_lending(&self) {
        let cpu = self.pages.platform.cpu();
        if self.blocks.cpus.ways(cpu).is_none()
            && let Ok(page) = self.pages.platform.map_metadata(PAGE, PAGE)
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
        let is_touched = block.run.len == resident;
        let frees = if is_touched { MOST_FREES } else { block.constancy.frees_unlooked(blocks.surprises) };
        if frees == 0 || block.run.len <= MAX_RUN.bytes() {
            return block;
        }
        let cpu = self.pages.platform.cpu();
        let hints = Hints { resident, surprises: blocks.surprises, frees };
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
        loop {
            if let Some(blocks) = self.settle(self.lock()) {
                return blocks;
            }
        }
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
        while let Some(lent) = self.blocks.cpus.settle() {
            let addr = lent.run().addr;
            end_loan(&mut blocks, addr, lent.frees(), lent.frees() - 1);
            let Some(block) = blocks.remove(addr) else { continue };
            let resident = block.run.len - block.untouched;
            blocks.note_freed(resident, block.run.len);
            if let Some(gone) = self.keep_freed(&mut blocks, block, resident) {
                drop(blocks);
                self.unmap_kept(gone);
                return None;
            }
        }
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
        blocks.churn.free((block.run.len - block.untouched).saturating_mul(takes.into()));
    }
    blocks.pairs.ended.0 += u64::from(frees);
    blocks.pairs.ended.1 += u64::from(takes);
}

/// Frees and allocations of blocks that were lent, without the table.
#[derive(Debug)]
pub struct Pairs {
    /// Of those that are lent no more.
    ended: (u64, u64),
    /// That the heap's counters have.
    counted: (u64, u64),
}

impl Pairs {
    pub(super) const fn new() -> Self {
        Self { ended: (0, 0), counted: (0, 0) }
    }
}
