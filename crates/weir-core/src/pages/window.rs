//! Pages, orders, and the window of address space that the heap lives in, with its out-of-line descriptors.
//!
//! For each page of the window there is a byte in the *class map*, which says what a pointer into the page is. In addition there
//! are 36 bytes of *descriptor*. For each pageblock there is a [`Pageblock`]. All three arrays are indexed by page or pageblock
//! number, and lie apart from the heap. They are mapped only as far as the heap has grown: a resident heap of `H` bytes costs
//! `H / 4096 * 37 + H / 2 MiB * 192` bytes of them, 0.91 %. Descriptors and class map of pageblocks that are free and reported go
//! back too (`bare`), but for the 192 bytes. So 96 KiB for each GiB of the heap's peak stay.
//!
//! A slab of `n` pages owns the descriptors of all its pages: a 16-byte header, then its bitmap of objects. That is
//! what makes 36 bytes enough for 16-byte objects (256 bits a page from four pages on).

mod huge_advice;
#[doc(hidden)]
pub mod unchecked;
mod unmapped;

use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use crate::base::run::Run;
use crate::base::run_class;
use crate::base::units::{
    BlockNo, Class, Order, PAGE, PAGE_SHIFT, PAGEBLOCK, PAGEBLOCK_PAGES, PageNo, Pages, REPORT_ORDER, Span,
};
use crate::pages::pageblock::{Advice, Pageblock, State};
use crate::pages::request::Short;
use crate::platform::lock::{Guard, Lock, RankTurn};
use crate::platform::{Placed, Platform, Reach, rank};

/// Words of 32 bits in a page's descriptor.
pub const DESC_WORDS: usize = 9;
/// Pageblocks, from a multiple of this on, whose class-map entries (512 bytes each) and descriptors (18 KiB each) fill
/// whole pages: one and 36.
pub const DESCRIBED_TOGETHER: u32 = 8;

/// Class of the first page of a large run that is of no run class.
pub const LARGE: Class = Class(255);
/// Class of a page to which no allocation belongs.
pub const NOTHING: Class = Class(0);

/// Whether a page of class `class` heads a run.
#[inline]
pub(crate) const fn heads_run(class: Class) -> bool {
    class.0 == LARGE.0 || run_class::contains(class)
}

/// Address space that the heap may ever use (bytes); only what it has grown to is mapped.
const WINDOW: usize = 4 << 40;
/// Least growth of a node, bytes, once it has so much; before that it doubles. A small program stays within what `mlockall` may
/// lock (8 MiB, mostly). Where all that is mapped gets memory at once it is the most as well.
const GROW_MIN: usize = 8 << 20;
/// Most growth of a node, bytes.
const GROW_MAX: usize = 1 << 30;
/// Longest part of the window that a step over another mapping takes. Steps double up to it; so any
/// mapping is got over in few tries, and no more than this is lost behind it.
const SKIP_PART: usize = 64;

/// Which of the arrays the descriptors are: the last, see [`Window::describe`].
const DESCS: usize = 2;

/// A range of addresses for heap pages, and the arrays that describe them.
///
/// What it says of a page is for who knows that the page is there; safe code of others cannot ask:
///
/// ```compile_fail,E0624
/// use weir_core::pages::window::Window;
/// use weir_core::platform::Reach;
///
/// Window::new(Reach::Any).class_of(0);
/// ```
#[repr(C, align(64))]
pub struct Window {
    /// Address of page 0.
    base: AtomicUsize,
    /// Pages that the class map covers, that is, that may ever have been handed out.
    top: AtomicUsize,
    class_map: AtomicPtr<AtomicU8>,
    descs: AtomicPtr<AtomicU32>,
    blocks: AtomicPtr<Pageblock>,
    growth: Lock<Growth, { rank::GROWTH }>,
    /// Pages that it may still grow by, as far as is known; 0 once growth was refused.
    growable: AtomicUsize,
    /// Order of the least that can be released of it.
    granule: AtomicU32,
    reach: Reach,
    /// Looks at pageblocks so far: what the cost of a slow path is counted in.
    #[cfg(debug_assertions)]
    pub(crate) visits: AtomicUsize,
}

