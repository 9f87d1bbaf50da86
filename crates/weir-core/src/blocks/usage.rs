//! Where the memory of blocks mapped on their own is.

use super::block::Kept;
use super::mapped::Mapped;
use super::table::KEPT;
use crate::base::run::Run;
use crate::base::units::PAGEBLOCK;
use crate::pages::usage::{MEASURED, resident_bytes};
use crate::platform::Platform;
use crate::reclaim::{Figures, Usage};

/// Blocks that are looked at in one go.
const AT_A_TIME: usize = 32;

/// A walk over all blocks in use, which may stop after any few of them: where it goes on, and what it has found by then.
#[derive(Debug, Default)]
pub(crate) struct BlocksWalk {
    /// The table as it was walked over: in another one a block has another place.
    table: Run,
    /// Slots that are done.
    slots: usize,
    /// Bytes of the blocks.
    live: usize,
    /// Of these, what is not resident.
    untouched: usize,
    /// The platform could not say what is resident of one of them.
    is_blind: bool,
}

impl<P: Platform> Mapped<'_, P> {
    /// Walks on over blocks of at most `looks` pageblocks, and counts them down; whether the walk is done. The last block
    /// may take more than are left: [`MEASURED`] bytes of it are looked at, at most.
    pub(crate) fn walk_blocks(&self, walk: &mut BlocksWalk, looks: &mut usize) -> bool {
        let mut runs = [Run::default(); AT_A_TIME];
        while *looks > 0 {
            let blocks = self.lock();
            let table = blocks.memory();
            if (table.addr, table.len) != (walk.table.addr, walk.table.len) {
                // It has grown meanwhile.
                *walk = BlocksWalk { table, ..BlocksWalk::default() };
            }
            let runs = &mut runs[..(*looks / (MEASURED / PAGEBLOCK)).clamp(1, AT_A_TIME)];
            let n = blocks.runs_from(&mut walk.slots, runs);
            drop(blocks);
            for &run in &runs[..n] {
                let resident = resident_bytes(&self.pages.platform, run);
                walk.is_blind |= resident.is_none();
                walk.live += run.len;
                walk.untouched += run.len - resident.unwrap_or(run.len);
                *looks = looks.saturating_sub(run.len.min(MEASURED).div_ceil(PAGEBLOCK));
            }
            if n < runs.len() {
                return true;
            }
        }
        false
    }

    /// Adds what a whole walk has found of blocks in use, and those that are retained.
    pub(crate) fn add_blocks_usage(&self, walk: &BlocksWalk, usage: &mut Usage) {
        let platform = &self.pages.platform;
        usage.live += walk.live;
        // Where the platform cannot say what is resident: what earlier looks found.
        usage.untouched += walk.untouched + if walk.is_blind { self.lock().untouched } else { 0 };
        let mut retained = [Kept::default(); KEPT];
        let n = self.lock().copy_kept(&mut retained);
        let resident = |kept: &Kept| resident_bytes(platform, kept.block.run).unwrap_or(kept.resident);
        usage.idle += retained[..n].iter().map(resident).sum::<usize>();
    }

    /// Adds what the counters say.
    pub(super) fn publish_figures(&self, figures: &mut Figures, waits: bool) {
        let blocks = if waits { Some(self.lock()) } else { self.blocks.table.try_lock(&self.pages.platform) };
        match blocks {
            Some(blocks) => {
                figures.live += blocks.bytes;
                figures.idle += blocks.idle;
            }
            None => figures.is_partial = true,
        }
    }

    /// Resident bytes of the table.
    pub(super) fn metadata_bytes(&self) -> usize {
        let table = self.lock().memory();
        resident_bytes(&self.pages.platform, table).unwrap_or(table.len)
    }
}
