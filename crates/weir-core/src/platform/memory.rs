//! Address space: windows, mappings, huge pages.

use super::release::{Contents, Host};
use crate::base::cost::USUAL_TOUCH_NS;
use crate::base::run::Run;
use crate::base::units::{Order, PAGEBLOCK_PAGES};

/// Which addresses a window is asked to lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    Any,
    /// Below 4 GiB, for compressed pointers and JITs.
    Low32,
    /// Anywhere, apart from blocks of programs: for metadata.
    Apart,
}

/// Outcome of a mapping that was wanted at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The mapping is there.
    Done,
    /// Another mapping covers a part of it: another place may do.
    Occupied,
    /// Address space or memory is refused: no other place would do either.
    Refused,
}

/// Address space or memory was refused; the error is in the platform's own numbers (Linux: errno), 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub error: u32,
}

/// Outcome of a wish for a huge page behind what is there in single pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapse {
    /// It is there.
    Done,
    /// Not this one: not all of it has memory, others share it, I/O uses it, or its mapping forbids it. Nothing has changed.
    Unfit,
    /// There is no huge page now.
    Short,
    /// It cannot be done here.
    Never,
}

/// Maps, unmaps and advises. No method may allocate through the engine.
pub trait Memory: Host {
    /// Chooses addresses for a window of at most `len` bytes, aligned to `align`; returns its base and its length (which may be
    /// shorter). Nothing is mapped yet. Where the base is to be hard to guess, it may lie up to 511 pages above a multiple of
    /// `align`. No other window begins between that multiple and the base. The first pageblock then lacks as many pages.
    fn window(&self, len: usize, align: Order, reach: Reach) -> Result<Run, Refused>;
    /// Makes `run` usable and zero, on NUMA node `node`; all of it or nothing.
    fn map_at(&self, run: Run, node: usize) -> Placed;
    /// Unmaps whole pageblocks that [`Memory::map_at`] made usable, which it may be asked for again. `false`: nothing has
    /// changed.
    fn unmap_at(&self, run: Run) -> bool {
        let _ = run;
        false
    }
    /// Whether the system counts all that is mapped, used or not: against what all processes together may have, or against a limit
    /// of this one's.
    fn are_mappings_counted(&self) -> bool {
        false
    }
    /// Whether what is mapped now gets all its memory at once, as after `mlockall(MCL_FUTURE)`. Takes some system calls.
    fn populates(&self) -> bool {
        false
    }
    /// Maps `len` zero bytes anywhere, aligned to `align`.
    fn map(&self, len: usize, align: Order) -> Result<usize, Refused>;
    /// Maps metadata, which is better mapped apart from blocks of programs.
    fn map_metadata(&self, len: usize, align: Order) -> Result<usize, Refused> {
        self.map(len, align)
    }
    /// Releases the memory behind `runs` of metadata, which are whole units of [`Host::release_unit`]. They read as zero from then
    /// on, also by threads that read them meanwhile. Returns whether all of it went.
    fn release_metadata(&self, runs: &[Run]) -> bool {
        let released = self.release(runs, false);
        released.runs == runs.len() && released.contents == Contents::Zero
    }
    /// Unmaps what [`Memory::map`] gave, or a page-aligned tail of it.
    fn unmap(&self, run: Run);
    /// Resizes what [`Memory::map`] gave, moving it if it must; contents are kept, new bytes are zero.
    /// Where that is refused nothing has changed.
    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused>;
    /// Makes a mapping that [`Memory::map`] gave, and that is no longer used, as good as a new one of `len` bytes. `len` is no
    /// less than it has. The mapping need be neither zero nor keep its contents. Where that is refused it is as long as it was,
    /// and still there.
    fn renew(&self, run: Run, len: usize) -> Result<usize, Refused> {
        if len == run.len { Ok(run.addr) } else { self.remap(run, len) }
    }
    /// Whether a fresh pageblock is backed by one huge page at its first touch.
    fn huge_on_touch(&self) -> bool;
    /// Whether memory gets huge pages at its first touch where they were asked for, and only there.
    fn huge_on_advice(&self) -> bool {
        false
    }
    /// Sets what [`Memory::huge_on_touch`] says from now on. All of the heap has asked for huge pages, or asks no more, or the
    /// program has switched them off for itself.
    fn set_huge_on_touch(&self, on: bool) {
        let _ = on;
    }
    /// Whether huge pages may be behind the heap: [`Memory::huge_on_touch`] is so, or was, or a part of it asked for them.
    fn may_have_huge(&self) -> bool {
        self.huge_on_touch()
    }
    /// A part of the heap asks for huge pages.
    fn note_huge(&self) {}
    /// Has memory put behind `run` now, which the heap is about to use; `false`: it is refused, or cannot be done.
    fn populate(&self, run: Run) -> bool {
        let _ = run;
        false
    }
    /// Asks for huge pages behind `run`; a wish only.
    fn advise_huge(&self, run: Run);
    /// Asks for them no more; a wish only.
    fn advise_small(&self, run: Run) {
        let _ = run;
    }
    /// Copies a pageblock to a huge page, where all of its pages have memory, and memory of their own. It adds no memory,
    /// and brings nothing back from swap. Takes most of a millisecond, in which other calls on the address space wait.
    fn collapse(&self, run: Run) -> Collapse {
        let _ = run;
        Collapse::Never
    }
    /// Cools pageblocks: the memory of pages inside each of `runs`, whole pageblocks, was released. Splits the huge pages that
    /// may still be behind the rest, so that the released part serves others at once. Marks the rest as not used of late, so that
    /// no huge page is put there until it is used. A wish only.
    fn cool(&self, runs: &[Run]) {
        let _ = runs;
    }
    /// Whether what is below has one page behind several with the same contents, where it is asked to, until one is written.
    fn merges(&self) -> bool {
        false
    }
    /// Asks for it behind `run`, or asks no more, and then each page has its own again. `false`: it is refused, and will be
    /// the next time; or there was no memory for all pages to have their own. Contents stay as they are.
    fn set_mergeable(&self, run: Run, is_mergeable: bool) -> bool {
        let _ = (run, is_mergeable);
        false
    }
    /// Pages that share memory with others so now, as far as that was asked of late; 0 where it is not known.
    fn merged_pages(&self) -> usize {
        0
    }
    /// How long it takes to touch a MiB of memory again that was released, ns. The background thread asks, now and then.
    fn touch_ns(&self) -> u64 {
        USUAL_TOUCH_NS
    }
    /// Numbers that no other process can guess, new ones at each call; `None`: there are none.
    fn secret(&self) -> Option<[u64; 2]> {
        None
    }
    /// How many pages of `run` (at most a pageblock) are resident; `None` where the platform cannot say.
    fn resident(&self, run: Run) -> Option<usize>;
    /// Which pages of `run` (at most a pageblock) are resident: bit i % 64 of word i / 64 for page i. Where nothing
    /// is mapped nothing is resident. `None` where the platform cannot say: figures then count as resident what was
    /// handed out since it was last released.
    fn resident_pages(&self, run: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        let _ = run;
        None
    }
    /// Which pages of a whole pageblock have memory that no other process has too, as bits of the same order: a write to the others
    /// takes memory. `None` where the platform cannot say, or not to the calling thread.
    fn own_pages(&self, block: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        let _ = block;
        None
    }
}