/// How far each array is mapped.
pub(super) struct Growth {
    /// Pageblocks that it may ever have; 0: it is not placed yet.
    blocks_max: usize,
    /// Pages of the first pageblock that lie before the window.
    skipped: Pages,
    /// Pageblocks mapped now: those below the top but for the holes.
    pub(super) blocks: usize,
    /// Pageblocks that were unmapped and may be mapped again; none lies before the first.
    pub(super) unmapped: usize,
    pub(super) first_unmapped: BlockNo,
    /// Bytes as far as which the class map, the pageblocks and the descriptors are mapped, in this order.
    mapped: [usize; 3],
}

/// The turn to grow a window.
pub struct Growing<'a, P: Platform> {
    pub(super) window: &'a Window,
    pub(super) platform: &'a P,
    pub(super) growth: Guard<'a, Growth, P, { rank::GROWTH }>,
    /// Pages that the node has which grows: it gets a part of so many. So what all nodes have mapped and do not use is a part of
    /// the heap, however many there are.
    pub(super) have: Pages,
    /// Whether what is mapped asks for huge pages whatever the setting `huge_heap` is.
    pub(super) advice: Advice,
    /// Whether probes among it do not ask.
    pub(super) probes: bool,
}

impl<P: Platform> Growing<'_, P> {
    /// Maps the next pageblocks for node `node`, at least `blocks` of them in one row, and returns them.
    /// [`Short`] when address space or memory is refused.
    pub fn grow(&mut self, blocks: usize, node: usize) -> Result<Range<BlockNo>, Short> {
        let grown = self.grow_row(blocks, node);
        let most = Pages::BLOCK * self.growth.blocks_max;
        let left = most.0.saturating_sub(self.window.top.load(Relaxed));
        self.window.growable.store(if grown.is_ok() { left } else { 0 }, Relaxed);
        grown
    }

    fn grow_row(&mut self, blocks: usize, node: usize) -> Result<Range<BlockNo>, Short> {
        if self.growth.blocks_max == 0 {
            self.window.place(self.platform, &mut self.growth)?;
        }
        let end = self.growth.blocks_max;
        let wanted = self.wanted();
        let mut first = self.window.top().block().index();
        let mut step = blocks;
        loop {
            for count in [wanted.max(blocks), blocks] {
                let row = BlockNo(first as u32).row(count);
                match self.map(row.clone(), node) {
                    Placed::Done => return Ok(row),
                    Placed::Refused if count == blocks => return Err(Short),
                    Placed::Refused | Placed::Occupied => {}
                }
            }
            // A mapping that is not the heap's lies in the way: leave a hole and try behind it, at the window's end at last.
            let last = end.checked_sub(blocks).ok_or(Short)?;
            if first >= last {
                return Err(Short);
            }
            first = (first + step).min(last);
            step = (step * 2).min((end / SKIP_PART).max(blocks));
        }
    }

    /// Pageblocks to grow by at a time.
    pub(super) fn wanted(&self) -> usize {
        let have = self.have.blocks() * PAGEBLOCK;
        let wanted = (have / 8).clamp(have.clamp(PAGEBLOCK, GROW_MIN), GROW_MAX);
        let is_much = wanted > GROW_MIN && self.platform.populates();
        (if is_much { GROW_MIN } else { wanted }) / PAGEBLOCK
    }

    /// Maps pageblocks and what describes them.
    fn map(&mut self, blocks: Range<BlockNo>, node: usize) -> Placed {
        let (window, count) = (self.window, BlockNo::each(blocks.clone()).len());
        if blocks.end.index() > self.growth.blocks_max {
            return Placed::Occupied;
        }
        let described = window.describe(self.platform, &mut self.growth, blocks.clone());
        if described != Placed::Done {
            return described;
        }
        let run = Run { addr: window.addr_of(blocks.start.first()), len: count * PAGEBLOCK };
        let placed = self.platform.map_at(run, node);
        if placed == Placed::Done {
            if self.advice != Advice::None || self.asks_for_huge() {
                self.advise(blocks.clone());
            }
            // Before they are below the top: then any thread may read their node, which never changes.
            for block in BlockNo::each(blocks.clone()) {
                // SAFETY: `describe` has mapped the array as far as they go; `self` is the turn to grow; the pageblocks are in no
                // zone before the caller adds them to one.
                unsafe { Pageblock::init(window.block(block), node as u16, self.advice_of(block)) };
            }
            if blocks.start == BlockNo(0) {
                // SAFETY: pageblock 0 was made just now and is in no zone, so no other reference to its state exists. What
                // lies before the window's first page is not handed out.
                unsafe { (*window.state(BlockNo(0))).free.remove(0..self.growth.skipped.0) };
            }
            self.growth.blocks += count;
            window.top.store(blocks.end.first().index(), Release);
        }
        placed
    }
}

