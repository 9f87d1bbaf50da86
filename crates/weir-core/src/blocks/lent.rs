//! Blocks that the table has lent to a CPU, each in one word: where it is, how long, how often it was freed, whether it is free.
//!
//! The block stays in the table as one in use. While it is lent, an allocation and a free on its CPU are one exchange each:
//!
//! | step | who | the word before | and after |
//! |---|---|---|---|
//! | lend | the table, locked | nothing; or a block in use, which is lent no more | the block, in use |
//! | free | its owner, on the CPU | in use | free, one free more |
//! | take | a thread on the CPU | free | in use |
//! | settle | the table, locked: it frees the block | free | nothing |
//! | withdraw | the table, locked: the block was freed elsewhere, or is resized | in use | nothing |
//!
//! A bit for each word says which may be free, so that nobody searches for one. Who frees a block sets the bit after the exchange,
//! and who takes or settles it clears the bit after that. Another block may have come to the word meanwhile, and be free. So who
//! cleared the bit reads the word once more, and sets the bit again. The change of the bit acquires what the one before it released,
//! so of the two either the first is seen here, or it sets the bit later. A block that is free has its bit, but for moments. Whoever
//! finds the bit of a block in use clears it in the same way: it was set late, after a third thread had taken the block.
//!
//! The word says all that an exchange relies on, so a word that was read long ago does no harm. The exchange succeeds only where the
//! same block, as long as then, is in the same state.
//!
//! The interleavings that this excludes:
//!
//! - Two threads free a block, one on its CPU, and one elsewhere, which goes to the table. Each finds it in use. Without an
//!   exchange both would keep it, and two owners would get it. So one of them fails, and says that the free is wrong.
//! - A thread takes a block while reclaim settles it, and reclaim unmaps it then. One of the two exchanges fails.
//! - A thread takes a block, and is stopped before it clears the bit. Another block is lent in place of that one, and freed. The thread
//!   clears the bit of that, and nobody would find it again. The thread reads the word once more.
//! - A thread reads a block's length, and is stopped. The block goes, and a shorter one comes to the same address. The thread would
//!   take it for as long as the first. The length is in the word, so its exchange fails.
//!
//! The model is `crates/weir-models/tests/blocks/lent.rs`.

use core::array;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::platform::sync::AtomicU64;

/// Bit of a block that is free.
const FREE: u64 = 1;
/// Bits of the number of frees, above that.
const FREES_AT: u32 = 1;
const FREES_BITS: u32 = 8;
/// Bits of the length in pages, above those: blocks of less than 2 GiB are lent.
const LEN_AT: u32 = FREES_AT + FREES_BITS;
const LEN_BITS: u32 = 19;
/// Above those the number of the first page: 48 bits of addresses.
const PAGE_AT: u32 = LEN_AT + LEN_BITS;
/// No block.
const NOTHING: u64 = 0;

/// Frees of a block that is lent, at most: then the table has it again, and may look at it.
pub(super) const MOST_FREES: u8 = u8::MAX;

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent(u64);

impl Lent {
    fn new(run: Run) -> Option<Self> {
        let (page, len) = ((run.addr / PAGE) as u64, (run.len / PAGE) as u64);
        (page >> (u64::BITS - PAGE_AT) == 0 && len >> LEN_BITS == 0).then_some(Self(page << PAGE_AT | len << LEN_AT))
    }

    /// Where the block is.
    pub(super) fn run(self) -> Run {
        let len = (self.0 >> LEN_AT) as usize & ((1 << LEN_BITS) - 1);
        Run { addr: (self.0 >> PAGE_AT) as usize * PAGE, len: len * PAGE }
    }

    /// How often it was freed since it was lent.
    pub(super) fn frees(self) -> u8 {
        (self.0 >> FREES_AT) as u8
    }

    fn is_free(self) -> bool {
        self.0 & FREE != 0
    }

    fn is_at(self, addr: usize) -> bool {
        self.0 >> PAGE_AT == (addr / PAGE) as u64 && addr != 0 && addr.is_multiple_of(PAGE)
    }
}

/// Answer to [`Way::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawn {
    /// It is not lent.
    NotLent,
    /// It was lent, was freed so often meanwhile, and is lent no more.
    Frees(u8),
    /// It is free: who asks has no right to it.
    Free,
}

