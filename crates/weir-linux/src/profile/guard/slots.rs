//! The pages of guarded blocks, and what is known of each.
//!
//! A pool of `SLOTS` pages, each between two that are never accessible. A page is accessible while a block is in it. Notes on a
//! slot stay after the free until the slot is used again. The slot that was freed longest ago is used first.
//!
//! **Protocol.** A slot's state is one word (`word.rs`), by which one thread at a time writes the slot and changes its page. No
//! thread ever waits, so a signal handler may come anywhere. A child of `fork` lacks at most the slots that other threads were
//! working on: they stay busy in it. A reader that wants to report an error reads the words of a slot as they are. If another
//! thread uses the slot anew at that time, the report mixes two blocks.

use core::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::os::mman::{self, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};
use crate::os::page::bytes as page_bytes;
use crate::os::process::gettid;
use crate::os::syscall::Result;
use crate::profile::guard::word::Word;
use crate::profile::stack::{call_stack, room};

/// Blocks that are guarded or remembered at a time: 1 MiB of pages of 4 KiB at most. GWP-ASan has 16 by default, and so forgets a freed
/// block after 16 more; a program in trouble keeps some objects for seconds.
pub(super) const SLOTS: usize = 256;
/// Frames that are kept of each stack: enough to tell one call from another, and 128 KiB for all.
const FRAMES: usize = 32;
/// Pages of the pool: one before each slot's, and one behind the last.
const POOL_PAGES: usize = 2 * SLOTS + 1;
/// No user address is near: the pool's place before there is one.
const NOWHERE: usize = 1 << 63;

static BASE: AtomicUsize = AtomicUsize::new(NOWHERE);
static ALL: AtomicUsize = AtomicUsize::new(0);
/// Frees of guarded blocks so far.
static FREES: AtomicU64 = AtomicU64::new(0);

/// A call stack, and the thread that had it.
pub(super) struct Trace {
    thread: AtomicU32,
    frames: [AtomicUsize; FRAMES],
}

impl Trace {
    fn take(&self) {
        let mut words = [0; room(FRAMES)];
        let found = call_stack(&mut words).iter().chain(core::iter::repeat(&0));
        self.frames.iter().zip(found).for_each(|(to, &frame)| to.store(frame, Relaxed));
        self.thread.store(gettid(), Relaxed);
    }

    fn clear(&self) {
        self.thread.store(0, Relaxed);
    }

    /// The thread's number; 0: nothing was taken.
    pub fn thread(&self) -> u32 {
        self.thread.load(Relaxed)
    }

    /// The stack's code addresses, the innermost first.
    pub fn frames(&self) -> impl Iterator<Item = usize> {
        self.frames.iter().map(|frame| frame.load(Relaxed)).take_while(|&frame| frame != 0)
    }
}

/// The record of a block: the one in the slot, or the last that was.
pub(super) struct Slot {
    word: Word,
    block: AtomicUsize,
    size: AtomicUsize,
    /// The stack of the allocation.
    pub allocated: Trace,
    /// The stack of the free, if the block was freed.
    pub freed: Trace,
}

impl Slot {
    /// Where the block begins; 0: there was none yet.
    pub fn block(&self) -> usize {
        self.block.load(Relaxed)
    }

    /// The block's size, as it was asked for.
    pub fn size(&self) -> usize {
        self.size.load(Relaxed)
    }

    pub fn is_live(&self) -> bool {
        self.word.is_live()
    }

    /// Gives the slot, which the caller took, a block.
    pub fn make_live(&self, block: usize, size: usize) {
        self.block.store(block, Relaxed);
        self.size.store(size, Relaxed);
        self.allocated.take();
        self.freed.clear();
        self.word.make_live();
    }

    /// Takes the block out of the program's hands; `false`: it is in nobody's, or another thread was faster.
    pub fn take_live(&self) -> bool {
        let is_taken = self.word.take_live();
        if is_taken {
            self.freed.take();
        }
        is_taken
    }

    /// The caller, who took the slot, gives it to the next.
    pub fn give(&self) {
        self.word.give(FREES.fetch_add(1, Relaxed) + 1);
    }
}

/// Whether an address is in the pool: one load.
#[inline(always)]
pub fn owns(at: usize) -> bool {
    at.wrapping_sub(BASE.load(Relaxed)) < POOL_PAGES * page_bytes()
}

/// Maps the pool, unless it is there.
pub(super) fn map() -> Result<()> {
    if BASE.load(Acquire) != NOWHERE {
        return Ok(());
    }
    let slots = mman::mmap_anonymous(SLOTS * size_of::<Slot>(), MAP_NORESERVE)?;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED nothing that exists is replaced.
    let base = unsafe { mman::mmap(core::ptr::null_mut(), POOL_PAGES * page_bytes(), PROT_NONE, flags, -1, 0) }?;
    // Of two threads that do this at once, the second's mapping stays behind, unused.
    if ALL.compare_exchange(0, slots as usize, AcqRel, Relaxed).is_ok() {
        BASE.store(base as usize, Release);
    }
    Ok(())
}

/// All slots, once the pool is mapped.
fn all() -> &'static [Slot] {
    if BASE.load(Acquire) == NOWHERE {
        return &[];
    }
    // SAFETY: mapped for so many, for good; zero is a valid value of each field, and all of them are atomic.
    unsafe { core::slice::from_raw_parts(ALL.load(Relaxed) as *const Slot, SLOTS) }
}

/// Takes the slot that was freed longest ago, with its number; `None`: all hold blocks, or other threads are faster.
pub(super) fn take_oldest() -> Option<(usize, &'static Slot)> {
    let free = all().iter().enumerate().filter_map(|(number, slot)| Some((number, slot, slot.word.free()?)));
    let (number, slot, seen) = free.min_by_key(|found| found.2)?;
    slot.word.take(seen).then_some((number, slot))
}

/// Where a slot's page is.
fn page(number: usize) -> usize {
    BASE.load(Relaxed) + (2 * number + 1) * page_bytes()
}

/// Makes a slot's page accessible, where every byte of it is 0; gives its address.
///
/// # Safety
/// The caller took the slot.
pub(super) unsafe fn show_page(number: usize) -> Result<usize> {
    let page = page(number);
    // SAFETY: a page of the pool, which only the caller uses.
    unsafe { mman::mprotect(page as *mut u8, page_bytes(), PROT_READ | PROT_WRITE) }?;
    Ok(page)
}

/// Makes the page at `page` inaccessible and gives its memory back; where the kernel refuses, it stays accessible, and `false`.
///
/// # Safety
/// The caller took the slot, and the program gave its block up.
pub(super) unsafe fn hide_page(page: usize) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: a page of the pool that nothing may use any more is replaced by an empty one.
    unsafe { mman::mmap(page as *mut u8, page_bytes(), PROT_NONE, flags, -1, 0) }.is_ok()
}

/// The slot that an address of the pool belongs to. That is its page's; in a page between two, it is that of the nearer one that
/// has had a block.
pub(super) fn nearest(at: usize) -> Option<&'static Slot> {
    let slots = all();
    let offset = at.wrapping_sub(BASE.load(Relaxed));
    let (page, in_page) = (offset / page_bytes(), offset % page_bytes());
    if slots.is_empty() || page >= POOL_PAGES {
        return None;
    }
    let number = page / 2;
    let used = |number: usize| slots.get(number).filter(|slot| slot.block() != 0);
    if !page.is_multiple_of(2) {
        return used(number);
    }
    let (before, behind) = (number.checked_sub(1).and_then(used), used(number));
    if in_page < page_bytes() / 2 { before.or(behind) } else { behind.or(before) }
}
