//! A block is freed: it is retained for a while, if that costs no peak.

use super::block::Kept;
use super::looks::untouched;
use super::mapped::Mapped;
use super::residence::look;
use crate::base::invalid_free::InvalidFree;
use crate::platform::Platform;

impl<P: Platform> Mapped<'_, P> {
    /// Frees a block mapped on its own: it is kept for a while, if that costs no peak.
    pub(crate) fn free_mapped(&self, addr: usize) {
        let Some((block, _)) = self.lock().remove(addr) else {
            return self.pages.platform.invalid_free(InvalidFree::DoubleFree, addr, 0);
        };
        let shown = &self.pages.platform.stats().mapped_bytes;
        self.pages.gauges.mapped_bytes.sub(block.run.len as u64, shown);
        // Of one that was resident before nothing can be learnt.
        let found = if block.is_touched { None } else { look(&self.pages.platform, block.run) };
        let resident = block.run.len - untouched(block.run.len, found);
        let mut blocks = self.lock();
        if let Some(look) = found.filter(|_| !block.huge) {
            blocks.density.observe(look.filled);
        }
        blocks.note(resident);
        let doubtful = blocks.untouched.bytes > 0 && !blocks.has_room(resident);
        drop(blocks);
        if doubtful {
            self.look_at_untouched();
            self.lock().note(resident);
        }
        self.pages.hard_limit.recharge(block.run.len, resident);
        self.keep_or_unmap(Kept { block, resident });
        self.pages.events.freed(&self.pages.platform, block.run.len);
    }

    pub(super) fn keep_or_unmap(&self, kept: Kept) {
        let gone = self.lock().keep(kept);
        if let Some(kept) = gone {
            self.unmap_kept(kept);
        }
    }
}