impl Window {
    /// Where the fields that the fast path of a free reads are, bytes: base, top, class map.
    pub(crate) const FAST: [usize; 3] = [offset_of!(Self, base), offset_of!(Self, top), offset_of!(Self, class_map)];

    /// A window not yet placed.
    pub const fn new(reach: Reach) -> Self {
        Self {
            base: AtomicUsize::new(0),
            top: AtomicUsize::new(0),
            class_map: AtomicPtr::new(core::ptr::null_mut()),
            descs: AtomicPtr::new(core::ptr::null_mut()),
            blocks: AtomicPtr::new(core::ptr::null_mut()),
            growth: Lock::new(Growth {
                blocks_max: 0,
                skipped: Pages::ZERO,
                blocks: 0,
                unmapped: 0,
                first_unmapped: BlockNo(0),
                mapped: [0; 3],
            }),
            growable: AtomicUsize::new(0),
            granule: AtomicU32::new(0),
            reach,
            #[cfg(debug_assertions)]
            visits: AtomicUsize::new(0),
        }
    }

    /// A window over memory that is mapped already, described by pageblocks alone: it has no classes and does not grow. No less
    /// than a `granule` of it can be released.
    ///
    /// # Safety
    /// `run` is whole pageblocks, and `blocks` describes each of them, as long as the window is there.
    pub(crate) unsafe fn over(run: Run, blocks: *mut Pageblock, granule: Order) -> Self {
        let window = Self::new(Reach::Any);
        window.granule.store(granule.0, Relaxed);
        window.base.store(run.addr, Relaxed);
        window.blocks.store(blocks, Relaxed);
        window.top.store(Pages::in_bytes(run.len).0, Release);
        window
    }

    /// Aligned blocks of this order get memory, and lose it, as a whole: what the system below has its pages in.
    #[inline]
    pub(crate) fn granule(&self) -> Order {
        Order(self.granule.load(Relaxed))
    }

    /// The page that `addr` lies in, if the window has grown that far.
    #[inline]
    pub(crate) fn page_of(&self, addr: usize) -> Option<PageNo> {
        let page = addr.wrapping_sub(self.base.load(Relaxed)) >> PAGE_SHIFT;
        (page < self.top.load(Relaxed)).then_some(PageNo(page as u32))
    }

    /// Address of `page`.
    #[inline]
    pub fn addr_of(&self, page: PageNo) -> usize {
        self.base.load(Relaxed) + (page.index() << PAGE_SHIFT)
    }

    /// The class-map entry of `page`, which must be below the top.
    #[inline]
    pub(crate) fn class_of(&self, page: PageNo) -> Class {
        // SAFETY: callers pass a page that `page_of` found, or that a zone handed out. It is below `top`, as far as which the
        // class map is mapped for good. Entries are atomics to all.
        Class(unsafe { (*self.class_map.load(Relaxed).add(page.index())).load(Relaxed) })
    }

    /// The last page at or before `page`, among the `most` up to that, whose class-map entry is one that `is_head` says.
    pub(crate) fn head(&self, page: PageNo, most: Pages, is_head: impl Fn(Class) -> bool) -> Option<PageNo> {
        let first = page.saturating_sub(most - Pages(1));
        (first.0..=page.0).rev().map(PageNo).find(|&page| is_head(self.class_of(page)))
    }

