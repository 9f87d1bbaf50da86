//! When blocks in use are looked at, for how much of them has been touched.

use super::block::Block;
use super::mapped::Mapped;
use super::residence::{Look, look};
use super::table::Blocks;
use crate::platform::lock::Guard;
use crate::platform::{Platform, rank};

/// A block of which at most this part is untouched counts as touched all over.
pub(super) const NEARLY_ALL: usize = 16;
/// Shortest time, ns, between two looks at many blocks that are not known to be touched, for each so many of them: 16 looks
/// of a few us each are then at most 1 % of a CPU.
const LOOK_INTERVAL: u64 = 10_000_000;
const LOOKS: usize = 16;

impl<P: Platform> Mapped<'_, P> {
    /// Learns from the block handed out before this one, if it is still in use: a program that fills its blocks as it
    /// gets them has filled that one. Returns the table.
    pub(super) fn look_at_newest(&self) -> Guard<'_, Blocks, P, { rank::BLOCKS }> {
        let mut blocks = self.lock();
        // It may be freed meanwhile, and its addresses be another's: then one wrong thing is learnt.
        if let Some(block) = blocks.see_newest() {
            drop(blocks);
            let look = self.look_in_use(block);
            blocks = self.lock();
            if let Some(look) = look.filter(|_| !block.huge) {
                blocks.density.observe_in_use(look.filled);
            }
        }
        blocks
    }

    /// Looks at a block in use, and notes what of it is untouched.
    fn look_in_use(&self, block: Block) -> Option<Look> {
        let found = look(&self.pages.platform, block.run);
        let untouched = untouched(block.run.len, found);
        let mut blocks = self.lock();
        blocks.set_untouched(&block, untouched);
        blocks.note(0);
        found
    }

    /// Looks at blocks in use that may have been touched since the last look: at the youngest, which is most likely being
    /// touched now, and from time to time at many.
    pub(super) fn look_at_untouched(&self) {
        let now = self.pages.platform.now();
        let blocks = self.lock();
        let (newest, is_due) = (blocks.newest(), now >= blocks.watch.due);
        drop(blocks);
        if let Some(block) = newest {
            self.look_in_use(block);
        }
        if is_due {
            self.look_at_many(now);
        }
    }

    #[inline(never)]
    fn look_at_many(&self, now: u64) {
        let mut blocks = self.lock();
        let (found, count) = blocks.doubtful();
        blocks.watch.due = now + LOOK_INTERVAL * count.div_ceil(LOOKS).max(1) as u64;
        drop(blocks);
        for &addr in &found[..count] {
            // It may be freed meanwhile.
            let block = self.lock().get(addr);
            block.into_iter().for_each(|block| _ = self.look_in_use(block));
        }
    }
}

/// Of a block of `len` bytes, those untouched by what a look found; none where the platform cannot say.
pub(super) fn untouched(len: usize, found: Option<Look>) -> usize {
    let untouched = found.map_or(0, |look| len.saturating_sub(look.resident));
    if untouched <= len / NEARLY_ALL { 0 } else { untouched }
}
