//! Blocks in use that were handed out without memory behind all of them: how much of them has not been touched since,
//! as far as is known. What is not resident is in no peak.

use super::block::Block;
use super::table::Blocks;

/// Slots of the table that are gone through at a time for blocks to look at. Where there are more, all have their turn.
const AT_A_TIME: usize = 64;

impl Blocks {
    /// The block that was handed out last, if it was not looked at since; it counts as looked at from now on.
    pub(crate) fn see_newest(&mut self) -> Option<Block> {
        if core::mem::replace(&mut self.watch.is_seen, true) { None } else { self.newest() }
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
    pub(crate) fn set_untouched(&mut self, block: &Block, bytes: usize) {
        let is_same = |there: &Block| there.run == block.run && there.untouched > 0;
        if let Some(there) = self.get(block.run.addr).filter(is_same) {
            self.untouched = self.untouched - there.untouched + bytes;
            self.put(Block { untouched: bytes, ..there });
        }
    }

    fn is_doubtful(&self, block: &Block) -> bool {
        block.untouched > 0 && !block.constancy.is_sure(self.surprises)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::run::Run;

    const COUNT: usize = 3 * AT_A_TIME;
    const SLOTS: usize = 8 * AT_A_TIME;

    fn block(i: usize, untouched: usize) -> Block {
        Block { run: Run { addr: i << 24, len: 1 << 24 }, untouched, ..Block::NONE }
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
        assert_eq!(blocks.untouched, COUNT * (COUNT + 1) / 2);
        assert_eq!(blocks.see_newest().map(|newest| newest.run), Some(block(COUNT, 0).run));
        assert_eq!(blocks.see_newest(), None);
        blocks.set_untouched(&block(7, 7), 0);
        blocks.set_untouched(&block(7, 7), 5);
        assert_eq!(blocks.untouched, COUNT * (COUNT + 1) / 2 - 7, "all of it was touched: nothing more is learnt");
        for i in 1..=COUNT {
            assert_eq!(blocks.remove(block(i, 0).run.addr).unwrap().untouched, if i == 7 { 0 } else { i });
        }
        assert_eq!((blocks.untouched, blocks.newest()), (0, None));
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
