//! The blocks of a heap, and these on their platform.

use core::sync::atomic::AtomicUsize;

use super::block::{Block, Kept};
use super::cpu_blocks::CpuBlocks;
use super::table::Blocks;
use crate::base::cause::Cause;
use crate::base::run::Run;
use crate::base::units::Bytes;
use crate::pages::HeapPages;
use crate::platform::lock::{Guard, Lock};
use crate::platform::{Platform, rank};

/// Size, bytes, from which a run that has grown is mapped on its own: the copies before it are cheap.
pub(crate) const FIRST_MAPPED: usize = 128 << 10;

/// All such blocks of a heap.
pub struct MappedBlocks {
    pub(super) table: Lock<Blocks, { rank::BLOCKS }>,
    /// Size, bytes, from which a run that has grown is mapped on its own.
    pub(super) mapped_from: AtomicUsize,
    /// Runs to be made zero that are not looked at, as the one before them was filled.
    pub(super) filled_runs: AtomicUsize,
    /// Blocks of the table that are lent to CPUs.
    pub(super) cpus: CpuBlocks,
}

impl MappedBlocks {
    /// No blocks.
    pub(crate) const fn new() -> Self {
        Self {
            table: Lock::new(Blocks::new()),
            mapped_from: AtomicUsize::new(FIRST_MAPPED),
            filled_runs: AtomicUsize::new(0),
            cpus: CpuBlocks::new(),
        }
    }

    /// The blocks with the pages of their heap, whose platform maps them.
    pub(crate) fn on<'a, P: Platform>(&'a self, pages: &'a HeapPages<P>) -> Mapped<'a, P> {
        Mapped { blocks: self, pages }
    }
}

/// The blocks on their platform.
pub(crate) struct Mapped<'a, P> {
    pub(super) blocks: &'a MappedBlocks,
    pub(super) pages: &'a HeapPages<P>,
}

impl<'a, P: Platform> Mapped<'a, P> {
    pub(super) fn lock(&self) -> Guard<'a, Blocks, P, { rank::BLOCKS }> {
        self.blocks.table.lock(&self.pages.platform)
    }

    /// Unmaps a block that was retained, which counts against the hard limit until it is gone.
    pub(super) fn unmap_kept(&self, kept: Kept) {
        self.pages.platform.unmap(kept.block.run);
        self.pages.hard_limit.recharge(kept.resident, Bytes::ZERO);
    }

    /// Blocks in use.
    pub(crate) fn count(&self) -> usize {
        self.settled().count
    }

    /// Retained blocks, resident or not.
    pub(crate) fn retained(&self) -> Bytes {
        self.settled().retained()
    }

    /// Unmaps all retained blocks.
    pub(crate) fn unmap_retained(&self) {
        drop(self.settled());
        self.unmap_those(Cause::Limit, |blocks| blocks.drop_above(Bytes::ZERO));
    }

    /// Whether a freed block that was not unmapped begins at `addr`.
    pub(crate) fn was_freed(&self, addr: usize) -> bool {
        let blocks = self.lock();
        let is_lent = blocks.get(addr).is_some_and(|block| self.is_free_on_cpu(&block));
        is_lent || blocks.kept[..blocks.kept_count].iter().any(|kept| kept.block.run.addr == addr)
    }

    /// Length of the block in use that begins at `addr`.
    pub(crate) fn len_of(&self, addr: usize) -> Option<usize> {
        let block = self.lock().get(addr)?;
        (!self.is_free_on_cpu(&block)).then_some(block.run.len)
    }
}

/// The block at another place or of another length.
pub(super) fn moved(block: Block, run: Run) -> Block {
    Block { run, is_rest: block.is_rest && run.addr == block.run.addr, ..block }
}
