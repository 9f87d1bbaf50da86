//! The platform that the engine runs on in a Linux process.

use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use linux_raw_sys::general::{MADV_DOFORK, MADV_KEEPONFORK};
use weir_core::base::cause::Cause;
use weir_core::base::invalid_free::InvalidFree;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use weir_core::heap::Heap;
use weir_core::platform::cpu_table::{MAX_CPUS, Pushed, Table};
use weir_core::platform::{
    Clock, Contents, CpuOps, Diagnostics, Host, Memory, Placed, Reach, Refused, Released, Topology, Wait, Workers,
};
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

use crate::messages;
use crate::os::clock::monotonic_ns;
use crate::os::futex::{futex_wait, futex_wake};
use crate::os::mman::{self, MADV_DONTNEED, MAP_NORESERVE, MREMAP_MAYMOVE};
use crate::os::syscall::Errno;
use crate::os::{scheduling, thread_block};
use crate::platform::address_layout::{AddressLayout, Area};
use crate::platform::hooks::{Hooks, LONG_WAIT_NS};
use crate::platform::release::{self, Releaser};
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::{rseq, rseq_sections, topology};

/// Attempts to map metadata in its own part of the address space, before it is mapped anywhere.
const TRIES: usize = 8;

const UNKNOWN: u8 = 0;
const LOCKLESS: u8 = 1;
const LOCKED: u8 = 2;

/// The engine on Linux.
pub type Engine = Heap<Linux>;

/// The kernel's answer, where Weir itself has no place for a mapping.
const NO_ADDRESSES: Refused = refused(Errno::ENOMEM);

/// The kernel refused a mapping.
const fn refused(error: Errno) -> Refused {
    Refused { error: error.0 as u32 }
}

/// Linux, below the engine.
pub struct Linux {
    /// Whether the fast path runs on restartable sequences.
    mode: AtomicU8,
    nodes: AtomicUsize,
    huge_on_touch: AtomicBool,
    /// Where the heap and its metadata lie.
    addresses: AddressLayout,
    /// How memory is released.
    releaser: Releaser,
    /// What is called in the layers above.
    hooks: &'static Hooks,
}

impl Linux {
    /// Nothing probed yet.
    pub(crate) const fn new(hooks: &'static Hooks) -> Self {
        Self {
            mode: AtomicU8::new(UNKNOWN),
            nodes: AtomicUsize::new(1),
            huge_on_touch: AtomicBool::new(false),
            addresses: AddressLayout::new(),
            releaser: Releaser::new(),
            hooks,
        }
    }

    /// Sets the fast path up. Threads that do it at once come to the same answers; what they began on the fast path
    /// before found no buckets, and never will.
    #[cold]
    fn probe(&self) -> bool {
        let lockless = rseq::enable(MAX_CPUS);
        STATS.rseq.store(lockless.into(), Relaxed);
        self.huge_on_touch.store(topology::has_huge_pages_on_touch(), Relaxed);
        self.nodes.store(topology::node_count(), Relaxed);
        self.mode.store(if lockless { LOCKLESS } else { LOCKED }, Release);
        (self.hooks.first_use)();
        lockless
    }

