//! The fake platform's memory: reserved address space, of which parts are usable, and blocks of their own.

use std::collections::{BTreeMap, BTreeSet};

use libc::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK_PAGES};
use weir_core::platform::Reach;

/// Address of the first try for a window below 4 GiB.
const LOW: usize = 1 << 28;
/// Distance between two such tries.
const LOW_STEP: usize = 1 << 26;

#[derive(Default)]
pub struct Memory {
    /// Reserved windows.
    windows: Vec<Run>,
    /// Usable parts of windows: address and length.
    parts: BTreeMap<usize, usize>,
    /// Blocks of their own: address and length.
    blocks: BTreeMap<usize, usize>,
    /// Where windows and blocks of metadata begin.
    metadata: BTreeSet<usize>,
    /// Memory that was mapped inside a window, and not by the heap.
    foreign: Vec<Run>,
    /// Where the next block of its own goes: inside a window.
    next_block: Option<usize>,
    /// Bytes that may be mapped in all, but for the arrays that describe a window.
    pub limit: Option<usize>,
}

/// Has the kernel put no huge pages behind this process' memory: the tests look at its single pages. Many machines give huge pages
/// to all that do not refuse them.
pub fn refuse_huge_pages() {
    static REFUSED: std::sync::Once = std::sync::Once::new();
    // SAFETY: changes what page faults bring, and no memory. A kernel without huge pages refuses, and brings none.
    REFUSED.call_once(|| _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) });
}