    /// Sets the class-map entries of `pages`.
    pub(crate) fn set_class(&self, pages: Span, class: Class) {
        for page in pages.first.index()..pages.end().index() {
            // SAFETY: a zone handed the pages out to the caller, so they lie below `top`, where the class map is mapped.
            unsafe { (*self.class_map.load(Relaxed).add(page)).store(class.0, Release) }
        }
    }

    /// Clears the class-map entry of `page` if it heads a run marked `mark`, that is [`LARGE`] or its run class; whether it did.
    /// Of several threads that free a run at once, one gets `true`. The entry is left alone otherwise: by now it may be that of
    /// a slab.
    pub(crate) fn unmark_run(&self, page: PageNo, mark: Class) -> bool {
        // SAFETY: the caller has the page from `page_of`, so it is below `top`. There the class map stays mapped, and its entries
        // are reached as atomics alone.
        let entry = unsafe { &*self.class_map.load(Relaxed).add(page.index()) };
        entry.compare_exchange(mark.0, NOTHING.0, AcqRel, Relaxed).is_ok()
    }

    /// Word `i` of the descriptor of `page`, which must be below the top and in use; the words of the pages after it follow.
    ///
    /// Slabs' words change under the lock of their cache, a run's first word by the run's owner. A wrong pointer makes a thread
    /// read words of a page that has since become another's. It does so under no lock that the writer has: so the words are
    /// atomic. Such a reader gets an old word or a new one, each of which makes it call the pointer invalid. A right pointer
    /// leads to words that were written before the program got that pointer.
    #[inline]
    pub(crate) fn word(&self, page: PageNo, i: usize) -> &AtomicU32 {
        // SAFETY: descriptors are mapped for all pages that were ever handed out, and stay mapped: a release of their memory
        // makes them zero, no more.
        unsafe { &*self.descs.load(Relaxed).add(page.index() * DESC_WORDS + i) }
    }

    /// Where pageblock `block` is described.
    #[inline]
    pub(super) fn block(&self, block: BlockNo) -> *mut Pageblock {
        self.blocks.load(Acquire).wrapping_add(block.index())
    }

    /// Where the state of pageblock `block` is. Dereferenced under the lock of its zone alone
    /// ([`crate::pages::zone::FreeAreas`] does that), or while no other thread uses the heap.
    #[inline]
    pub fn state(&self, block: BlockNo) -> *mut State {
        #[cfg(debug_assertions)]
        self.visits.fetch_add(1, Relaxed);
        Pageblock::state(self.block(block))
    }

    /// The node of pageblock `block`, below the top. Read without a lock: it is written before the top covers the pageblock,
    /// and never again.
    #[inline]
    pub(crate) fn node_of_block(&self, block: BlockNo) -> u16 {
        // SAFETY: the caller names a pageblock below the top, and the array is mapped for good as far as that.
        unsafe { Pageblock::node(self.block(block)) }
    }

    /// Whether `block`, below the top, was unmapped. Under the turn to grow.
    pub(in crate::pages) fn is_unmapped(&self, block: BlockNo) -> bool {
        // SAFETY: the caller names a pageblock below the top, and the array is mapped for good as far as that.
        unsafe { Pageblock::is_unmapped(self.block(block)) }
    }

    /// The node that `page`, below the top, lies on: that of its pageblock, which never changes.
    #[inline]
    pub(crate) fn node_of(&self, page: PageNo) -> usize {
        self.node_of_block(page.block()).into()
    }

    /// Pages that it may still grow by, as far as is known: 0 before its first growth and after one that was refused.
    pub(crate) fn growable(&self) -> Pages {
        Pages(self.growable.load(Relaxed))
    }

    /// The end of the window's mapped part: the page behind its last.
    pub fn top(&self) -> PageNo {
        PageNo(self.top.load(Acquire) as u32)
    }

