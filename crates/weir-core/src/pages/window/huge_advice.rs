//! Huge pages behind the heap where the system gives them to those who ask (`madvise`): the setting `huge_heap`.
//!
//! A part of a window that is new asks as it is mapped. Parts that are mapped already ask, or ask no more, when the
//! setting changes, in the window's turn to grow. The value is read in that turn. So the last of several changes at
//! once holds in the end, for the windows and for what is counted.

use crate::base::level::Level;
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{BlockNo, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, Pages, Span};
use crate::pages::heap_pages::HeapPages;
use crate::pages::node::ZoneKind;
use crate::pages::pageblock::Advice;
use crate::pages::report::slices;
use crate::pages::window::Growing;
use crate::pages::zone::sparse::Fill;
use crate::platform::Platform;
use crate::policy::huge_page_advice::{LEARNS_FROM, PAUSE, grows_dense, is_probe, owed};
use crate::telemetry::trace::Place;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// Pages of a heap (8 GiB) whose pageblocks the kernel may have as a mapping each: 4,096 of the 65,530 that a process may have.
const FEW: Pages = Pages(4096 * PAGEBLOCK_PAGES);

impl<P: Platform> Growing<'_, P> {
    /// Whether memory of the window is to ask for huge pages.
    pub(super) fn asks_for_huge(&self) -> bool {
        self.platform.huge_on_advice() && self.platform.tunables().huge_heap.get() != 0
    }

    /// What is noted of a pageblock that is mapped now.
    pub(super) fn advice_of(&self, block: BlockNo) -> Advice {
        if self.probes && is_probe(block) { Advice::None } else { self.advice }
    }

    /// Asks for huge pages behind those of `blocks` that are to have them.
    pub(super) fn advise(&self, blocks: Range<BlockNo>) {
        let ask = |blocks: Range<BlockNo>| {
            let len = BlockNo::each(blocks.clone()).len() * PAGEBLOCK;
            self.platform.advise_huge(Run { addr: self.window.addr_of(blocks.start.first()), len });
        };
        if self.asks_for_huge() {
            return ask(blocks);
        }
        let mut row = blocks.start..blocks.start;
        for block in BlockNo::each(blocks) {
            if self.advice_of(block) == Advice::None {
                if !row.is_empty() {
                    ask(row);
                }
                row = block.next()..block.next();
            } else {
                row.end = block.next();
            }
        }
        if !row.is_empty() {
            ask(row);
        }
    }
}

// A heap that grows dense, under the setting `huge_blocks`. Its pages count as single pages, and its memory goes back as
// that of any other heap: so nothing of it stays for a huge page's sake. The kernel then still has the rest of a split huge
// page as one, all of it charged: it is cooled at the end of the window ([`Advice`]).

impl<P: Platform> HeapPages<P> {
    /// Whether huge pages may be asked for behind parts of the heap. Not under pressure or near a limit, when a fault should take
    /// no more than it needs, nor under a hard limit, which counts pages.
    pub(crate) fn may_ask_for_huge(&self) -> bool {
        let p = &self.platform;
        p.tunables().huge_blocks.get() != 0
            && p.tunables().hard_limit.get() == 0
            && p.stats().pressure_level.load(Relaxed) == Level::None as u64
            && self.events.has_room()
    }

    /// Whether what node `node` grows by next is to ask for huge pages, and whether probes among it are not. It has so many `pages`,
    /// and its last row ends at `end`.
    #[cold]
    pub(in crate::pages) fn advice(&self, node: usize, pages: Pages, end: BlockNo) -> (Advice, bool) {
        let p = &self.platform;
        // What is unmapped shows nothing.
        let is_own = |block| usize::from(self.normal.node_of_block(block)) == node && !self.normal.is_unmapped(block);
        let is_asked = self.may_ask_for_huge() && p.huge_on_advice() && !p.huge_on_touch();
        let is_time = p.now() >= Time(self.huge_asks_from.load(Relaxed)) && pages.blocks() >= LEARNS_FROM as usize;
        let mut has_runs = false;
        let filled = |block| {
            let fill = self.fill(block);
            has_runs |= fill == Fill::Unknown;
            self.shows_filled(block, fill)
        };
        if is_asked && is_time && grows_dense(end, is_own, filled) {
            p.note_huge();
            (Advice::Asks, has_runs)
        } else {
            (Advice::None, false)
        }
    }

