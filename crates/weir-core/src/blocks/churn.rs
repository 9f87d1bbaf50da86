//! Whether a program replaces its blocks by blocks of other lengths, again and again. Where it does, the memory of those
//! that went for lack of room is touched anew at once, which costs far more than all else; and a heap that joins free
//! memory, as the C library's, has holes of about a third of what is in use there. So more may be kept.

/// What was dropped for lack of room, in peaks, that makes it churn: a program that grows buffers by steps, and frees
/// them, drops half a peak each time.
const ENTER: usize = 8;
/// What must be freed in a window, in peaks, for it to go on.
const STAY: usize = 8;
/// Part of the peak that kept blocks may raise it by meanwhile.
const RAISE: usize = 4;

/// What came and went.
#[derive(Debug)]
pub struct Churn {
    /// Bytes with memory behind them that were dropped for lack of room: in this window, and half of those before.
    dropped: usize,
    /// And that were freed in this window.
    freed: usize,
    is_on: bool,
}

impl Churn {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { dropped: 0, freed: 0, is_on: false }
    }

    /// A block with `resident` bytes was freed.
    pub(crate) fn free(&mut self, resident: usize) {
        self.freed = self.freed.saturating_add(resident);
    }

    /// `resident` bytes were dropped for lack of room, at a peak of `high`.
    pub(crate) fn drop(&mut self, resident: usize, high: usize) {
        self.dropped = self.dropped.saturating_add(resident);
        self.is_on |= self.dropped / ENTER >= high;
    }

    /// A window ends, of which `high` was the peak.
    pub(crate) fn roll(&mut self, high: usize) {
        self.is_on &= self.freed / STAY >= high;
        (self.dropped, self.freed) = (self.dropped / 2, 0);
    }

    /// The part of the peak that kept blocks may raise it by: one in so many, `usual` where there is no churn.
    pub(crate) fn raise(&self, usual: usize) -> usize {
        if self.is_on { RAISE } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_many_peaks_to_begin_and_a_quiet_window_to_end() {
        let mut churn = Churn::new();
        for _ in 0..100 {
            churn.free(1000);
            churn.drop(500, 1000);
            churn.roll(1000);
            assert_eq!(churn.raise(12), 12, "half a peak a window");
        }
        (0..ENTER).for_each(|_| churn.drop(1000, 1000));
        assert_eq!(churn.raise(12), RAISE);
        for _ in 0..3 {
            churn.free(STAY * 1000);
            churn.roll(1000);
            assert_eq!(churn.raise(12), RAISE, "nothing needs to be dropped any more");
        }
        churn.free(STAY * 1000 - 1);
        churn.roll(1000);
        assert_eq!(churn.raise(12), 12);
    }
}
