//! A block is freed: it is retained for a while, if that costs no peak.

use super::block::Kept;
use super::mapped::Mapped;
use super::residence::look;
use crate::base::invalid_free::InvalidFree;
use crate::platform::Platform;

impl<P: Platform> Mapped<'_, P> {
    /// Frees a block mapped on its own: it is kept for a while, if that costs no peak.
    pub(crate) fn free_mapped(&self, addr: usize) {
        let mut blocks = self.lock();
        let Some(mut block) = blocks.remove(addr) else {
            drop(blocks);
            return self.pages.platform.invalid_free(InvalidFree::DoubleFree, addr, 0);
        };
        let surprises = blocks.surprises;
        let (untouched, is_known) = (block.untouched, block.untouched > 0);
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
        let resident = block.run.len - if is_sure { untouched } else { super::looks::untouched(block.run.len, found) };
        if is_sure {
            block.constancy.skip();
        } else if looks {
            let as_expected = is_known && resident == block.run.len - untouched;
            blocks.surprises = blocks.surprises.wrapping_add(block.constancy.observe(as_expected, surprises).into());
        }
        if let Some(look) = found.filter(|_| !block.huge) {
            blocks.density.observe(look.filled);
        }
        blocks.note_freed(resident, block.run.len);
        if blocks.untouched > 0 && !blocks.has_room(resident) {
            drop(blocks);
            self.look_at_untouched();
            blocks = self.lock();
            blocks.note(resident);
        }
        self.pages.hard_limit.recharge(block.run.len, resident);
        let gone = blocks.keep(Kept { block, resident });
        drop(blocks);
        if let Some(kept) = gone {
            self.unmap_kept(kept);
        }
        let shown = &self.pages.platform.stats().mapped_bytes;
        self.pages.gauges.mapped_bytes.sub(block.run.len as u64, shown);
        // What is not resident can not be released.
        self.pages.events.freed(&self.pages.platform, resident);
    }

    pub(super) fn keep_or_unmap(&self, kept: Kept) {
        let gone = self.lock().keep(kept);
        if let Some(kept) = gone {
            self.unmap_kept(kept);
        }
    }
}
