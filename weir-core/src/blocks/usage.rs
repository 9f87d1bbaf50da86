//! Where the memory of blocks mapped on their own is.

use super::block::Kept;
use super::mapped::Mapped;
use super::table::KEPT;
use crate::base::run::Run;
use crate::pages::usage::resident_bytes;
use crate::platform::Platform;
use crate::reclaim::{Figures, Usage};

/// Blocks that are looked at in one go.
const AT_A_TIME: usize = 32;

impl<P: Platform> Mapped<'_, P> {
    /// Adds where the memory of blocks is, in use and retained. O(their pageblocks).
    pub(super) fn add_blocks_usage(&self, usage: &mut Usage) {
        let platform = &self.pages.platform;
        let (mut runs, mut slot) = ([Run::default(); AT_A_TIME], 0);
        // Where the platform cannot say what is resident: what earlier looks found.
        let known = self.lock().untouched.bytes;
        let mut is_measured = true;
        loop {
            let n = self.lock().runs_from(&mut slot, &mut runs);
            for &run in &runs[..n] {
                let resident = resident_bytes(platform, run);
                is_measured &= resident.is_some();
                usage.live += run.len;
                usage.untouched += run.len - resident.unwrap_or(run.len);
            }
            if n < AT_A_TIME {
                break;
            }
        }
        usage.untouched += if is_measured { 0 } else { known };
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
