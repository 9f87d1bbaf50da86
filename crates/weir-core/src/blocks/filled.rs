//! Which part of a block programs touch before they free it: of the last few that were freed, the most.

/// Freed blocks that are remembered.
const REMEMBERED: usize = 16;
/// A part is told in this many of the whole.
const WHOLE: usize = 255;

/// The parts.
#[derive(Debug)]
pub struct Filled {
    parts: [u8; REMEMBERED],
    next: u8,
}

impl Filled {
    /// Nothing was freed yet: all of a block is taken to be touched.
    pub(crate) const fn new() -> Self {
        Self { parts: [WHOLE as u8; REMEMBERED], next: 0 }
    }

    /// A block of `len` bytes was freed, `resident` of which have memory behind them.
    pub(crate) fn observe(&mut self, resident: usize, len: usize) {
        self.parts[self.next as usize] = (resident.min(len) / (len / WHOLE).max(1) + 1).min(WHOLE) as u8;
        self.next = (self.next + 1) % REMEMBERED as u8;
    }

    /// Of `bytes` in use, those that will have been touched when they are freed, at most.
    pub(crate) fn of(&self, bytes: usize) -> usize {
        let part = usize::from(self.parts.iter().copied().max().unwrap_or(WHOLE as u8));
        if part == WHOLE { bytes } else { bytes / WHOLE * part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_of_the_last_blocks_counts() {
        const LEN: usize = 6 << 20;
        let mut filled = Filled::new();
        for _ in 0..REMEMBERED {
            assert_eq!(filled.of(LEN + 7), LEN + 7);
            filled.observe(LEN / 2, LEN);
        }
        assert!((LEN / 2..LEN / 100 * 51).contains(&filled.of(LEN)), "{}", filled.of(LEN));
        filled.observe(LEN, LEN);
        (1..REMEMBERED).for_each(|_| filled.observe(0, LEN));
        assert_eq!(filled.of(LEN), LEN);
        filled.observe(0, LEN);
        assert!(filled.of(LEN) <= LEN / 100, "nothing was touched");
    }
}
