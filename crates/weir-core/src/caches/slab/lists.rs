//! The slabs of one cache that have free objects, in lists by how full they are. Allocations take from the fullest, so
//! that the others become empty and go back to the zone.

use crate::base::backing::Backing;
use crate::base::units::{PAGE, PageNo, Pages};
use crate::caches::geometry::{Geometry, NUMBER_WORD};
use crate::caches::slab::{Empty, Isolated, Merged, Slab, is_slab_page};
use crate::pages::window::{NOTHING, Window};
use crate::pages::zone::ReportOutcome;
use crate::platform::lock::Lock;
use crate::platform::rank;
use crate::policy::refault::{Recent, Refault};
use crate::reclaim::Ended;

/// Steps of fullness told apart among partial slabs; step 0 is the fullest.
pub(super) const FILLS: usize = 4;
/// Results of the last look at a slab's free pages, in the order in which allocation prefers slabs of one fullness.
/// Slabs whose pages are there come first. There is a list for each step of fullness and each of these. So a report
/// finds what it has not seen yet without a walk past what it has.
///
/// Free pages were held back for the sake of the huge page behind them. A pass that comes back to them may hold some
/// back again: it moves them from one of these two to the other.
const HELD: [u32; 2] = [0, 1];
/// Objects came back since.
pub(super) const NEW: u32 = 2;
/// Nothing was left to report.
pub(super) const DONE: u32 = 3;
pub(super) const LOOKS: usize = 4;
/// The list of the partial slabs that have merged pages, and nothing to report. An object of one costs the kernel a
/// copy of a page. So they are taken from after all others that have objects in use.
pub(super) const MERGED: u32 = (FILLS * LOOKS) as u32;
/// The list of the slabs with no object in use: taken from last, and given back to the zone from here.
pub(super) const EMPTY: u32 = MERGED + 1;
/// The list of a slab with no free object: none.
pub(super) const UNLISTED: u32 = EMPTY + 1;
/// Slabs looked at for a report under one hold of the lock.
const LOOKS_AT_A_TIME: usize = 64;

/// Objects that come back are little where the free ones that have memory are so many times as many.
const LITTLE: usize = 8;

/// A cache's slabs behind their lock.
pub type Slabs = Lock<SlabLists, { rank::SLABS }>;

/// The slabs of one cache that have free objects.
pub struct SlabLists {
    pub(super) heads: [PageNo; EMPTY as usize + 1],
    /// Which of [`HELD`] takes what is kept now; what a pass comes back to is on the other.
    held: usize,
    /// Slabs there are.
    pub slabs: usize,
    /// Free objects in them.
    pub free: usize,
    /// Slabs with no object in use.
    pub empty: usize,
    /// Pages of its slabs that are reported.
    pub(crate) reported: usize,
    /// Objects isolated for a report: neither free nor in use.
    pub(crate) isolated: usize,
    /// Windows that have ended since objects came back, if some did since the last look at the slabs' pages.
    changed: Option<u32>,
    /// Objects that came back since the last window's end.
    pub(super) came_back: usize,
    /// Pages of its slabs that are merged.
    pub(crate) merged: Merged,
    /// Pages of its slabs that were reported lately.
    pub(super) recent: Recent,
    /// Those of them that were taken, and pages reported before them that were, since [`SlabLists::take_resident`].
    pub(super) again: Refault,
    pub(super) fresh: Pages,
    /// The slab that objects move to ([`super::sparse`]), one of these; it may have become full. `NONE` before the first.
    pub(super) target: PageNo,
}

/// Which slabs a pass over free pages looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A calm window ends: those to which objects came back, but to none of the cache's in so many windows before.
    Changed(Ended),
    /// Slabs whose free pages were kept for the sake of a huge page.
    Held,
    /// All that have some to give.
    All,
}