    /// Pages of the window's mapped part.
    pub(crate) fn pages(&self) -> Pages {
        self.top() - PageNo(0)
    }

    /// Pageblocks of the window's mapped part.
    pub(crate) fn blocks(&self) -> Range<BlockNo> {
        BlockNo(0)..self.top().block()
    }

    /// The pageblocks `blocks`, below the top, in rows of one node; and that node.
    pub(crate) fn rows(&self, mut blocks: Range<BlockNo>) -> impl Iterator<Item = (usize, Range<BlockNo>)> {
        core::iter::from_fn(move || {
            let first = blocks.start;
            let node = BlockNo::each(blocks.clone()).next().map(|block| self.node_of_block(block))?;
            let end = BlockNo::each(blocks.clone()).find(|&block| self.node_of_block(block) != node);
            blocks.start = end.unwrap_or(blocks.end);
            Some((node.into(), first..blocks.start))
        })
    }

    /// The turn to grow. Threads that run short together wait here for the first of them. They are to look again before they grow
    /// the window too: the pages are in a zone before the turn ends.
    pub fn growing<'a, P: Platform>(&'a self, platform: &'a P) -> Growing<'a, P> {
        Growing {
            window: self,
            platform,
            growth: self.growth.lock(platform),
            have: Pages::ZERO,
            advice: Advice::None,
            probes: false,
        }
    }

    fn place<P: Platform>(&self, platform: &P, growth: &mut Growth) -> Result<(), Short> {
        let window = platform.window(WINDOW, Order(REPORT_ORDER + 1), self.reach)?;
        let base = window.addr & !(2 * PAGEBLOCK - 1);
        let skipped = Pages::in_bytes(window.addr - base);
        if skipped >= Pages::BLOCK {
            return Err(Short);
        }
        let blocks = (Pages::in_bytes(window.len) + skipped).0 / PAGEBLOCK_PAGES;
        let pages = blocks * PAGEBLOCK_PAGES;
        let (unit, granule) = (platform.release_unit(), Order::of_align(platform.release_unit()));
        let sizes = [pages, pages * DESC_WORDS * 4, blocks * size_of::<Pageblock>()].map(|s| s.next_multiple_of(unit));
        // A guard the size of a pageblock between the arrays keeps an overrun in one out of the next.
        let total = sizes.iter().sum::<usize>() + 4 * PAGEBLOCK;
        let meta = platform.window(total, granule, Reach::Apart)?;
        if meta.len < total {
            return Err(Short);
        }
        let at0 = meta.addr + PAGEBLOCK;
        let at1 = at0 + sizes[0] + PAGEBLOCK;
        let at2 = at1 + sizes[1] + PAGEBLOCK;
        self.class_map.store(at0 as *mut AtomicU8, Relaxed);
        self.descs.store(at1 as *mut AtomicU32, Relaxed);
        self.blocks.store(at2 as *mut Pageblock, Release);
        self.granule.store(granule.0, Relaxed);
        self.base.store(base, Relaxed);
        (growth.blocks_max, growth.skipped) = (blocks, skipped);
        Ok(())
    }

    /// Maps the three arrays as far as the pageblocks `blocks` need. Occupied: others may be described.
    ///
    /// A foreign mapping may be in the way of the descriptors, nearly all of the arrays. It is left alone, as one in the way of
    /// the heap is. The memory that would have been described becomes a hole, as descriptors are looked at for pages in use
    /// alone. The others are looked at as far as the top is. Behind a foreign mapping there they end, and the heap with them.
    fn describe<P: Platform>(&self, platform: &P, growth: &mut Growth, blocks: Range<BlockNo>) -> Placed {
        let unit = platform.release_unit();
        for (i, (base, bytes)) in self.arrays().into_iter().enumerate() {
            let (have, need) = (growth.mapped[i], (blocks.end.index() * bytes).next_multiple_of(unit));
            if need <= have {
                continue;
            }
            let map_from = |from| platform.map_at(Run { addr: base + from, len: need - from }, 0);
            let mut placed = map_from(have);
            let from = (blocks.start.index() * bytes) & !(unit - 1);
            if i == DESCS && placed == Placed::Occupied && from > have {
                placed = map_from(from);
                if placed == Placed::Done {
                    // What is not described is never used. The class map and the pageblocks are mapped by now.
                    self.top.store(blocks.start.first().index(), Release);
                }
            }
            match placed {
                Placed::Done => growth.mapped[i] = need,
                Placed::Occupied if i != DESCS => return Placed::Refused,
                Placed::Occupied | Placed::Refused => return placed,
            }
        }
        Placed::Done
    }

