//! The words of all CPUs for the blocks that are [`lent`](super::lent) to them.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize};

use super::lent::{Hints, Lent, Ways};
use crate::base::run::Run;
use crate::base::units::PAGE;

/// CPUs with blocks of their own; others share with these. The table has a CPU's number in a byte.
const CPUS: usize = 32;

/// The blocks lent to a CPU: as many as a page has words for. A thread that has 64 at a time, of which it replaces one at random, finds
/// room for nearly all of them.
pub(super) type CpuWays = Ways<4, 60>;

const _: () = assert!(size_of::<CpuWays>() <= PAGE && CPUS < u8::MAX as usize);

/// The blocks lent to all CPUs.
#[derive(Debug)]
pub(super) struct CpuBlocks {
    /// Null where nothing was lent yet; else there for good.
    cpus: [AtomicPtr<CpuWays>; CPUS],
    /// CPUs up to the last that has a page.
    used: AtomicUsize,
    /// Blocks lent so far: which of several gives way to the next.
    turn: AtomicUsize,
    /// Surprises so far, as the table has them: they end loans.
    pub(super) surprises: AtomicU8,
}

impl CpuBlocks {
    pub(super) const fn new() -> Self {
        Self {
            cpus: [const { AtomicPtr::new(null_mut()) }; CPUS],
            used: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            surprises: AtomicU8::new(0),
        }
    }

    #[inline]
    pub(super) fn ways(&self, cpu: usize) -> Option<&CpuWays> {
        // SAFETY: null, or a page of metadata that `install` was given, which is never unmapped. It was zero, which is a valid value of
        // these atomics, and the page is longer than they are. Only shared references to it are made.
        unsafe { self.cpus[cpu % CPUS].load(Acquire).as_ref() }
    }

    /// The ways that `home` in the table names.
    pub(super) fn home(&self, home: u8) -> Option<&CpuWays> {
        self.ways(usize::from(home).checked_sub(1)?)
    }

    /// Gives `cpu` a page of zeros; returns it where it has one.
    pub(super) fn install(&self, cpu: usize, page: usize) -> Option<Run> {
        let cpu = cpu % CPUS;
        // First: who settles is to look at what is lent there.
        self.used.fetch_max(cpu + 1, Relaxed);
        if self.cpus[cpu].compare_exchange(null_mut(), page as *mut CpuWays, AcqRel, Relaxed).is_err() {
            return Some(Run { addr: page, len: PAGE });
        }
        None
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = &CpuWays> {
        (0..self.used.load(Relaxed)).filter_map(|cpu| self.ways(cpu))
    }

    /// Lends a block to `cpu`; its home, and the block that is lent no more for it. The caller has the table's lock.
    pub(super) fn lend(&self, cpu: usize, block: Run, hints: Hints) -> Option<(u8, Option<Lent>)> {
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn.wrapping_add(1), Relaxed);
        let before = self.ways(cpu)?.lend(block, hints, turn).ok()?;
        Some(((cpu % CPUS + 1) as u8, before))
    }

    /// How often blocks that are lent were freed, and taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.pages().map(CpuWays::counts).fold((0, 0), |sum, here| (sum.0 + here.0, sum.1 + here.1))
    }
}

/// Frees and allocations of blocks that were lent, without the table.
#[derive(Debug)]
pub struct Pairs {
    /// Of those that are lent no more.
    pub(super) ended: (u64, u64),
    /// That the heap's counters have.
    pub(super) counted: (u64, u64),
}

impl Pairs {
    pub(super) const fn new() -> Self {
        Self { ended: (0, 0), counted: (0, 0) }
    }
}