    /// `len` bytes at any page. Kernels from 6.7 on align what may have huge pages, and leave less to chance, unless an
    /// address is requested: here one that is taken.
    fn map_anywhere(len: usize) -> Result<usize, Refused> {
        use mman::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
        let (hint, flags) = ((&raw const STATS).cast_mut().cast(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        // SAFETY: without MAP_FIXED nothing that exists is replaced.
        let at = unsafe { mman::mmap(hint, len, PROT_READ | PROT_WRITE, flags, -1, 0) };
        at.map(|at| at as usize).map_err(refused)
    }

    fn map_aligned(len: usize, align: usize) -> Result<usize, Refused> {
        // Kernels since 6.7 align mappings of whole huge pages by themselves.
        let whole = if align == PAGEBLOCK { len.checked_next_multiple_of(align).ok_or(NO_ADDRESSES)? } else { len };
        let at = mman::mmap_anonymous(whole, MAP_NORESERVE).map_err(refused)? as usize;
        if at.is_multiple_of(align) {
            Self::unmap_ends(at, whole, at, len);
            return Ok(at);
        }
        // This one did not, or a larger alignment is needed.
        // SAFETY: just mapped, and no other code has the address yet.
        let _ = unsafe { mman::munmap(at as *mut u8, whole) };
        let total = len.checked_add(align).ok_or(NO_ADDRESSES)?;
        let at = mman::mmap_anonymous(total, MAP_NORESERVE).map_err(refused)? as usize;
        let start = at.next_multiple_of(align);
        Self::unmap_ends(at, total, start, len);
        Ok(start)
    }

    /// Of a mapping just made, unmaps all but the `len` bytes at `start`.
    fn unmap_ends(at: usize, total: usize, start: usize, len: usize) {
        for (from, to) in [(at, start), (start + len, at + total)] {
            if to > from {
                // SAFETY: an end of a mapping just made, and no other code has the address yet.
                let _ = unsafe { mman::munmap(from as *mut u8, to - from) };
            }
        }
    }

    /// `mremap` of a mapping of the engine's.
    fn move_mapping(run: Run, len: usize) -> Result<usize, Refused> {
        // SAFETY: the mapping is the engine's.
        let moved = unsafe { mman::mremap(run.addr as *mut u8, run.len, len, MREMAP_MAYMOVE, core::ptr::null_mut()) };
        moved.map(|at| at as usize).map_err(refused)
    }

    /// [`Memory::remap`] where the mapping cannot be moved.
    fn copy_over(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let new = self.map(len, PAGEBLOCK)?;
        // SAFETY: both are mapped and distinct, and the caller gives the old one up.
        unsafe { core::ptr::copy_nonoverlapping(run.addr as *const u8, new as *mut u8, run.len.min(len)) };
        self.unmap(run);
        Ok(new)
    }
}

impl Host for Linux {
    fn release(&self, runs: &[Run], calm: bool) -> Released {
        self.releaser.release(runs, calm && TUNABLES.report_lazily.get() != 0)
    }
}

impl Memory for Linux {
    fn window(&self, len: usize, align: usize, reach: Reach) -> Result<Run, Refused> {
        // Once there are pages, frees enter the fast path; so it is set up before.
        self.lockless();
        Ok(match reach {
            Reach::Any => {
                let addr = self.addresses.next(Area::Windows, len, PAGE).ok_or(NO_ADDRESSES)?;
                Run { addr, len: len - addr % align }
            }
            Reach::Low32 => AddressLayout::low_window(align),
            Reach::Apart => Run { addr: self.addresses.next(Area::Metadata, len, align).ok_or(NO_ADDRESSES)?, len },
        })
    }

    fn map_at(&self, run: Run, node: usize) -> Placed {
        let placed = self.addresses.map(run);
        if placed == Placed::Done && self.nodes() > 1 {
            let mut mask = [0u64; 16];
            mask[node / 64 % 16] = 1 << (node % 64);
            let _ = mman::mbind_preferred(run.addr as *mut u8, run.len, &mask);
        }
        placed
    }

    fn map(&self, len: usize, align: usize) -> Result<usize, Refused> {
        // A program whose first block is a large one.
        self.lockless();
        if align <= PAGE { Self::map_anywhere(len) } else { Self::map_aligned(len, align) }
    }

    fn map_metadata(&self, len: usize, align: usize) -> Result<usize, Refused> {
        self.lockless();
        for _ in 0..TRIES {
            let Some(addr) = self.addresses.next(Area::Metadata, len, align) else { break };
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
        // For whatever reason the kernel refuses: a sandbox, one mapping too many, or that the program gave its advice
        // on a part of the block, which made several mappings of one (`EFAULT`). An `mremap` that fails has changed
        // nothing.
        Self::move_mapping(run, len).or_else(|_| self.copy_over(run, len))
    }

    fn renew(&self, run: Run, len: usize) -> Result<usize, Refused> {
        let at = run.addr as *mut u8;
        // A former owner may have set what `fork` does with the block (leave it out, or wipe it): undone for the next
        // one. Usually there is nothing to undo.
        for advice in [MADV_DOFORK, MADV_KEEPONFORK] {
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

    fn cool(&self, runs: &[Run]) {
        self.releaser.cool(runs);
    }

    fn resident(&self, run: Run) -> Option<usize> {
        let mut pages = [0u8; PAGEBLOCK_PAGES];
        let pages = pages.get_mut(..run.len / PAGE)?;
        mman::mincore(run.addr as *mut u8, pages, PAGE).ok()?;
        Some(pages.iter().filter(|&&page| page & 1 == 1).count())
    }

    fn resident_pages(&self, run: Run) -> Option<[u64; PAGEBLOCK_PAGES / 64]> {
        let mut bytes = [0u8; PAGEBLOCK_PAGES];
        let found = mman::mincore(run.addr as *mut u8, bytes.get_mut(..run.len / PAGE)?, PAGE);
        match found {
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

    fn huge_on_touch(&self) -> bool {
        self.huge_on_touch.load(Relaxed)
    }
}

impl Clock for Linux {
    fn now(&self) -> u64 {
        monotonic_ns()
    }
}

impl Topology for Linux {
    fn nodes(&self) -> usize {
        // They are counted when the fast path is set up.
        self.lockless();
        self.nodes.load(Relaxed)
    }

    fn node(&self) -> usize {
        // A program whose first block is a large one.
        self.lockless();
        if self.nodes() == 1 {
            return 0;
        }
        // Kernels before 6.3 do not write it there.
        let node = rseq::area().filter(|a| a.node_id).map_or_else(scheduling::node, rseq::node);
        // Threads on a node that was added later use the last of those that were there at the start.
        node.min(self.nodes() - 1)
    }
}

impl Wait for Linux {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        if futex_wait(word, expected, Some(LONG_WAIT_NS)) == Err(Errno::ETIMEDOUT) {
            (self.hooks.waited_long)();
        }
    }

    fn wake(&self, word: &AtomicU32) {
        let _ = futex_wake(word, 1);
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        Some(thread_block::ranks())
    }
}

impl Workers for Linux {
    fn wake_node_worker(&self, node: usize, cause: Cause, severe: bool) {
        (self.hooks.start_node_worker)(node, cause, severe);
    }

    fn wake_balancer(&self) {
        (self.hooks.freed)();
    }

    fn wake_finalizer(&self) {
        (self.hooks.wake_finalizer)();
    }

    fn freeze_evictable_caches(&self) {
        (self.hooks.fork_evictable_caches)(true);
    }

    unsafe fn thaw_evictable_caches(&self) {
        (self.hooks.fork_evictable_caches)(false);
    }

    fn has_balancer_thread(&self) -> bool {
        (self.hooks.has_background)()
    }

    fn poll_pressure(&self) -> (Level, Cause) {
        (self.hooks.read_pressure)()
    }
}

impl Diagnostics for Linux {
    #[cold]
    fn invalid_free(&self, what: InvalidFree, addr: usize, class_size: usize) {
        messages::invalid_free(what, addr, class_size, TUNABLES.abort_on_misuse.get() != 0);
    }

    fn stats(&self) -> &Stats {
        &STATS
    }

    fn tunables(&self) -> &Tunables {
        &TUNABLES
    }
}

impl CpuOps for Linux {
    fn lockless(&self) -> bool {
        match self.mode.load(Acquire) {
            UNKNOWN => self.probe(),
            mode => mode == LOCKLESS,
        }
    }

    fn cpu(&self) -> usize {
        if self.lockless() { rseq::index() } else { thread_block::thread_number() }
    }

    #[inline(always)]
    unsafe fn pop(&self, table: &Table, class: usize) -> *mut u8 {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { rseq_sections::pop(table, class) }
    }

    #[inline(always)]
    unsafe fn push(&self, table: &Table, class: usize, object: *mut u8) -> Pushed {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { rseq_sections::push(table, class, object) }
    }

    unsafe fn push_batch(&self, table: &Table, class: usize, objects: &[*mut u8]) -> usize {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { rseq_sections::push_batch(table, class, objects) }
    }

    unsafe fn pop_batch(&self, table: &Table, class: usize, objects: &mut [*mut u8]) -> usize {
        // SAFETY: the caller keeps to the trait's contract, which is the section's.
        unsafe { rseq_sections::pop_batch(table, class, objects) }
    }

    fn fence(&self) -> bool {
        rseq::fence()
    }
}