    /// What of the class map and of the descriptors describes nothing but `blocks`, and can be released.
    pub(crate) fn description(&self, blocks: Range<BlockNo>) -> [Run; 2] {
        let (first, end) = (blocks.start.index(), blocks.end.index());
        let ([map, _, descs], unit) = (self.arrays(), PAGE << self.granule().0);
        [map, descs].map(|(base, bytes)| {
            let (from, to) = ((first * bytes).next_multiple_of(unit), (end * bytes) & !(unit - 1));
            Run { addr: base + from, len: to.saturating_sub(from) }
        })
    }

    /// Where the class map, the pageblocks and the descriptors begin, and the bytes that each has for a pageblock.
    pub(super) fn arrays(&self) -> [(usize, usize); 3] {
        [
            (self.class_map.load(Relaxed) as usize, PAGEBLOCK_PAGES),
            (self.blocks.load(Relaxed) as usize, size_of::<Pageblock>()),
            (self.descs.load(Relaxed) as usize, PAGEBLOCK_PAGES * DESC_WORDS * 4),
        ]
    }

    /// Passes the growth lock to the turn of a rank.
    pub(crate) fn freeze<P: Platform>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.growth);
    }
}

// What the first word of a run's descriptor says: how many pages the run has, and whose it is.

/// In a run's first word, beside its length: its pages are a page pool's.
const POOLED: u32 = 1 << 31;
/// Likewise: the run lies below 4 GiB only because NORMAL was short. Resized, it may move to any zone.
const FELL_BACK: u32 = 1 << 30;
const RUN_FLAGS: u32 = POOLED | FELL_BACK;

impl Window {
    /// How many pages the run that `page` heads has.
    #[inline]
    pub(crate) fn run_pages(&self, page: PageNo) -> Pages {
        Pages((self.word(page, 0).load(Relaxed) & !RUN_FLAGS) as usize)
    }

    /// Whether the run that `page` heads is a page pool's.
    #[inline]
    pub(crate) fn is_pooled(&self, page: PageNo) -> bool {
        self.word(page, 0).load(Relaxed) & POOLED != 0
    }

    /// [`Window::set_run_pages`] of a run that is a page pool's.
    pub(crate) fn set_pooled(&self, page: PageNo, pages: Pages) {
        self.word(page, 0).store(pages.0 as u32 | POOLED, Relaxed);
    }

    /// Whether the run that `page` heads fell back to the zone that it lies in.
    pub(crate) fn is_fallen_back(&self, page: PageNo) -> bool {
        self.word(page, 0).load(Relaxed) & FELL_BACK != 0
    }

    /// [`Window::set_run_pages`] of a run that fell back to a lower zone.
    pub(crate) fn set_fallen_back(&self, page: PageNo, pages: Pages) {
        self.word(page, 0).store(pages.0 as u32 | FELL_BACK, Relaxed);
    }

    /// Notes how many pages the run that `page` heads has. By the run's owner, before its class-map entry is
    /// [`LARGE`] or its run class.
    pub(crate) fn set_run_pages(&self, page: PageNo, pages: Pages) {
        self.word(page, 0).store(pages.0 as u32, Relaxed);
    }

    /// Notes the new length of a run in place. By the run's owner, which keeps others from freeing it.
    pub(crate) fn resize_run(&self, page: PageNo, pages: Pages) {
        let flags = self.word(page, 0).load(Relaxed) & RUN_FLAGS;
        self.word(page, 0).store(pages.0 as u32 | flags, Relaxed);
    }
}
