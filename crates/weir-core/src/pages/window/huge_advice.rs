//! Huge pages behind the heap where the system gives them to those who ask (`madvise`): the setting `huge_heap`.
//!
//! A part of a window that is new asks as it is mapped. Parts that are mapped already ask, or ask no more, when the
//! setting changes, in the window's turn to grow. The value is read in that turn. So the last of several changes at
//! once holds in the end, for the windows and for what is counted.

use crate::base::run::Run;
use crate::base::units::{BlockNo, PAGEBLOCK_PAGES, Pages};
use crate::pages::heap_pages::HeapPages;
use crate::pages::node::ZoneKind;
use crate::pages::window::Growing;
use crate::platform::Platform;

impl<P: Platform> Growing<'_, P> {
    /// Whether memory of the window is to ask for huge pages.
    pub(super) fn asks_for_huge(&self) -> bool {
        self.platform.huge_on_advice() && self.platform.tunables().huge_heap.get() != 0
    }
}

impl<P: Platform> HeapPages<P> {
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
        Some(Run { addr: window.addr_of(block.page(first)), len: Pages(PAGEBLOCK_PAGES - first).bytes() })
    }
}
