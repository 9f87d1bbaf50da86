//! When blocks in use are looked at, for how much of them has been touched.

use super::block::Block;
use super::mapped::Mapped;
use super::table::Blocks;
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, Pages};
use crate::platform::lock::Guard;
use crate::platform::{Platform, rank};

/// A block of which at most this part is untouched counts as touched all over.
pub(super) const NEARLY_ALL: usize = 16;
/// Shortest time, ns, between two looks at many blocks that are not known to be touched, for each [`LOOKS`] of them. So 16 looks
/// of a few us each are at most 1 % of a CPU.
const LOOK_INTERVAL: Nanos = Nanos(10_000_000);
const LOOKS: usize = 16;

impl<P: Platform> Mapped<'_, P> {
    /// Learns from the block handed out before this one, if it is still in use. A program that fills its blocks as it gets them
    /// has filled that one. Returns the table.
    pub(super) fn look_at_newest(&self, settles: bool) -> Guard<'_, Blocks, P, { rank::BLOCKS }> {
        let mut blocks = self.table(settles);
        // It may be freed meanwhile, and its addresses be another's: then one wrong thing is learnt.
        if let Some(block) = blocks.see_newest() {
            drop(blocks);
            let look = self.look_in_use(block);
            blocks = self.table(settles);
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
        blocks.note(Bytes::ZERO);
        found
    }

    /// Looks at blocks in use that may have been touched since the last look. Looks at the youngest, which is most likely being
    /// touched now, and from time to time at many.
    pub(super) fn look_at_untouched(&self) {
        let now = self.pages.platform.now();
        let blocks = self.settled();
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
    fn look_at_many(&self, now: Time) {
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

/// What is untouched of a block of `len` bytes, by what a look found; 0 where the platform cannot say.
pub(super) fn untouched(len: usize, found: Option<Look>) -> Bytes {
    let untouched = found.map_or(Bytes::ZERO, |look| Bytes(len).saturating_sub(look.resident));
    if untouched.0 <= len / NEARLY_ALL { Bytes::ZERO } else { untouched }
}

// How much of a block is resident, from a few looks at it.

/// Pageblocks of a block that are looked at, where it is touched all over or nowhere.
const SAMPLES: usize = 4;
/// Resident pages, seven eighths, from which on a touched pageblock counts as filled.
const FILLED: usize = PAGEBLOCK_PAGES / 8 * 7;
/// Estimate of a block's residence, by a few of its pageblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What is resident.
    pub resident: Bytes,
    /// Some of it was touched, and those pageblocks that were are filled.
    pub filled: bool,
}

/// Looks at a few pageblocks of `block`, each once; `None` where the platform cannot say. What lies between two of them
/// is taken to be as they are. Where one was touched and the other was not, the border is searched for: a buffer that
/// grows is touched up to somewhere.
pub(crate) fn look<P: Platform>(platform: &P, block: Run) -> Option<Look> {
    let pages_at = |i: usize| platform.resident(Run { addr: block.addr + i * PAGEBLOCK, len: PAGEBLOCK });
    // A block may be here for its alignment alone.
    let last = (block.len / PAGEBLOCK).checked_sub(1)?;
    let (mut at, mut pages) = (0, pages_at(0)?);
    let mut before = pages;
    let (mut resident, mut touched, mut filled) = (pages, usize::from(pages > 0), usize::from(pages >= FILLED));
    for sample in 1..SAMPLES {
        let next = last * sample / (SAMPLES - 1);
        if next == at {
            continue;
        }
        let there = pages_at(next)?;
        resident += if (pages > 0) == (there > 0) {
            (next - at - 1) * (pages + there) / 2 + there
        } else {
            let (mut low, mut high) = (at, next);
            while high - low > 1 {
                let middle = low.midpoint(high);
                let is_like_low = (pages_at(middle)? > 0) == (pages > 0);
                *(if is_like_low { &mut low } else { &mut high }) = middle;
            }
            (low - at) * pages + (next - low) * there
        };
        touched += usize::from(there > 0);
        filled += usize::from(there >= FILLED);
        (before, at, pages) = (pages, next, there);
    }
    // What is behind the last whole pageblock is as that one, unless the block was touched up to somewhere inside it.
    let ends_inside = before >= FILLED && pages < FILLED;
    let rest = if ends_inside { 0 } else { block.len % PAGEBLOCK / PAGE * pages / PAGEBLOCK_PAGES };
    Some(Look { resident: Pages(resident + rest).bytes(), filled: touched > 0 && filled == touched })
}

// Blocks in use that were handed out without memory behind all of them. The table keeps how much of them has not been touched
// since, as far as is known. What is not resident is in no peak.

/// Slots of the table that are gone through at a time for blocks to look at. Where there are more, all have their turn.
const AT_A_TIME: usize = 64;

impl Blocks {
    /// The block that was handed out last, if it was not looked at since; it counts as looked at from now on.
    pub(crate) fn see_newest(&mut self) -> Option<Block> {
        if core::mem::replace(&mut self.watch.is_seen, true) { None } else { self.newest() }
    }

    /// Whether [`Blocks::see_newest`] would find none.
    pub(crate) fn is_newest_seen(&self) -> bool {
        self.watch.is_seen || self.newest().is_none()
    }

    /// The block that was handed out last, if it is in use still and it cannot be told to be as it was.
    pub(crate) fn newest(&self) -> Option<Block> {
        self.get(self.watch.newest).filter(|block| self.is_doubtful(block))
    }

    /// Where blocks begin that cannot be told to be as they were, of the slots that have their turn; how many there are.
    pub(crate) fn doubtful(&mut self) -> ([usize; AT_A_TIME], usize) {
        let (mut out, mut count) = ([0; AT_A_TIME], 0);
        let (from, slots) = (self.watch.next, self.capacity().min(AT_A_TIME));
        for block in (from..from + slots).map(|i| self.at(i)) {
            if block.run.addr != 0 && self.is_doubtful(&block) {
                out[count] = block.run.addr;
                count += 1;
            }
        }
        self.watch.next = from + slots;
        (out, count)
    }

    /// A look at the block found `bytes` untouched.
    pub(crate) fn set_untouched(&mut self, block: &Block, bytes: Bytes) {
        let is_same = |there: &Block| there.run == block.run && there.untouched > Bytes::ZERO;
        if let Some(there) = self.get(block.run.addr).filter(is_same) {
            self.untouched = self.untouched - there.untouched + bytes;
            self.put(Block { untouched: bytes, ..there });
        }
    }

    fn is_doubtful(&self, block: &Block) -> bool {
        block.untouched > Bytes::ZERO && !block.constancy.is_sure(self.surprises)
    }
}

#[cfg(test)]
mod untouched_tests {
    use super::*;
    use crate::base::run::Run;

    const COUNT: usize = 3 * AT_A_TIME;
    const SLOTS: usize = 8 * AT_A_TIME;

    fn block(i: usize, untouched: usize) -> Block {
        Block { run: Run { addr: i << 24, len: 1 << 24 }, untouched: Bytes(untouched), ..Block::NONE }
    }

    fn blocks(table: &mut [Block]) -> Blocks {
        let mut blocks = Blocks::new();
        assert_eq!(blocks.rehash(table.as_mut_ptr() as usize, table.len()), None);
        for i in 1..=COUNT {
            assert_eq!(blocks.reserve(), Ok(()));
            blocks.insert(block(i, i));
        }
        blocks
    }

    #[test]
    fn the_sum_is_of_all_blocks() {
        let mut table = [Block::NONE; SLOTS];
        let mut blocks = blocks(&mut table);
        assert_eq!(blocks.untouched, Bytes(COUNT * (COUNT + 1) / 2));
        assert_eq!(blocks.see_newest().map(|newest| newest.run), Some(block(COUNT, 0).run));
        assert_eq!(blocks.see_newest(), None);
        blocks.set_untouched(&block(7, 7), Bytes::ZERO);
        blocks.set_untouched(&block(7, 7), Bytes(5));
        assert_eq!(
            blocks.untouched,
            Bytes(COUNT * (COUNT + 1) / 2 - 7),
            "all of it was touched: nothing more is learnt"
        );
        for i in 1..=COUNT {
            assert_eq!(blocks.remove(block(i, 0).run.addr).unwrap().untouched, Bytes(if i == 7 { 0 } else { i }));
        }
        assert_eq!((blocks.untouched, blocks.newest()), (Bytes::ZERO, None));
    }

    #[test]
    fn all_blocks_have_their_turn() {
        let mut table = [Block::NONE; SLOTS];
        let mut blocks = blocks(&mut table);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..SLOTS / AT_A_TIME {
            let (found, count) = blocks.doubtful();
            seen.extend(found[..count].iter().map(|addr| addr >> 24));
        }
        assert_eq!(seen, (1..=COUNT).collect());
    }
}
