//! What the engine needs from below: one trait, implemented by Linux, by a bare-metal guest, by a simulation.

use core::fmt;
use core::sync::atomic::AtomicU32;

use crate::percpu::{Pushed, Table};
use crate::pressure::Level;
use crate::stats::{Cause, Stats};
use crate::tunables::Tunables;

/// A page-aligned range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub addr: usize,
    /// Length in bytes, a multiple of the page size.
    pub len: usize,
}

/// What a program did wrong with a pointer, as far as the engine can tell cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The object was already free.
    DoubleFree,
    /// The address lies inside an object, not at its start.
    InteriorPointer,
    /// No allocation of Weir's begins there.
    ForeignPointer,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoubleFree => "double free",
            Self::InteriorPointer => "free of a pointer into the middle of a block",
            Self::ForeignPointer => "free of a pointer that was never allocated",
        })
    }
}

/// Which addresses a window is asked to lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    Any,
    /// Below 4 GiB, for compressed pointers and JITs.
    Low32,
}

/// Everything the engine asks of the system below it. No method may allocate through the engine.
pub trait Platform: Sync {
    /// Chooses addresses for a window of at most `len` bytes, aligned to `align`; returns its base and its length
    /// (which may be shorter), or `None`. Nothing is mapped yet.
    fn window(&self, len: usize, align: usize, reach: Reach) -> Option<Run>;
    /// Makes `run` usable and zero, on NUMA node `node`. `false` if any of it is taken or memory is refused.
    fn map_at(&self, run: Run, node: usize) -> bool;
    /// Maps `len` zero bytes anywhere, aligned to `align`.
    fn map(&self, len: usize, align: usize) -> Option<usize>;
    /// Unmaps what [`Platform::map`] gave, or a page-aligned tail of it.
    fn unmap(&self, run: Run);
    /// Resizes what [`Platform::map`] gave, moving it if it must; contents are kept, new bytes are zero.
    fn remap(&self, run: Run, len: usize) -> Option<usize>;
    /// Hands the pages of `runs` to whoever is below; they read as zero afterwards. Returns how many of `runs`,
    /// from the first, were taken.
    fn release(&self, runs: &[Run]) -> usize;
    /// Whether a fresh pageblock is backed by one huge page at its first touch.
    fn huge_on_touch(&self) -> bool;
    /// Asks for huge pages behind `run`; a wish only.
    fn advise_huge(&self, run: Run);
    /// How many pages of `run` (at most a pageblock) are resident; `None` where nobody can say.
    fn resident(&self, run: Run) -> Option<usize>;
    /// Nanoseconds of a monotonic clock.
    fn now(&self) -> u64;
    /// NUMA nodes, at least 1.
    fn nodes(&self) -> usize;
    /// The caller's NUMA node.
    fn node(&self) -> usize;
    /// Sleeps while `word` holds `expected` (or for no reason).
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one sleeper on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Tells whoever runs the balancer that there is something to do.
    fn notify(&self);
    /// Whether memory is short, where nobody listens all the time (the mode without a background thread): asked once a
    /// window, on the program's threads.
    fn pressure(&self) -> (Level, Cause) {
        (Level::None, Cause::Idle)
    }
    /// Tells whoever may run a program's own code that a cache's objects wait to be taken down
    /// ([`crate::heap::Heap::take_down`]).
    fn notify_taker(&self) {}
    /// A wrong pointer came in. Returns only if the program is to go on as if the call had not been made.
    fn misuse(&self, what: Misuse, addr: usize, class_size: usize);
    /// The page of counters.
    fn stats(&self) -> &Stats;
    /// The parameters.
    fn tunables(&self) -> &Tunables;
    /// Debug builds: the ranks that the calling thread holds, as a bit set. `None` switches the check off.
    fn held_ranks(&self) -> Option<&AtomicU32>;

    /// Whether the five operations below work on this platform. Where not, buckets are locked.
    fn lockless(&self) -> bool;
    /// The caller's index into the bucket table now; it may be stale at once. Below [`crate::percpu::MAX_CPUS`].
    fn cpu(&self) -> usize;
    /// Pops one object of `class` from the current CPU's buckets; null when there is none.
    ///
    /// # Safety
    /// Each table entry points to a [`crate::percpu::CpuSlab`] that lives on.
    unsafe fn pop(&self, table: &Table, class: usize) -> *mut u8;
    /// Pushes `object` onto the current CPU's bucket.
    ///
    /// # Safety
    /// As [`Platform::pop`]; `object` is not null and belongs to the caller.
    unsafe fn push(&self, table: &Table, class: usize, object: *mut u8) -> Pushed;
    /// Pushes the first of `objects`, as many as fit; returns how many.
    ///
    /// # Safety
    /// As [`Platform::push`].
    unsafe fn push_batch(&self, table: &Table, class: usize, objects: &[*mut u8]) -> usize;
    /// Pops up to `objects.len()`; returns how many.
    ///
    /// # Safety
    /// As [`Platform::pop`].
    unsafe fn pop_batch(&self, table: &Table, class: usize, objects: &mut [*mut u8]) -> usize;
    /// Replaces the header of `class` in the current CPU's slab by `new` if it is `old`; returns what it was.
    ///
    /// # Safety
    /// As [`Platform::pop`]; the headers are of this class and say the same of what the bucket holds.
    unsafe fn exchange_header(&self, table: &Table, class: usize, old: u32, new: u32) -> u32;
    /// After it returns, every operation that had read the table before it was called has committed or will not.
    fn fence(&self);
}
