//! What the engine needs from below: one trait, implemented by Linux, by a bare-metal guest, by a simulation.

use core::fmt;
use core::sync::atomic::AtomicU32;

use crate::percpu::{Pushed, Table};
use crate::pressure::Level;
use crate::stats::{Cause, Stats};
use crate::tunables::Tunables;

/// A page-aligned range of addresses, laid out as the system calls' vectors of ranges are.
#[repr(C)]
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
    /// Anywhere, apart from what programs are given: for metadata.
    Apart,
}

/// What released memory holds when it is touched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zero bytes.
    Zero,
    /// Zero bytes, or what was there before, or anything else.
    Undefined,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// How many of the runs were taken, from the first.
    pub runs: usize,
    /// What those hold from now on.
    pub contents: Contents,
    /// Why the next one was not, in the platform's own numbers (Linux: errno). 0: all were taken, or nobody knows.
    pub error: u32,
}

/// What came of a mapping that was wanted at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is there.
    Done,
    /// Something of it is somebody else's: another place may do.
    Occupied,
    /// Address space or memory is refused: no other place would do either.
    Refused,
}

/// Who free memory is handed to.
pub trait Below: Sync {
    /// Takes the memory of `runs`, which nobody uses until this returns. In `calm` times there is no hurry: what is
    /// cheapest will do, even if the memory is only marked as free to take. Never called under a lock of rank 2 to 4.
    fn release(&self, runs: &[Run], calm: bool) -> Released;

    /// The least that can be taken back, in bytes: a page, or a whole pageblock of [`crate::page::PAGEBLOCK`] bytes
    /// (no other values). Where it is a pageblock, nothing is reported in part.
    fn release_unit(&self) -> usize {
        crate::page::PAGE
    }
}

/// Everything the engine asks of the system below it. No method may allocate through the engine.
pub trait Platform: Below {
    /// Chooses addresses for a window of at most `len` bytes, aligned to `align`; returns its base and its length
    /// (which may be shorter), or `None`. Nothing is mapped yet. A base may be up to 511 pages above a multiple of `align`
    /// that nobody else is given, where it is to be hard to guess: the pageblock there then lacks as many pages.
    fn window(&self, len: usize, align: usize, reach: Reach) -> Option<Run>;
    /// Makes `run` usable and zero, on NUMA node `node`; all of it or nothing.
    fn map_at(&self, run: Run, node: usize) -> Placed;
    /// Maps `len` zero bytes anywhere, aligned to `align`.
    fn map(&self, len: usize, align: usize) -> Option<usize>;
    /// The same for metadata, which is better mapped apart from what programs are given.
    fn map_metadata(&self, len: usize, align: usize) -> Option<usize> {
        self.map(len, align)
    }
    /// Takes the memory behind `runs` of metadata, whole pages, which read as zero from then on, also by threads that read
    /// them meanwhile; whether all of it went. Only where [`Below::release_unit`] is a page.
    fn release_metadata(&self, runs: &[Run]) -> bool {
        let released = self.release(runs, false);
        released.runs == runs.len() && released.contents == Contents::Zero
    }
    /// Unmaps what [`Platform::map`] gave, or a page-aligned tail of it.
    fn unmap(&self, run: Run);
    /// Resizes what [`Platform::map`] gave, moving it if it must; contents are kept, new bytes are zero.
    /// `None`: nothing has changed.
    fn remap(&self, run: Run, len: usize) -> Option<usize>;
    /// Makes what [`Platform::map`] gave, and nobody uses any more, as good as a new mapping of `len` bytes, no fewer than
    /// it has; it need be neither zero nor keep what it holds. `None`: it is as long as it was, and still there.
    fn renew(&self, run: Run, len: usize) -> Option<usize> {
        if len == run.len { Some(run.addr) } else { self.remap(run, len) }
    }
    /// Whether a fresh pageblock is backed by one huge page at its first touch.
    fn huge_on_touch(&self) -> bool;
    /// Asks for huge pages behind `run`; a wish only.
    fn advise_huge(&self, run: Run);
    /// The memory of pages inside each of `runs`, whole pageblocks, was released. Splits the huge pages that may still be
    /// behind the rest, so that the released part serves others at once, and marks the rest as not used of late, so that
    /// no huge page is put there until it is used. A wish only.
    fn cool(&self, runs: &[Run]) {
        let _ = runs;
    }
    /// How many pages of `run` (at most a pageblock) are resident; `None` where nobody can say.
    fn resident(&self, run: Run) -> Option<usize>;
    /// Nanoseconds of a monotonic clock.
    fn now(&self) -> u64;
    /// NUMA nodes, at least 1.
    fn nodes(&self) -> usize;
    /// The caller's NUMA node.
    fn node(&self) -> usize;
    /// Lets a thread of `node`'s call [`crate::heap::Heap::balance_node`], if it can. Nobody waits for it.
    fn summon(&self, node: usize, cause: Cause, severe: bool) {
        let _ = (node, cause, severe);
    }
    /// Sleeps while `word` holds `expected` (or for no reason).
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one sleeper on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Tells whoever runs the balancer that there is something to do.
    fn notify(&self);
    /// Whether somebody runs the balancer beside the program's threads; where not, their slow paths do.
    fn tended(&self) -> bool {
        self.tunables().background.get() != 0
    }
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
    /// A word of the calling thread, in which [`crate::lock`] keeps what it holds. `None`: nobody looks, and nobody forks.
    fn held_ranks(&self) -> Option<&AtomicU32>;

    /// Whether the four operations below work on this platform. Where not, buckets are locked.
    fn lockless(&self) -> bool;
    /// The caller's index into the bucket table now; it may be stale at once. Below [`crate::percpu::MAX_CPUS`], or
    /// [`crate::percpu::NO_CPU`].
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
    /// After it returns `true`, every operation that had read the table before it was called has committed or will not.
    /// `false`: refused; nothing is known of them.
    fn fence(&self) -> bool;
}