/// Words that a block at some address may be in.
const SET: usize = 4;
/// Blocks of a group that may be free: more go to the table, which may have no room for them.
const MOST_FREE: u32 = 4;

/// What was known of a block when it was lent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hints {
    /// Bytes with memory behind them.
    pub(super) resident: usize,
    /// The number of surprises, of all blocks: another one ends the loan, but of a block that is resident as a whole.
    pub(super) surprises: u8,
    /// Frees that it may be lent for, one at least.
    pub(super) frees: u8,
}

impl Hints {
    fn pack(self) -> u64 {
        let pages = (self.resident / PAGE) as u64;
        pages << 16 | u64::from(self.surprises) << 8 | u64::from(self.frees)
    }

    fn unpack(hints: u64) -> Self {
        Self { resident: (hints >> 16) as usize * PAGE, surprises: (hints >> 8) as u8, frees: hints as u8 }
    }
}

/// Room for one block.
#[derive(Debug)]
struct Way {
    word: AtomicU64,
    /// [`Hints`] on that block, which may be of the one before it for a moment.
    hints: AtomicU64,
}

impl Way {
    fn read(&self) -> Lent {
        Lent(self.word.load(Relaxed))
    }

    fn exchange(&self, from: Lent, to: u64) -> bool {
        self.word.compare_exchange(from.0, to, AcqRel, Relaxed).is_ok()
    }

    /// Bytes of the block with memory behind them when it was lent.
    fn resident(&self) -> usize {
        Hints::unpack(self.hints.load(Relaxed)).resident
    }

    fn take(&self, fits: impl FnOnce(Run) -> bool) -> Option<Run> {
        let lent = self.read();
        let is_taken = lent.is_free() && fits(lent.run()) && self.exchange(lent, lent.0 & !FREE);
        is_taken.then(|| lent.run())
    }

    fn free(&self, addr: usize, surprises: u8) -> bool {
        let lent = self.read();
        if !lent.is_at(addr) {
            return false;
        }
        let hints = Hints::unpack(self.hints.load(Relaxed));
        let is_sure = lent.frees() < hints.frees && (hints.surprises == surprises || hints.resident == lent.run().len);
        is_sure && !lent.is_free() && self.exchange(lent, (lent.0 + (1 << FREES_AT)) | FREE)
    }

    fn lend(&self, lent: Lent, hints: Hints) -> Result<Option<Lent>, ()> {
        let before = self.read();
        if before.is_free() || !self.exchange(before, lent.0) {
            return Err(());
        }
        self.hints.store(hints.pack(), Relaxed);
        Ok((before.0 != NOTHING).then_some(before))
    }

    fn settle(&self) -> Option<Lent> {
        let lent = self.read();
        (lent.is_free() && self.exchange(lent, NOTHING)).then_some(lent)
    }

    fn withdraw(&self, addr: usize) -> Withdrawn {
        let lent = self.read();
        match lent.is_at(addr) {
            false => Withdrawn::NotLent,
            true if lent.is_free() || !self.exchange(lent, NOTHING) => Withdrawn::Free,
            true => Withdrawn::Frees(lent.frees()),
        }
    }
}

/// The blocks lent to a CPU. All zeros are none.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Ways<const GROUPS: usize, const WAYS: usize> {
    /// Which words may be of blocks that are free, a bit each.
    free: [AtomicU64; GROUPS],
    /// The words; at most 64 of a group.
    ways: [[Way; WAYS]; GROUPS],
}

impl<const GROUPS: usize, const WAYS: usize> Ways<GROUPS, WAYS> {
    /// No blocks.
    #[allow(dead_code, reason = "for tests and the model: the product has a page of zeros")]
    pub(super) fn new() -> Self {
        let way = |_| Way { word: AtomicU64::new(NOTHING), hints: AtomicU64::new(0) };
        Self { free: array::from_fn(|_| AtomicU64::new(0)), ways: array::from_fn(|_| array::from_fn(way)) }
    }

