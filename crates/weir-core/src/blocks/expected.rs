//! What is expected to become resident of the blocks that are handed out, until there is enough of it to be worth a
//! release elsewhere.
//!
//! Most of a block may never be touched, and a kept block is handed out again and again. If each time all of it counted, a
//! program that takes and frees blocks and touches little of them would seem to take gigabytes in a moment, memory would
//! seem to be short, and each allocation would search for something to release. So what counts is the part that blocks
//! are touched to ([`Filled`](super::filled::Filled)), and what did not come true counts no longer once the block is freed.

use crate::base::units::PAGEBLOCK;

/// Bytes that are worth a release elsewhere: as much as zones hand out between two of them.
const ENOUGH: usize = PAGEBLOCK;

/// Bytes expected since the last time that there were enough.
#[derive(Debug)]
pub struct Expected(usize);

impl Expected {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// A block is handed out, of which `bytes` are expected; all that are, once they are enough, else 0.
    pub(crate) fn add(&mut self, bytes: usize) -> usize {
        self.0 = self.0.saturating_add(bytes);
        if self.0 < ENOUGH { 0 } else { core::mem::take(&mut self.0) }
    }

    /// A block is freed, of which `bytes` were expected and did not come.
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_true_is_never_enough() {
        let mut expected = Expected::new();
        for _ in 0..1000 {
            assert_eq!(expected.add(ENOUGH / 2), 0);
            expected.sub(ENOUGH / 2);
        }
        assert_eq!((expected.add(ENOUGH - 1), expected.add(5), expected.add(4)), (0, ENOUGH + 4, 0));
        expected.sub(ENOUGH);
        assert_eq!(expected.add(ENOUGH), ENOUGH, "of what was told already nothing is taken back");
    }
}
