//! Memory of the platform: mapped, moved, released and looked at, as the engine asks for it by the trait [`Memory`].

pub mod address_layout;
mod collapse;
pub mod fork_advice;
pub mod merging;
mod page_table;
pub mod release;
pub mod touch_time;

use core::sync::atomic::Ordering::Relaxed;
use linux_raw_sys::general::{MADV_DOFORK, MADV_KEEPONFORK};
use weir_core::base::run::Run;
use weir_core::base::units::{Order, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::platform::{Collapse, Contents, CpuOps, Host, Memory, Placed, Reach, Refused, Topology};

use crate::os::mman::{self, MADV_DONTNEED, MREMAP_MAYMOVE};
use crate::os::page;
use crate::os::process::secret_words;
use crate::os::syscall::Errno;
use crate::os::thread_block::is_own_thread;
use crate::platform::linux::Linux;
use crate::platform::memory::address_layout::{AddressLayout, Area};
use crate::platform::statics::STATS;

/// Attempts to map metadata in its own part of the address space, before it is mapped anywhere.
const TRIES: usize = 8;

/// The kernel's answer, where Weir itself has no place for a mapping.
const NO_ADDRESSES: Refused = refused(Errno::ENOMEM);

/// The kernel refused a mapping.
const fn refused(error: Errno) -> Refused {
    Refused { error: error.0 as u32 }
}

/// `mincore` of a run that begins with a page of the kernel's: a byte for each of the engine's pages.
fn residence(run: Run, pages: &mut [u8]) -> Result<(), Errno> {
    let together = page::bytes() / PAGE;
    let asked = pages.len().div_ceil(together);
    mman::mincore(run.addr as *mut u8, &mut pages[..asked], together * PAGE)?;
    // From the last on, so that none is overwritten before it was read.
    (0..pages.len()).rev().for_each(|page| pages[page] = pages[page / together]);
    Ok(())
}

impl Linux {
    /// `len` bytes at any page, which count as what other allocators map does (no `MAP_NORESERVE`). So a size beyond
    /// all memory is refused where the kernel's heuristic refuses it. Kernels from 6.7 on align what may have huge
    /// pages, and leave less to chance, unless an address is requested. Here one is requested that is taken.
    fn map_anywhere(len: usize) -> Result<usize, Refused> {
        use mman::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
        let (hint, flags) = ((&raw const STATS).cast_mut().cast(), MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: without MAP_FIXED nothing that exists is replaced.
        let at = unsafe { mman::mmap(hint, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
        at.map(|at| at as usize).map_err(refused)
    }

    fn map_aligned(len: usize, align: Order) -> Result<usize, Refused> {
        let len = len.checked_next_multiple_of(page::bytes()).ok_or(NO_ADDRESSES)?;
        // Kernels since 6.7 align mappings of whole huge pages by themselves.
        let whole =
            if align == Order::BLOCK { len.checked_next_multiple_of(PAGEBLOCK).ok_or(NO_ADDRESSES)? } else { len };
        let at = mman::mmap_anonymous(whole, 0).map_err(refused)? as usize;
        let multiple = align.pages().length();
        if at.is_multiple_of(multiple) {
            Self::unmap_ends(at, whole, at, len);
            return Ok(at);
        }
        // This one did not, or a larger alignment is needed.
        // SAFETY: just mapped, and no other code has the address yet.
        let _ = unsafe { mman::munmap(at as *mut u8, whole) };
        let total = len.checked_add(multiple).ok_or(NO_ADDRESSES)?;
        let at = mman::mmap_anonymous(total, 0).map_err(refused)? as usize;
        let start = at.next_multiple_of(multiple);
        Self::unmap_ends(at, total, start, len);
        Ok(start)
    }

    /// Unmaps all of a mapping just made but the `len` bytes at `start`.
    fn unmap_ends(at: usize, total: usize, start: usize, len: usize) {
        for (from, to) in [(at, start), (start + len, at + total)] {
            if to > from {
                // SAFETY: an end of a mapping just made, and no other code has the address yet.
                let _ = unsafe { mman::munmap(from as *mut u8, to - from) };
            }
        }
    }

    /// Addresses of metadata, of which the page of statistics tells.
    fn metadata_place(&self, len: usize, align: Order) -> Option<usize> {
        let at = self.addresses.next(Area::Metadata, len, align)?;
        let given = self.addresses.metadata();
        STATS.metadata_addresses[0].store(given.start as u64, Relaxed);
        STATS.metadata_addresses[1].fetch_max(given.end as u64, Relaxed);
        Some(at)
    }

    /// `mremap` of a mapping of the engine's.
    fn move_mapping(run: Run, len: usize) -> Result<usize, Refused> {
        // SAFETY: the mapping is the engine's.
        let moved = unsafe { mman::mremap(run.addr as *mut u8, run.len, len, MREMAP_MAYMOVE, core::ptr::null_mut()) };
        moved.map(|at| at as usize).map_err(refused)
    }

    /// [`Memory::remap`] where the mapping cannot be moved.
    fn copy_over(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let new = self.map(len, Order::BLOCK)?;
        // SAFETY: both are mapped and distinct, and the caller gives the old one up.
        unsafe { core::ptr::copy_nonoverlapping(run.addr as *const u8, new as *mut u8, run.len.min(len)) };
        self.unmap(run);
        Ok(new)
    }
}

impl Memory for Linux {
    fn window(&self, len: usize, align: Order, reach: Reach) -> Result<Run, Refused> {
        // Once there are pages, frees enter the fast path; so it is set up before.
        self.lockless();
        Ok(match reach {
            Reach::Any => {
                let len = len.min(self.addresses.longest_window());
                let addr = self.addresses.next(Area::Windows, len, Order::PAGE).ok_or(NO_ADDRESSES)?;
                // The engine maps the first pageblock whole, with what the window leaves out of it.
                let begin = addr - addr % align.pages().length();
                STATS.heap_addresses.iter().for_each(|word| word.store(begin as u64, Relaxed));
                Run { addr, len: begin + len - addr }
            }
            Reach::Low32 => AddressLayout::low_window(align),
            Reach::Apart => Run { addr: self.metadata_place(len, align).ok_or(NO_ADDRESSES)?, len },
        })
    }

    fn map_at(&self, run: Run, node: usize) -> Placed {
        let placed = self.addresses.map(run);
        if placed == Placed::Done && self.addresses.is_of_window(run.addr) {
            STATS.heap_addresses[1].fetch_max((run.addr + run.len) as u64, Relaxed);
        }
        if placed == Placed::Done && self.has_numa_nodes() && !mman::has_policy() {
            let (node, mut mask) = (self.numa_node(node), [0u64; 16]);
            mask[node / 64 % 16] = 1 << (node % 64);
            let _ = mman::mbind_preferred(run.addr as *mut u8, run.len, &mask);
        }
        placed
    }

    fn unmap_at(&self, run: Run) -> bool {
        // SAFETY: the engine gives a part of its window up.
        unsafe { mman::munmap(run.addr as *mut u8, run.len) }.is_ok()
    }

    fn are_mappings_counted(&self) -> bool {
        self.are_mappings_counted.load(Relaxed)
    }

    fn populates(&self) -> bool {
        // The kernel tells by a mapping alone, and any thread may change it at any time.
        let Ok(at) = mman::mmap_anonymous(page::bytes(), 0) else { return false };
        let mut resident = [0];
        let looked = mman::mincore(at, &mut resident, page::bytes());
        // SAFETY: just mapped, and no other code has the address.
        let _ = unsafe { mman::munmap(at, page::bytes()) };
        looked.is_ok() && resident[0] & 1 == 1
    }

    fn map(&self, len: usize, align: Order) -> Result<usize, Refused> {
        // A program whose first block is a large one.
        self.lockless();
        if align == Order::PAGE { Self::map_anywhere(len) } else { Self::map_aligned(len, align) }
    }

    fn map_metadata(&self, len: usize, align: Order) -> Result<usize, Refused> {
        self.lockless();
        for _ in 0..TRIES {
            let Some(addr) = self.metadata_place(len, align) else { break };
            match self.addresses.map(Run { addr, len }) {
                Placed::Done => return Ok(addr),
                Placed::Refused => return Err(NO_ADDRESSES),
                Placed::Occupied => {}
            }
        }
        Self::map_aligned(len, align)
    }

    fn release_metadata(&self, runs: &[Run]) -> bool {
        if self.huge_on_touch() {
            self.addresses.keep_metadata_small();
        }
        let released = self.release(runs, false);
        released.runs == runs.len() && released.contents == Contents::Zero
    }

    fn unmap(&self, run: Run) {
        // SAFETY: the engine gives the mapping up. Should the kernel refuse (too many mappings), its memory goes.
        if unsafe { mman::munmap(run.addr as *mut u8, run.len) }.is_err() {
            let _ = release::one(run, MADV_DONTNEED);
        }
    }

    fn remap(&self, run: Run, len: usize) -> Result<usize, Refused> {
        // The kernel may refuse for whatever reason: a sandbox, or one mapping too many. The program may also have
        // given its advice on a part of the block, which made several mappings of one (`EFAULT`). An `mremap` that
        // fails has changed nothing.
        Self::move_mapping(run, len).or_else(|_| self.copy_over(run, len))
    }

    fn renew(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let at = run.addr as *mut u8;
        // A former owner may have set what `fork` does with the block (leave it out, or wipe it): undone for the next
        // one. Usually there is nothing to undo.
        let undone: &[u32] = if fork_advice::may_be_there() { &[MADV_DOFORK, MADV_KEEPONFORK] } else { &[] };
        for &advice in undone {
            // SAFETY: the mapping is the engine's; the advice changes no contents here.
            let advised = unsafe { mman::madvise(at, run.len, advice) };
            // This is a child that lacks the block, or a part of it.
            if advised == Err(Errno::ENOMEM) {
                return Err(NO_ADDRESSES);
            }
        }
        // Contents that are not needed are not copied: a new mapping is cheaper.
        if len == run.len { Ok(run.addr) } else { Self::move_mapping(run, len) }
    }

    fn advise_huge(&self, run: Run) {
        // Where huge pages are off this fails, and does no harm.
        // SAFETY: the mapping is the engine's; the advice changes no contents.
        let _ = unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_HUGEPAGE) };
    }

    fn collapse(&self, run: Run) -> Collapse {
        collapse::collapse(run)
    }

    fn cool(&self, runs: &[Run]) {
        self.releaser.cool(runs);
    }

    fn merges(&self) -> bool {
        // Others are not told which pages are the process's own.
        self.merging.is_on() && is_own_thread()
    }

    fn set_mergeable(&self, run: Run, is_mergeable: bool) -> bool {
        let advice = if is_mergeable { mman::MADV_MERGEABLE } else { mman::MADV_UNMERGEABLE };
        // SAFETY: the mapping is the engine's; the advice changes no contents.
        let advised = unsafe { mman::madvise(run.addr as *mut u8, run.len, advice) };
        match advised {
            // A part was unmapped meanwhile: all else is done.
            Ok(()) | Err(Errno::ENOMEM) => true,
            // One mapping too many, or a group without memory for it. To merge goes another time. Where merging ends, pages still
            // share memory.
            Err(Errno::EAGAIN) => is_mergeable,
            Err(_) => !is_mergeable,
        }
    }

    fn merged_pages(&self) -> usize {
        self.merging.pages()
    }

    fn touch_ns(&self) -> u64 {
        self.touch_time.ns()
    }

    fn secret(&self) -> Option<[u64; 2]> {
        secret_words().ok().map(|words| words.map(|word| word as u64))
    }

    fn resident(&self, run: Run) -> Option<usize> {
        let mut pages = [0u8; PAGEBLOCK_PAGES];
        let pages = pages.get_mut(..run.len / PAGE)?;
        residence(run, pages).ok()?;
        Some(pages.iter().filter(|&&page| page & 1 == 1).count())
    }

    fn resident_pages(&self, run: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        let mut bytes = [0u8; PAGEBLOCK_PAGES];
        match residence(run, bytes.get_mut(..run.len / PAGE)?) {
            Ok(()) => {}
            // Unmapped by the time of the call: what was written of the answer before that says nothing.
            Err(Errno::ENOMEM) => bytes.fill(0),
            // Refused, as by a sandbox.
            Err(_) => return None,
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &page| word << 1 | u64::from(page & 1));
        let mut words = [0; PAGEBLOCK_PAGES / 64];
        words.iter_mut().zip(bytes.chunks(64)).for_each(|(to, bytes)| *to = word(bytes));
        Some(words)
    }

    fn own_pages(&self, block: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        // No file is opened among the program's.
        if is_own_thread() { page_table::own_pages(block).ok() } else { None }
    }

    fn advise_small(&self, run: Run) {
        // SAFETY: the mapping is the engine's; the advice changes no contents.
        let _ = unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_NOHUGEPAGE) };
    }

    fn huge_on_touch(&self) -> bool {
        self.huge_on_touch.load(Relaxed)
    }

    fn huge_on_advice(&self) -> bool {
        self.huge_on_advice.load(Relaxed)
    }

    fn set_huge_on_touch(&self, on: bool) {
        self.huge_on_touch.store(on, Relaxed);
        self.may_have_huge.fetch_or(on, Relaxed);
    }

    fn may_have_huge(&self) -> bool {
        self.may_have_huge.load(Relaxed)
    }

    fn populate(&self, run: Run) -> bool {
        // SAFETY: the mapping is the engine's; no contents change.
        unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_POPULATE_WRITE) }.is_ok()
    }

    fn note_huge(&self) {
        self.may_have_huge.store(true, Relaxed);
    }
}