    /// The words that the block at `addr` may be in: their group, and the first of them.
    fn set(addr: usize) -> (usize, usize) {
        // Multiplicative hashing.
        let set = ((addr / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (GROUPS * (WAYS / SET));
        (set % GROUPS, set / GROUPS * SET)
    }

    fn ways_of(&self, addr: usize) -> impl Iterator<Item = &Way> {
        let (group, first) = Self::set(addr);
        self.ways[group][first..first + SET].iter()
    }

    /// The first answer of `ask` to what may be free; then it is free no more.
    #[inline]
    fn find_free<T>(&self, mut ask: impl FnMut(&Way) -> Option<T>) -> Option<T> {
        for (free, ways) in self.free.iter().zip(&self.ways) {
            let mut left = free.load(Acquire);
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                if let Some(way) = ways.get(i) {
                    let found = ask(way);
                    if found.is_some() || !way.read().is_free() {
                        free.fetch_and(!(1 << i), AcqRel);
                        if way.read().is_free() {
                            free.fetch_or(1 << i, Release);
                        }
                    }
                    if found.is_some() {
                        return found;
                    }
                }
                left &= left - 1;
            }
        }
        None
    }

    /// Takes a free block, one of which `fits` says so.
    #[inline]
    pub(super) fn take(&self, fits: impl Fn(Run) -> bool) -> Option<Run> {
        self.find_free(|way| way.take(&fits))
    }

    /// Takes a free block off the CPU; to be called under the table's lock.
    pub(super) fn settle(&self) -> Option<Lent> {
        self.find_free(Way::settle)
    }

    /// Whether the block at `addr` is here.
    #[inline]
    pub(super) fn has(&self, addr: usize) -> bool {
        self.ways_of(addr).any(|way| way.read().is_at(addr))
    }

    /// Whether it is, and is free.
    pub(super) fn is_free(&self, addr: usize) -> bool {
        self.ways_of(addr).map(Way::read).any(|lent| lent.is_at(addr) && lent.is_free())
    }

    /// Frees the block at `addr`, after so many surprises: its resident bytes. `None`: it is not here, or is free, or the table is to
    /// have it.
    #[inline]
    pub(super) fn free(&self, addr: usize, surprises: u8) -> Option<usize> {
        let (group, first) = Self::set(addr);
        if self.free[group].load(Relaxed).count_ones() >= MOST_FREE {
            return None;
        }
        let ways = &self.ways[group][first..first + SET];
        let i = ways.iter().position(|way| way.free(addr, surprises))?;
        let resident = ways[i].resident();
        self.free[group].fetch_or(1 << (first + i), Release);
        Some(resident)
    }

    /// Lends a block in use; to be called under the table's lock. The block in use that was lent before, which gave way by turns;
    /// `Err`: there is no room, or the block is too long.
    pub(super) fn lend(&self, run: Run, hints: Hints, turn: usize) -> Result<Option<Lent>, ()> {
        let lent = Lent::new(run).ok_or(())?;
        let way = self.ways_of(run.addr).find(|way| way.read().0 == NOTHING);
        let way = way.or_else(|| self.ways_of(run.addr).nth(turn % SET)).ok_or(())?;
        way.lend(lent, hints)
    }

    /// How often those that are lent were freed, and taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        let words = self.ways.iter().flatten().map(Way::read);
        words.fold((0, 0), |(frees, takes), lent| {
            let freed = u64::from(lent.frees());
            (frees + freed, takes + freed - u64::from(lent.is_free()))
        })
    }

    /// In a forked child: sets and clears the bits that another thread was about to.
    pub(super) fn inherit(&self) {
        for (free, ways) in self.free.iter().zip(&self.ways) {
            let are_free = ways.iter().enumerate().filter(|(_, way)| way.read().is_free());
            free.store(are_free.fold(0, |bits, (i, _)| bits | 1 << i), Relaxed);
        }
    }