fn mmap(at: usize, len: usize, prot: i32, flags: i32) -> Option<usize> {
    let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping; NOREPLACE leaves what exists alone where an address is given.
    let got = unsafe { libc::mmap(at as *mut _, len, prot, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    let run = Run { addr: got as usize, len };
    if at != 0 && run.addr != at {
        // An emulator that does not know NOREPLACE takes an address for a hint.
        munmap(run);
        return None;
    }
    Some(run.addr)
}

fn munmap(run: Run) {
    // SAFETY: the test's own mapping.
    assert_eq!(unsafe { libc::munmap(run.addr as *mut _, run.len) }, 0);
}

/// Makes a run read as zero, and costs as little memory as it did before it was touched.
pub fn wipe(run: Run) {
    // SAFETY: mapped memory of the heap, which has given it up.
    assert_eq!(unsafe { libc::madvise(run.addr as *mut _, run.len, libc::MADV_DONTNEED) }, 0);
}

/// Pages of a mapped run that have memory behind them.
pub fn resident(run: Run) -> usize {
    residence(run).iter().filter(|&&page| page & 1 == 1).count()
}

/// Which pages of a run, at most a pageblock, have memory behind them.
pub fn resident_pages(run: Run) -> [u64; PAGEBLOCK_PAGES / 64] {
    let mut set = [0; PAGEBLOCK_PAGES / 64];
    residence(run).iter().enumerate().for_each(|(i, &page)| set[i / 64] |= u64::from(page & 1) << (i % 64));
    set
}

/// A byte for each page of a mapped run.
fn residence(run: Run) -> Vec<u8> {
    let mut pages = vec![0u8; run.len / PAGE];
    // SAFETY: `known` has a byte for each page from there on.
    let look = |addr: usize, known: &mut [u8]| unsafe {
        libc::mincore(addr as *mut _, known.len() * PAGE, known.as_mut_ptr())
    };
    if look(run.addr, &mut pages) != 0 {
        // An emulator refuses pages without rights, which have no memory.
        for (i, page) in pages.iter_mut().enumerate() {
            let known = std::slice::from_mut(page);
            assert!(
                look(run.addr + i * PAGE, known) == 0
                    || std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM)
            );
        }
    }
    pages
}

impl Memory {
    pub fn reserve(&mut self, len: usize, align: usize, reach: Reach) -> Option<Run> {
        let (window, addr) = match reach {
            Reach::Any | Reach::Apart => {
                let window = Run { addr: mmap(0, len + align, PROT_NONE, 0)?, len: len + align };
                (window, window.addr.next_multiple_of(align))
            }
            Reach::Low32 => {
                let tries = (LOW..(4 << 30) - len).step_by(LOW_STEP);
                let addr = tries.into_iter().find_map(|at| mmap(at, len, PROT_NONE, MAP_FIXED_NOREPLACE))?;
                assert!(addr.is_multiple_of(align) && addr + len <= 4 << 30);
                (Run { addr, len }, addr)
            }
        };
        self.windows.push(window);
        if reach == Reach::Apart {
            self.metadata.insert(window.addr);
        }
        Some(Run { addr, len })
    }

    /// Where the mapped part that `addr` lies in ends.
    fn end_of(&self, addr: usize) -> usize {
        let mut end = addr;
        while let Some((at, len)) = self.parts.range(..=end).next_back()
            && at + len > end
        {
            end = at + len;
        }
        end
    }

    /// Somebody else maps `len` bytes right behind the mapped part that `addr` lies in.
    pub fn put_behind(&mut self, addr: usize, len: usize) -> Run {
        self.put_at(self.end_of(addr), len)
    }

    /// Somebody else maps `len` bytes at `addr`.
    pub fn put_at(&mut self, addr: usize, len: usize) -> Run {
        let run = Run { addr, len };
        self.foreign.push(run);
        run
    }

    /// The next block of its own is mapped right behind the mapped part that `addr` lies in, which must be a window's.
    pub fn map_next_behind(&mut self, addr: usize) {
        self.next_block = Some(self.end_of(addr));
    }

    fn in_window(&self, run: Run) -> bool {
        self.windows.iter().any(|&window| super::overlap(window, run))
    }

    /// Whether `more` bytes are too many.
    fn is_over(&self, more: usize) -> bool {
        let is_heaps = |addr: usize| {
            !self
                .windows
                .iter()
                .any(|window| self.metadata.contains(&window.addr) && super::overlap(*window, Run { addr, len: 1 }))
        };
        let parts = self.parts.iter().filter(|&(&addr, _)| is_heaps(addr)).map(|(_, len)| len);
        self.limit.is_some_and(|limit| parts.chain(self.blocks.values()).sum::<usize>() + more > limit)
    }

    /// Undoes `map_at` of a part, of which others may have been made usable in one go.
    pub fn unmap_at(&mut self, run: Run) {
        assert!(self.is_mapped(run), "{run:?} is not mapped");
        wipe(run);
        // SAFETY: reserved address space of this platform.
        assert_eq!(unsafe { libc::mprotect(run.addr as *mut _, run.len, PROT_NONE) }, 0);
        let end = run.addr + run.len;
        let over: Vec<_> =
            self.parts.range(..end).map(|(&at, &len)| (at, len)).filter(|&(at, len)| at + len > run.addr).collect();
        for (at, len) in over {
            self.parts.remove(&at);
            if at < run.addr {
                self.parts.insert(at, run.addr - at);
            }
            if at + len > end {
                self.parts.insert(end, at + len - end);
            }
        }
    }

    /// Whether there is room below the limit for a part of a window.
    pub fn allows(&self, run: Run) -> bool {
        let is_array =
            self.windows.iter().any(|window| self.metadata.contains(&window.addr) && super::overlap(*window, run));
        is_array || !self.is_over(run.len)
    }

    pub fn map_at(&mut self, run: Run) -> bool {
        assert!(run.addr.is_multiple_of(PAGE) && run.len.is_multiple_of(PAGE) && run.len > 0, "{run:?}");
        let inside = |w: &&Run| w.addr <= run.addr && run.addr + run.len <= w.addr + w.len;
        assert!(self.windows.iter().any(|w| inside(&w)), "{run:?} lies in no window");
        if self.foreign.iter().any(|&foreign| super::overlap(foreign, run)) {
            return false;
        }
        let before = self.parts.range(..run.addr + run.len).next_back();
        assert!(before.is_none_or(|(addr, len)| addr + len <= run.addr), "{run:?} is mapped already");
        // SAFETY: reserved address space of this platform.
        let done = unsafe { libc::mprotect(run.addr as *mut _, run.len, PROT_READ | PROT_WRITE) };
        assert_eq!(done, 0);
        self.parts.insert(run.addr, run.len);
        true
    }

    pub fn is_mapped(&self, run: Run) -> bool {
        if self.blocks.range(..=run.addr).next_back().is_some_and(|(at, len)| run.addr + run.len <= at + len) {
            return true;
        }
        let (mut at, end) = (run.addr, run.addr + run.len);
        while at < end {
            match self.parts.range(..=at).next_back() {
                Some((addr, len)) if addr + len > at => at = addr + len,
                _ => return false,
            }
        }
        true
    }

    pub fn is_block(&self, addr: usize) -> bool {
        self.blocks.contains_key(&addr)
    }

    pub fn map(&mut self, len: usize, align: usize) -> Option<usize> {
        assert!(len.is_multiple_of(PAGE) && len > 0 && align.is_power_of_two());
        // As in Linux: what an alignment needs beyond the block is mapped with it, and then unmapped.
        let whole = if align > PAGE { len.saturating_add(align) } else { len };
        if len > 1 << 40 || align > 1 << 40 || self.is_over(whole) {
            return None;
        }
        if let Some(addr) = self.next_block.take() {
            let run = Run { addr, len };
            assert!(addr.is_multiple_of(align) && self.in_window(run));
            // SAFETY: reserved address space of this platform.
            assert_eq!(unsafe { libc::mprotect(addr as *mut _, len, PROT_READ | PROT_WRITE) }, 0);
            self.foreign.push(run);
            self.blocks.insert(addr, len);
            return Some(addr);
        }
        let whole = mmap(0, len + align, PROT_READ | PROT_WRITE, 0)?;
        let addr = whole.next_multiple_of(align.max(PAGE));
        for (addr, end) in [(whole, addr), (addr + len, whole + len + align)] {
            if end - addr >= PAGE {
                munmap(Run { addr, len: end - addr });
            }
        }
        self.blocks.insert(addr, len);
        Some(addr)
    }

    pub fn map_metadata(&mut self, len: usize, align: usize) -> Option<usize> {
        let addr = self.map(len, align)?;
        self.metadata.insert(addr);
        Some(addr)
    }

    /// Bytes with memory behind them, and of those what is metadata.
    pub fn resident_bytes(&self) -> (usize, usize) {
        let bytes = |runs: &[Run]| runs.iter().map(|&run| resident(run) * PAGE).sum::<usize>();
        let blocks = self.blocks.iter().map(|(&addr, &len)| Run { addr, len });
        let (own, blocks): (Vec<_>, Vec<_>) = blocks.partition(|run| self.metadata.contains(&run.addr));
        let parts = self.parts.iter().map(|(&addr, &len)| Run { addr, len });
        let apart = |run: &Run| {
            let of = self.windows.iter().find(|&&window| super::overlap(window, *run));
            of.is_some_and(|window| self.metadata.contains(&window.addr))
        };
        let (arrays, parts): (Vec<_>, Vec<_>) = parts.partition(apart);
        let metadata = bytes(&own) + bytes(&arrays);
        (bytes(&blocks) + bytes(&parts) + metadata, metadata)
    }

    /// Makes `run`, a part of one block or several that lie side by side, a block by itself.
    fn carve(&mut self, run: Run) {
        let end = run.addr + run.len;
        let over: Vec<_> = self.blocks.range(..end).rev().take_while(|&(&at, &len)| at + len > run.addr).collect();
        let over: Vec<Run> = over.into_iter().map(|(&addr, &len)| Run { addr, len }).collect();
        let covered = |part: &Run| (part.addr + part.len).min(end) - part.addr.max(run.addr);
        assert_eq!(over.iter().map(covered).sum::<usize>(), run.len, "{run:x?} is not mapped: {over:x?}");
        for part in over {
            self.blocks.remove(&part.addr);
            if part.addr < run.addr {
                self.blocks.insert(part.addr, run.addr - part.addr);
            }
            if part.addr + part.len > end {
                self.blocks.insert(end, part.addr + part.len - end);
            }
        }
        self.blocks.insert(run.addr, run.len);
    }

    /// Bytes of blocks that have memory behind them.
    pub fn resident(&self) -> usize {
        self.blocks.iter().map(|(&addr, &len)| resident(Run { addr, len })).sum::<usize>() * PAGE
    }

    pub fn unmap(&mut self, run: Run) {
        self.carve(run);
        self.blocks.remove(&run.addr);
        self.metadata.remove(&run.addr);
        if self.in_window(run) {
            // It stays reserved, and occupied: what the heap has grown past it does not come back for.
            wipe(run);
            // SAFETY: reserved address space of this platform.
            assert_eq!(unsafe { libc::mprotect(run.addr as *mut _, run.len, PROT_NONE) }, 0);
            return;
        }
        munmap(run);
    }

    /// Always moves, so that nobody relies on the old address.
    pub fn remap(&mut self, run: Run, len: usize, align: usize) -> Option<usize> {
        self.carve(run);
        let new = self.map(len, align)?;
        let (from, to) = (run.addr as *mut libc::c_void, new as *mut libc::c_void);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if !self.in_window(run) {
            // SAFETY: both are the platform's; the new one is replaced.
            if unsafe { libc::mremap(from, run.len, len, flags, to) } == to {
                self.blocks.remove(&run.addr);
                return Some(new);
            }
        }
        // SAFETY: both are mapped and distinct.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), run.len.min(len)) };
        self.unmap(run);
        Some(new)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let blocks = self.blocks.iter().map(|(&addr, &len)| Run { addr, len });
        // Once only: what is unmapped may be another test's at once.
        let blocks = blocks.filter(|&run| !self.in_window(run));
        self.windows.iter().copied().chain(blocks).for_each(munmap);
    }
}
