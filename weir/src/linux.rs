//! The platform that the engine runs on in a Linux process.

use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_core::page::{PAGE, PAGEBLOCK_PAGES};
use weir_core::percpu::{MAX_CPUS, Pushed, Table};
use weir_core::platform::{Misuse, Platform, Reach, Run};
use weir_core::pressure::Level;
use weir_core::stats::{Cause, Stats};
use weir_core::tunables::Tunables;

use crate::message::Line;
use crate::os::mman::{self, IoVec, MADV_DONTNEED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MREMAP_MAYMOVE};
use crate::os::process::{self, futex_wait, futex_wake, monotonic_ns};
use crate::os::syscall::Errno;
use crate::{background, machine, rseq, taker};

/// Ranges in one call of `process_madvise` (the kernel's `UIO_MAXIOV` is 1024).
const IOVECS: usize = 128;

/// The counters; a page of its own, so that a shared mapping can be put over it.
pub(crate) static STATS: Stats = Stats::new();
/// The parameters.
pub(crate) static TUNABLES: Tunables = Tunables::new();

const UNKNOWN: u8 = 0;
const LOCKLESS: u8 = 1;
const LOCKED: u8 = 2;

/// Linux, below the engine.
pub struct Linux {
    /// Whether the fast path runs on restartable sequences.
    mode: AtomicU8,
    nodes: AtomicUsize,
    huge_on_touch: AtomicBool,
    /// `process_madvise` was refused once, and will be again.
    no_batches: AtomicBool,
}

impl Linux {
    /// Nothing probed yet.
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU8::new(UNKNOWN),
            nodes: AtomicUsize::new(1),
            huge_on_touch: AtomicBool::new(false),
            no_batches: AtomicBool::new(false),
        }
    }

    /// Sets the fast path up, before there is a second thread.
    #[cold]
    fn probe(&self) -> bool {
        let lockless = rseq::enable(MAX_CPUS);
        STATS.rseq.store(lockless.into(), Relaxed);
        self.huge_on_touch.store(machine::thp_always(), Relaxed);
        self.nodes.store(machine::node_count(), Relaxed);
        self.mode.store(if lockless { LOCKLESS } else { LOCKED }, Release);
        lockless
    }

    fn map_aligned(len: usize, align: usize) -> Option<usize> {
        let at = mman::mmap_anonymous(len, MAP_NORESERVE).ok()? as usize;
        if at.is_multiple_of(align) {
            return Some(at);
        }
        // Kernels since 6.7 align long mappings by themselves; this one did not, or more is asked for.
        // SAFETY: just mapped, nobody's yet.
        let _ = unsafe { mman::munmap(at as *mut u8, len) };
        let total = len.checked_add(align)?;
        let at = mman::mmap_anonymous(total, MAP_NORESERVE).ok()? as usize;
        let start = at.next_multiple_of(align);
        for (from, len) in [(at, start - at), (start + len, at + align - start)] {
            if len > 0 {
                // SAFETY: the ends of a mapping just made, nobody's yet.
                let _ = unsafe { mman::munmap(from as *mut u8, len) };
            }
        }
        Some(start)
    }

    fn release_each(runs: &[Run]) -> usize {
        // SAFETY: the engine has isolated the runs: nobody needs their contents.
        let gone = |run: &&Run| unsafe { mman::madvise(run.addr as *mut u8, run.len, MADV_DONTNEED) }.is_ok();
        runs.iter().take_while(gone).count()
    }

    /// Releases runs by as few calls as the kernel takes; `None` if it takes none of this kind.
    fn release_batch(&self, runs: &[Run]) -> Option<usize> {
        let mut vectors = [IoVec { base: core::ptr::null_mut(), len: 0 }; IOVECS];
        for (vector, run) in vectors.iter_mut().zip(runs) {
            *vector = IoVec { base: run.addr as *mut u8, len: run.len };
        }
        let mut vectors = &mut vectors[..runs.len().min(IOVECS)];
        let count = vectors.len();
        while !vectors.is_empty() {
            // SAFETY: the engine has isolated the runs: nobody needs their contents.
            match unsafe { mman::process_madvise(vectors, MADV_DONTNEED) } {
                Ok(0) => break,
                Ok(mut bytes) => {
                    let whole = vectors.iter().take_while(|v| {
                        let fits = v.len <= bytes;
                        bytes -= if fits { v.len } else { 0 };
                        fits
                    });
                    let whole = whole.count();
                    vectors = &mut vectors[whole..];
                    if let Some(first) = vectors.first_mut() {
                        first.base = first.base.wrapping_add(bytes);
                        first.len -= bytes;
                    }
                }
                Err(Errno::EPERM | Errno::EINVAL | Errno::ENOSYS | Errno::EBADF) if vectors.len() == count => {
                    return None;
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => break,
            }
        }
        Some(count - vectors.len())
    }
}

impl Platform for Linux {
    fn window(&self, len: usize, align: usize, reach: Reach) -> Option<Run> {
        Some(match reach {
            // The middle of the lower half: far above where programs and their brk heaps lie, far below mmap's.
            Reach::Any => {
                const LOWEST: usize = 16 << 40;
                const SPAN: usize = 64 << 40;
                Run { addr: LOWEST + (machine::entropy() % (SPAN - len)) / align * align, len }
            }
            Reach::Low32 => Run { addr: 1 << 30, len: 2 << 30 },
        })
    }

