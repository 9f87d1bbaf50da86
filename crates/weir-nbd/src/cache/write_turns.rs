//! Turns of writes past the kernel's page cache and of writes through it, so that no two of them meet.
//!
//! A direct write first drops the kernel's pages of its range, then writes, and then drops them once more. A write
//! through the page cache of the same block may come in between, and leaves a page that cannot be dropped. The kernel
//! then keeps an I/O error for the file, which fails the next flush, and which of the two the disk has is not known.
//!
//! So a direct write shares the turn of each stretch of the file that it touches, and a write through the page cache has
//! it alone. A stretch is as long as the largest folio of a file: the kernel drops and marks whole folios.
//!
//! **No deadlock, and none starves.** Stretches share a few turns. A write takes its turns in ascending order, and holds
//! them for one call to the kernel, in which it waits for no turn. A turn is given in the order in which it was asked
//! for.

use std::ops::Range;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes of a stretch: the largest folio of the page cache where pages have 4 KiB. Where they are larger a folio may be so too,
/// but readahead makes none of that size.
const STRETCH: u64 = 2 << 20;
/// Turns of a file: so many small writes at random meet seldom, and a long write takes few.
const TURNS: u64 = 64;

/// The turns of one file, for all that have it open.
pub struct WriteTurns([RwLock<()>; TURNS as usize]);

/// A turn that a write holds.
pub enum WriteTurn<'a> {
    /// With other direct writes.
    Shared { _turn: RwLockReadGuard<'a, ()> },
    /// Alone.
    Alone { _turn: RwLockWriteGuard<'a, ()> },
}

impl Default for WriteTurns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::new(())))
    }
}

impl WriteTurns {
    /// Waits for the turns of a write of `range`, which is not empty.
    pub async fn take(&self, range: Range<u64>, is_direct: bool) -> Vec<WriteTurn<'_>> {
        let stretches = range.start / STRETCH..range.end.div_ceil(STRETCH);
        let first = stretches.start % TURNS;
        let is_touched = |turn: u64| (turn + TURNS - first) % TURNS < stretches.end - stretches.start;
        let mut taken = Vec::new();
        for number in (0..TURNS).filter(|turn| is_touched(*turn)) {
            let turn = &self.0[number as usize];
            taken.push(match is_direct {
                true => WriteTurn::Shared { _turn: turn.read().await },
                false => WriteTurn::Alone { _turn: turn.write().await },
            });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn writes_of_two_kinds_do_not_meet() {
        let turns = WriteTurns::default();
        let take = |range, is_direct| Box::pin(turns.take(range, is_direct));
        let direct = take(0..4096, true).now_or_never().expect("nobody else");
        let other = take(4096..8192, true).now_or_never().expect("direct writes do not wait for each other");
        assert!(take(1 << 20..(1 << 20) + 512, false).now_or_never().is_none(), "one folio may have both");
        let _far = take(STRETCH..STRETCH + 1, false).now_or_never().expect("another stretch");
        let mut part = take(512..1024, false);
        assert!(part.as_mut().now_or_never().is_none());
        let mut late = take(0..4096, true);
        assert!(late.as_mut().now_or_never().is_none(), "the part does not starve");
        drop(direct);
        assert!(part.as_mut().now_or_never().is_none(), "one is left");
        drop(other);
        let part = part.now_or_never().expect("its turn");
        assert!(late.as_mut().now_or_never().is_none());
        drop(part);
        assert!(late.now_or_never().is_some());
    }

    #[test]
    fn a_write_takes_the_turns_of_all_its_stretches_and_no_others() {
        let turns = WriteTurns::default();
        let count = |range| turns.take(range, false).now_or_never().expect("nobody else").len();
        assert_eq!(
            [count(0..1), count(0..STRETCH), count(0..STRETCH + 1), count(STRETCH - 1..STRETCH + 1)],
            [1, 1, 2, 2]
        );
        assert_eq!(count(0..1 << 40), TURNS as usize);
        let end = TURNS * STRETCH;
        let around = turns.take(end - 1..end + 1, false).now_or_never().expect("nobody else");
        assert_eq!(around.len(), 2);
        assert!(
            turns.take(0..1, true).now_or_never().is_none() && turns.take(end - 1..end, true).now_or_never().is_none()
        );
        assert!(turns.take(STRETCH..2 * STRETCH, true).now_or_never().is_some());
    }
}