    /// Takes the block in use at `addr` off the CPU, if it is here; to be called under the table's lock.
    pub(super) fn withdraw(&self, addr: usize) -> Withdrawn {
        let way = self.ways_of(addr).find(|way| way.read().is_at(addr));
        way.map_or(Withdrawn::NotLent, |way| way.withdraw(addr))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const RUN: Run = Run { addr: 7 << 22, len: 5 << 20 };

    const HINTS: Hints = Hints { resident: PAGE, surprises: 1, frees: 9 };

    fn fits(_run: Run) -> bool {
        true
    }

    #[test]
    fn a_block_goes_round_as_often_as_it_may() {
        let ways = Ways::<1, 4>::new();
        assert_eq!(ways.lend(RUN, Hints { frees: 3, ..HINTS }, 0), Ok(None));
        assert_eq!((ways.take(fits), ways.settle()), (None, None), "it is in use");
        for _ in 0..2 {
            assert_eq!(ways.free(RUN.addr, 1), Some(PAGE));
            assert_eq!((ways.free(RUN.addr, 1), ways.is_free(RUN.addr)), (None, true), "it is free");
            assert_eq!(ways.take(|run| run.len < RUN.len), None);
            assert_eq!(ways.take(fits), Some(RUN));
        }
        assert_eq!(ways.free(RUN.addr, 2), None, "another block surprised");
        assert_eq!((ways.free(RUN.addr, 1), ways.counts()), (Some(PAGE), (3, 2)));
        assert_eq!(ways.withdraw(RUN.addr), Withdrawn::Free);
        assert_eq!(ways.take(fits), Some(RUN));
        assert_eq!((ways.free(RUN.addr, 1), ways.has(RUN.addr)), (None, true), "the table is to look at it");
        assert_eq!(ways.withdraw(RUN.addr), Withdrawn::Frees(3));
        assert_eq!((ways.withdraw(RUN.addr), ways.has(RUN.addr)), (Withdrawn::NotLent, false));
    }

    #[test]
    fn what_does_not_go_into_a_word_is_not_lent() {
        let ways = Ways::<1, 4>::new();
        let most = Run { addr: (1 << 48) - PAGE, len: PAGE * ((1 << LEN_BITS) - 1) };
        for run in [Run { addr: 1 << 48, ..most }, Run { len: most.len + PAGE, ..most }] {
            assert_eq!(ways.lend(run, HINTS, 0), Err(()));
        }
        assert_eq!(ways.lend(most, Hints { resident: most.len, surprises: 1, frees: MOST_FREES }, 0), Ok(None));
        for frees in 0..MOST_FREES {
            assert_eq!(ways.free(most.addr, frees), Some(most.len), "{frees}");
            assert_eq!(ways.take(fits), Some(most), "{frees}");
        }
        assert_eq!(ways.free(most.addr, 1), None);
        assert_eq!(ways.withdraw(most.addr), Withdrawn::Frees(MOST_FREES));
    }

    #[test]
    fn few_are_free() {
        let ways = Ways::<1, 60>::new();
        let run = |i: usize| Run { addr: i << 23, len: 5 << 20 };
        (1..20).for_each(|i| _ = ways.lend(run(i), HINTS, 0));
        let freed = (1..20).filter(|&i| ways.free(run(i).addr, 1).is_some()).count();
        assert_eq!(freed, MOST_FREE as usize);
        ways.free.iter().for_each(|free| free.store(0, Relaxed));
        ways.inherit();
        (0..freed).for_each(|_| assert!(ways.settle().is_some()));
        assert_eq!(ways.settle(), None);
    }

    #[test]
    fn bits_that_were_set_too_late_are_cleared() {
        for is_child in [false, true] {
            let ways = Ways::<1, 60>::new();
            let run = |i: usize| Run { addr: i << 23, len: 5 << 20 };
            (1..20).for_each(|i| _ = ways.lend(run(i), HINTS, 0));
            ways.free[0].store((1 << 60) - 1, Relaxed);
            assert_eq!(ways.free(run(1).addr, 1), None, "as many seem to be free as there may be");
            if is_child {
                ways.inherit()
            } else {
                assert_eq!(ways.take(fits), None)
            }
            assert_eq!((ways.free(run(1).addr, 1), ways.take(fits)), (Some(PAGE), Some(run(1))));
        }
    }

    #[test]
    fn one_in_use_gives_way_and_one_that_is_free_does_not() {
        let ways = Ways::<1, 4>::new();
        let run = |i: usize| Run { addr: i << 23, len: 5 << 20 };
        (1..5).for_each(|i| assert_eq!(ways.lend(run(i), HINTS, i), Ok(None)));
        assert_eq!(ways.lend(run(5), HINTS, 0).unwrap().map(Lent::run), Some(run(1)));
        assert_eq!((ways.free(run(1).addr, 1), ways.free(run(2).addr, 1)), (None, Some(PAGE)));
        assert_eq!(ways.lend(run(6), HINTS, 1), Err(()));
        assert_eq!(ways.settle().map(|lent| (lent.run(), lent.frees())), Some((run(2), 1)));
        assert_eq!((ways.lend(run(6), HINTS, 0), ways.settle()), (Ok(None), None));
    }
}