    fn map_at(&self, run: Run, node: usize) -> bool {
        use mman::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        let at = run.addr as *mut u8;
        // SAFETY: NOREPLACE: what exists is left alone.
        let Ok(got) = (unsafe { mman::mmap(at, run.len, PROT_READ | PROT_WRITE, flags, -1, 0) }) else { return false };
        if got != at {
            // Kernels before 4.17 take the address as a hint only.
            // SAFETY: just mapped, nobody's yet.
            let _ = unsafe { mman::munmap(got, run.len) };
            return false;
        }
        if self.nodes() > 1 {
            let mut mask = [0u64; 16];
            mask[node / 64 % 16] = 1 << (node % 64);
            let _ = mman::mbind_preferred(at, run.len, &mask);
        }
        true
    }

    fn map(&self, len: usize, align: usize) -> Option<usize> {
        Self::map_aligned(len, align)
    }

    fn advise_huge(&self, run: Run) {
        // Where huge pages are off this fails, and does no harm.
        // SAFETY: the mapping is the engine's; the advice changes no contents.
        let _ = unsafe { mman::madvise(run.addr as *mut u8, run.len, mman::MADV_HUGEPAGE) };
    }

    fn resident(&self, run: Run) -> Option<usize> {
        let mut pages = [0u8; PAGEBLOCK_PAGES];
        let pages = pages.get_mut(..run.len / PAGE)?;
        mman::mincore(run.addr as *mut u8, pages, PAGE).ok()?;
        Some(pages.iter().filter(|&&page| page & 1 == 1).count())
    }

    fn unmap(&self, run: Run) {
        // SAFETY: the engine gives the mapping up. Should the kernel refuse (too many mappings), its memory goes.
        if unsafe { mman::munmap(run.addr as *mut u8, run.len) }.is_err() {
            Self::release_each(&[run]);
        }
    }

    fn remap(&self, run: Run, len: usize) -> Option<usize> {
        let at = run.addr as *mut u8;
        // SAFETY: the mapping is the engine's.
        unsafe { mman::mremap(at, run.len, len, MREMAP_MAYMOVE, core::ptr::null_mut()) }.ok().map(|p| p as usize)
    }

    fn release(&self, runs: &[Run]) -> usize {
        if runs.len() < 2 || self.no_batches.load(Relaxed) {
            return Self::release_each(runs);
        }
        let mut done = 0;
        while done < runs.len() {
            match self.release_batch(&runs[done..]) {
                Some(0) => break,
                Some(n) => done += n,
                None => {
                    self.no_batches.store(true, Relaxed);
                    return done + Self::release_each(&runs[done..]);
                }
            }
        }
        done
    }

    fn huge_on_touch(&self) -> bool {
        self.huge_on_touch.load(Relaxed)
    }

    fn now(&self) -> u64 {
        monotonic_ns()
    }

    fn nodes(&self) -> usize {
        self.nodes.load(Relaxed)
    }

    fn node(&self) -> usize {
        if self.nodes() == 1 {
            return 0;
        }
        rseq::area().filter(|a| a.node_id).map_or(0, rseq::node)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let _ = futex_wait(word, expected, None);
    }

    fn wake(&self, word: &AtomicU32) {
        let _ = futex_wake(word, 1);
    }

    fn notify(&self) {
        background::notify();
    }

    fn notify_taker(&self) {
        taker::notify();
    }

    fn pressure(&self) -> (Level, Cause) {
        background::look()
    }

    #[cold]
    fn misuse(&self, what: Misuse, addr: usize, class_size: usize) {
        let mut line = Line::new();
        let _ = core::fmt::Write::write_fmt(&mut line, format_args!("weir: {what}: {addr:#x}"));
        if class_size > 0 {
            let _ = core::fmt::Write::write_fmt(&mut line, format_args!(" (size class {class_size})"));
        }
        line.say();
        if TUNABLES.abort_on_misuse.get() != 0 {
            process::abort();
        }
    }

    fn stats(&self) -> &Stats {
        &STATS
    }

    fn tunables(&self) -> &Tunables {
        &TUNABLES
    }

    fn held_ranks(&self) -> Option<&AtomicU32> {
        Some(rseq::ranks())
    }

    fn lockless(&self) -> bool {
        match self.mode.load(Acquire) {
            UNKNOWN => self.probe(),
            mode => mode == LOCKLESS,
        }
    }

    fn cpu(&self) -> usize {
        if self.lockless() { rseq::index() } else { rseq::thread_number() }
    }

    #[inline(always)]
    unsafe fn pop(&self, table: &Table, class: usize) -> *mut u8 {
        // SAFETY: as the trait's.
        unsafe { rseq::pop(table, class) }
    }

    #[inline(always)]
    unsafe fn push(&self, table: &Table, class: usize, object: *mut u8) -> Pushed {
        // SAFETY: as the trait's.
        unsafe { rseq::push(table, class, object) }
    }

    unsafe fn push_batch(&self, table: &Table, class: usize, objects: &[*mut u8]) -> usize {
        // SAFETY: as the trait's.
        unsafe { rseq::push_batch(table, class, objects) }
    }

    unsafe fn pop_batch(&self, table: &Table, class: usize, objects: &mut [*mut u8]) -> usize {
        // SAFETY: as the trait's.
        unsafe { rseq::pop_batch(table, class, objects) }
    }

    unsafe fn exchange_header(&self, table: &Table, class: usize, old: u32, new: u32) -> u32 {
        // SAFETY: as the trait's.
        unsafe { rseq::exchange_header(table, class, old, new) }
    }

    fn fence(&self) {
        rseq::fence()
    }
}