impl SlabLists {
    /// No slabs.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self {
            heads: [PageNo::NONE; EMPTY as usize + 1],
            held: 0,
            slabs: 0,
            free: 0,
            empty: 0,
            reported: 0,
            isolated: 0,
            changed: None,
            came_back: 0,
            merged: Merged::NONE,
            recent: Recent::NONE,
            again: Refault::NONE,
            fresh: Pages::ZERO,
            target: PageNo::NONE,
        }
    }

    /// The reported pages that were taken since the last call: those reported longer ago, and those reported lately.
    pub(crate) fn take_resident(&mut self) -> (Pages, Refault) {
        (core::mem::take(&mut self.fresh), core::mem::replace(&mut self.again, Refault::NONE))
    }

    /// Adds the slab at `page`, fresh from the zone.
    pub fn add(&mut self, window: &Window, g: &Geometry, page: PageNo) {
        let slab = Slab { window, page };
        let objects = usize::from(g.objects);
        slab.set(3, 0);
        for word in 0..objects.div_ceil(32) {
            slab.set(g.header_words() + word, u32::MAX >> (32 - (objects - word * 32).min(32)));
        }
        if g.is_numbered() {
            slab.set(NUMBER_WORD, g.number);
        }
        if g.may_merge() {
            slab.set(g.merged_word(), 0);
        }
        slab.set_state(0, g.class(), UNLISTED, DONE);
        self.slabs += 1;
        self.free += objects;
        self.relist(slab, g, objects as u32, DONE);
    }

    /// Free objects that have memory of their own: at least so many are not on pages that are reported, or merged.
    pub(crate) fn free_with_memory(&self, g: &Geometry) -> usize {
        let without = (self.reported + self.merged.pages) * PAGE;
        self.free.saturating_sub(without.div_ceil(g.size as usize))
    }

    /// Whether free objects may be on pages without memory of their own.
    pub(crate) fn has_gaps(&self) -> bool {
        self.reported + self.merged.pages > 0
    }

    /// Whether a slab with no object in use can go, so that `keep` free objects are left that have memory.
    pub(crate) fn can_spare(&self, g: &Geometry, keep: usize) -> bool {
        self.empty > 0 && (keep == 0 || self.free_with_memory(g) >= usize::from(g.objects) + keep)
    }

    /// Takes a slab with no object in use off its list, for the zone, if it can be spared.
    pub fn take_empty(&mut self, window: &Window, g: &Geometry, keep: usize) -> Option<Empty> {
        if !self.can_spare(g, keep) {
            return None;
        }
        let objects = usize::from(g.objects);
        let slab = Slab { window, page: self.heads[EMPTY as usize] };
        self.leave(slab, g, u32::MAX);
        self.unlist(slab);
        self.slabs -= 1;
        self.free -= objects;
        self.reported -= slab.reported().count_ones() as usize;
        // Of no cache: a second free of an object of it is found, until its pages are used again.
        slab.set_state(0, NOTHING, UNLISTED, DONE);
        // Its page becomes another's.
        if self.target == slab.page {
            self.target = PageNo::NONE;
        }
        Some(Empty { page: slab.page, reported: slab.reported() })
    }

    /// Whether the object at `addr` is allocated, as far as its slab's bitmap says.
    pub fn is_object(&self, window: &Window, g: &Geometry, addr: usize) -> bool {
        let Some(page) = window.page_of(addr) else { return false };
        let slab = Slab::of(window, g, page);
        let (index, rest) = g.object_at(addr - slab.addr());
        rest == 0 && index < usize::from(g.objects) && slab.get(g.header_words() + index / 32) >> (index % 32) & 1 == 0
    }

    /// A window ends: in how many have objects not come back, this one included.
    ///
    /// What came back in a quiet window, reclaim took from where it was idle: it was used before that. Where it is little, as after
    /// one use of a class between two long rests, the rest stays as old as it was.
    fn grow_old(&mut self, g: &Geometry, quiet: bool) -> Option<u32> {
        let came_back = core::mem::take(&mut self.came_back);
        let is_little = quiet && came_back * LITTLE <= self.free_with_memory(g);
        match self.changed {
            before if came_back == 0 => before.map(|windows| windows + 1),
            Some(windows) if is_little => Some(windows + 1),
            _ => Some(if quiet { 2 } else { 1 }),
        }
    }

    /// Begins a pass over pages inside slabs, if it has any to look at. O(1).
    pub(crate) fn due(&mut self, g: &Geometry, pass: Pass) -> bool {
        match pass {
            Pass::Changed(Ended { quiet, windows, .. }) => {
                let ended = self.grow_old(g, quiet);
                let is_due = ended.is_some_and(|ended| ended as usize > windows);
                self.changed = if is_due { None } else { ended };
                return is_due;
            }
            Pass::All => (self.changed, self.came_back) = (None, 0),
            Pass::Held => {}
        }
        if self.is_clear(HELD[self.held ^ 1]) {
            self.held ^= 1;
        }
        !(self.is_clear(NEW) && self.is_clear(HELD[0]) && self.is_clear(HELD[1]))
    }

    /// Goes on with a pass over the slabs whose free pages were kept. Calls `f` with the first page of each and how
    /// many of its pages are free and not reported, and keeps them. Returns whether there is more to look at.
    pub(crate) fn walk_held(&mut self, window: &Window, g: &Geometry, mut f: impl FnMut(PageNo, Pages)) -> bool {
        let look = HELD[self.held ^ 1] as usize;
        for _ in 0..LOOKS_AT_A_TIME {
            let heads = self.heads[look..MERGED as usize].iter().step_by(LOOKS);
            let Some(&page) = heads.into_iter().find(|&&head| head != PageNo::NONE) else { return false };
            let slab = Slab { window, page };
            f(page, Pages((slab.free_pages(g) & !slab.reported()).count_ones() as usize));
            self.relist_unchanged(slab, g, slab.free(), HELD[self.held]);
        }
        true
    }

    /// The kernel put memory behind the reported pages of the slab that `page` is of, if it is one of these. They wait
    /// to be reported again, by a pass over what was kept. Returns how many pages those are.
    pub(crate) fn refilled(&mut self, window: &Window, g: &Geometry, page: PageNo) -> Pages {
        let slab = Slab::of(window, g, page);
        if !is_slab_page(window, g, page) || !slab.is_of(g) {
            return Pages::ZERO;
        }
        let pages = slab.reported().count_ones() as usize;
        if pages > 0 {
            slab.set(3, 0);
            self.reported -= pages;
            self.relist_unchanged(slab, g, slab.free(), HELD[self.held]);
        }
        Pages(pages)
    }

    /// Whether no slab is on the lists of `look`.
    fn is_clear(&self, look: u32) -> bool {
        self.heads[look as usize..MERGED as usize].iter().step_by(LOOKS).all(|&head| head == PageNo::NONE)
    }

    /// Isolates free backed pages inside partial slabs that have some to give, up to `out.len()` slabs: their free
    /// objects count as taken until [`SlabLists::put_back`]. `backing(page)` says what is behind a slab; where that is
    /// more than `split`, its pages are kept. Returns how many slabs, and whether there is more to look at.
    ///
    /// At most `LOOKS_AT_A_TIME` slabs are looked at, and each leaves its list: a pass comes to an end.
    pub(crate) fn isolate(
        &mut self,
        window: &Window,
        g: &Geometry,
        out: &mut [Isolated],
        (split, pass): (Backing, Pass),
        mut backing: impl FnMut(PageNo) -> Backing,
    ) -> (usize, bool) {
        let looks: &[u32] = match split {
            _ if pass == Pass::Held => &[HELD[self.held ^ 1]],
            Backing::Small => &[NEW],
            Backing::SparseHuge => &[NEW, HELD[self.held ^ 1]],
            Backing::Huge => &[NEW, HELD[0], HELD[1]],
        };
        let (mut n, mut looked) = (0, 0);
        for (fill, look) in (0..FILLS).flat_map(|fill| looks.iter().map(move |&look| (fill, look))) {
            loop {
                let page = self.heads[fill * LOOKS + look as usize];
                if page == PageNo::NONE {
                    break;
                }
                if n == out.len() || looked == LOOKS_AT_A_TIME {
                    return (n, true);
                }
                looked += 1;
                let slab = Slab { window, page };
                if backing(page) as u8 > split as u8 {
                    self.relist_unchanged(slab, g, slab.free(), HELD[self.held]);
                } else if let Some(isolated) = self.isolate_in(slab, g) {
                    out[n] = isolated;
                    n += 1;
                }
            }
        }
        (n, false)
    }

    /// [`SlabLists::isolate`] in one slab, if it has pages to give.
    fn isolate_in(&mut self, slab: Slab<'_>, g: &Geometry) -> Option<Isolated> {
        let pages = slab.whole(slab.free_pages(g) & !slab.reported());
        let mut taken = 0;
        if pages != 0 {
            slab.for_objects_in(g, pages, |word, mask| {
                // An object that reaches into a page in use is free itself. It stays so only if it is isolated whole.
                // So no other page's objects are lost sight of.
                taken += (slab.get(word) & mask).count_ones();
                slab.set(word, slab.get(word) & !mask);
            });
            self.free -= taken as usize;
            self.isolated += taken as usize;
            self.leave(slab, g, pages);
        }
        self.relist_unchanged(slab, g, slab.free() - taken, DONE);
        (pages != 0).then_some(Isolated { page: slab.page, pages })
    }

    /// Returns isolated objects to their slab, those of their pages that are in `gone` reported. The slab may be empty
    /// then: the objects that were in use may have come back meanwhile.
    pub(crate) fn put_back(
        &mut self,
        window: &Window,
        g: &Geometry,
        isolated: Isolated,
        gone: u32,
        how: ReportOutcome,
    ) {
        let slab = Slab { window, page: isolated.page };
        let mut freed = 0;
        slab.for_objects_in(g, isolated.pages, |word, mask| {
            freed += (!slab.get(word) & mask).count_ones();
            slab.set(word, slab.get(word) | mask);
        });
        self.isolated -= freed as usize;
        self.reported += (gone & !slab.reported()).count_ones() as usize;
        slab.set(3, slab.reported() | gone);
        if gone != 0 {
            self.recent.reported(Pages(gone.count_ones() as usize), how.at, how.calm, how.horizon);
        }
        self.free += freed as usize;
        self.relist_unchanged(slab, g, slab.free() + freed, DONE);
    }

    fn unlist(&mut self, slab: Slab<'_>) {
        let list = slab.list();
        if list == UNLISTED {
            return;
        }
        self.empty -= usize::from(list == EMPTY);
        let (next, prev) = (PageNo(slab.get(0)), PageNo(slab.get(1)));
        if next != PageNo::NONE {
            Slab { page: next, ..slab }.set(1, prev.0);
        }
        if prev != PageNo::NONE {
            Slab { page: prev, ..slab }.set(0, next.0);
        } else {
            self.heads[list as usize] = next;
        }
    }

    /// [`SlabLists::relist`] where no object comes from the program or goes to it.
    pub(super) fn relist_unchanged(&mut self, slab: Slab<'_>, g: &Geometry, free: u32, look: u32) {
        let is_asked = slab.is_asked();
        self.relist(slab, g, free, look);
        if is_asked {
            slab.set_asked();
        }
    }

    /// Records the count of free objects and moves the slab to the list that it belongs on (the empty ones' too).
    pub(super) fn relist(&mut self, slab: Slab<'_>, g: &Geometry, free: u32, look: u32) {
        let list = match free {
            0 => UNLISTED,
            _ if free == u32::from(g.objects) => EMPTY,
            _ if look == DONE && self.has_merged(slab, g) => MERGED,
            _ => list_of(g, free, look),
        };
        if list == slab.list() {
            return slab.set_state(free, g.class(), list, look);
        }
        self.unlist(slab);
        slab.set_state(free, g.class(), list, look);
        self.empty += usize::from(list == EMPTY);
        if list != UNLISTED {
            let head = core::mem::replace(&mut self.heads[list as usize], slab.page);
            slab.set(0, head.0);
            slab.set(1, PageNo::NONE.0);
            if head != PageNo::NONE {
                Slab { page: head, ..slab }.set(1, slab.page.0);
            }
        }
    }
}

/// The list of a partial slab with `free` objects.
pub(super) fn list_of(g: &Geometry, free: u32, look: u32) -> u32 {
    let (part, whole) = (free * FILLS as u32, u32::from(g.objects) + 1);
    // `part / whole`, which is below `FILLS`, without a division.
    let fill: u32 = (1..FILLS as u32).map(|step| u32::from(part >= step * whole)).sum();
    fill * LOOKS as u32 + look
}