    /// Touches a page that was handed out, the first of a pageblock that asks for a huge page, in the program's place. Where
    /// the system is short of huge pages it compacts memory in this fault, and a hypervisor may have to find memory for it.
    /// That can take milliseconds a huge page. Where too many do, the heap asks no more for a time.
    ///
    /// Of memory that was asked for in better times, and went back since, a fault near a limit would take 2 MiB, of which only
    /// the pages handed out are counted: that asks no more, before it is touched. Each such pageblock may be a mapping more to
    /// the kernel, so a heap of more than [`FEW`] goes on to ask; it has room for some huge pages that are not counted yet.
    #[cold]
    pub(in crate::pages) fn touch_asking(&self, kind: ZoneKind, run: Span) {
        let (window, page) = (self.window(kind), run.first);
        if !self.may_ask_for_huge() && self.normal.pages() <= FEW {
            let row = self.zone_of(kind, page).lock(&self.platform).asks_not(window, run);
            if !row.is_empty() {
                let len = BlockNo::each(row.clone()).len() * PAGEBLOCK;
                self.platform.advise_small(Run { addr: window.addr_of(row.start.first()), len });
            }
            return;
        }
        let p = &self.platform;
        let (begin, cpu_begin) = (p.now(), p.cpu_time());
        let is_done = p.populate(Run { addr: self.window(kind).addr_of(page), len: PAGE });
        // A thread that another one took the CPU from did not work meanwhile.
        let took = p.now().since(begin).min(p.cpu_time().saturating_sub(cpu_begin));
        // Threads that are here at once may lose each other's sum: the next slow touch then counts for it.
        let (owed, is_too_much) = owed(Nanos(self.huge_owed.load(Relaxed)), took);
        self.huge_owed.store(owed.0, Relaxed);
        if is_done && !is_too_much {
            return;
        }
        let until = if is_done { (p.now() + took * PAUSE).0 } else { u64::MAX };
        self.huge_asks_from.store(until, Relaxed);
        for site in self.sites().filter(|site| site.place == Place::Normal) {
            for mut blocks in slices(site.window) {
                while !blocks.is_empty() {
                    let row = site.zone.lock(p).ask_no_more(site.window, blocks.clone());
                    blocks.start = row.end;
                    if !row.is_empty() {
                        let len = BlockNo::each(row.clone()).len() * PAGEBLOCK;
                        p.advise_small(Run { addr: site.window.addr_of(row.start.first()), len });
                    }
                }
            }
        }
    }

    fn fill(&self, block: BlockNo) -> Fill {
        self.zone_of(ZoneKind::Normal, block.first()).lock(&self.platform).fill(&self.normal, block)
    }

    /// How many pages of a pageblock of NORMAL the program has filled, if that shows.
    fn shows_filled(&self, block: BlockNo, fill: Fill) -> Option<Pages> {
        let run = Run { addr: self.normal.addr_of(block.first()), len: PAGEBLOCK };
        let resident = || Pages(self.platform.resident(run).unwrap_or(0));
        match fill {
            Fill::Pages(pages) => Some(pages),
            Fill::IfResident(used) => Some(used.min(resident())),
            Fill::Unknown => None,
        }
    }

    /// Makes all of the heap ask for huge pages, or ask no more, as the setting says.
    ///
    /// Memory that comes as a huge page and counts as single pages is found later, as what khugepaged made is. Memory
    /// that counts as a huge page and is none would stay a wrong figure. So huge pages count from after the last advice
    /// to ask for them, and up to before the first advice to ask no more.
    pub(crate) fn follow_huge_heap(&self) {
        if !self.platform.huge_on_advice() {
            return;
        }
        self.count_huge(|asks| !asks);
        for kind in ZoneKind::ALL {
            self.advise_window(kind);
        }
        self.count_huge(|asks| asks);
    }

    /// Counts huge pages as the setting says, if that is the case for it.
    fn count_huge(&self, is_case: impl FnOnce(bool) -> bool) {
        let growing = self.normal.growing(&self.platform);
        let asks = growing.asks_for_huge();
        if is_case(asks) {
            self.platform.set_huge_on_touch(asks);
        }
    }

    /// Advises the window's mapped part.
    fn advise_window(&self, kind: ZoneKind) {
        self.each_row(kind, |growing, row| {
            if growing.asks_for_huge() { self.platform.advise_huge(row) } else { self.platform.advise_small(row) }
        });
    }

    /// Calls `f` with the mapped part of the heap's window of small objects, row by row, in its turn to grow.
    pub(crate) fn each_mapped_row(&self, mut f: impl FnMut(Run)) {
        self.each_row(ZoneKind::Normal, |_, row| f(row));
    }

    /// Calls `f` with a window's mapped part, row by row: what lies in its holes is not the heap's.
    fn each_row(&self, kind: ZoneKind, mut f: impl FnMut(&Growing<'_, P>, Run)) {
        let growing = self.window(kind).growing(&self.platform);
        let mut advise = |row: Run| f(&growing, row);
        let mut row: Option<Run> = None;
        for block in BlockNo::each(BlockNo(0)..growing.window.top().block()) {
            let Some(run) = self.mapped_of(kind, block) else { continue };
            row = match row {
                Some(row) if row.addr + row.len == run.addr => Some(Run { len: row.len + run.len, ..row }),
                before => {
                    before.into_iter().for_each(&mut advise);
                    Some(run)
                }
            };
        }
        row.into_iter().for_each(advise);
    }

    /// The mapped part of a pageblock: the first one of a window may lack pages, and a hole has none.
    fn mapped_of(&self, kind: ZoneKind, block: BlockNo) -> Option<Run> {
        let (window, page) = (self.window(kind), block.first());
        let ours = self.zone_of(kind, page).lock(&self.platform).page_states(window, block)?.ours;
        let run = ours.runs().next()?;
        let first = if block == BlockNo(0) { run.start } else { 0 };
        Some(Run { addr: window.addr_of(block.page(first)), len: Pages(PAGEBLOCK_PAGES - first).length() })
    }
}
