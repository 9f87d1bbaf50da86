//! Run classes: runs of pages that CPUs' buckets hold, in front of the zones.
//!
//! A run of a class ([`crate::base::run_class`]) is a run like any other, with its length in its first page's descriptor. But its
//! class-map entry is the number of its class in place of [`LARGE`]. So the fast path of a free pushes it on its CPU's bucket,
//! and an allocation pops it there. Behind the buckets are the zones alone. There are no slabs, and a depot would hold what no
//! CPU wants, megabytes of it.
//!
//! A run has just the pages that were asked for, so that classes waste none, unless it is resized by small steps
//! (`heap::realloc`). Runs of a class differ by an eighth at most. A run from a bucket that is too short for its request goes to
//! its zone. With all runs of a class as long as its longest, programs of many sizes became up to a tenth larger.
//!
//! A request that finds its class's bucket empty takes a run of one of the next two classes, whole. Where lengths are random, a
//! bucket seldom has just the class. With those, four of five frees and allocations of 33 to 128 KiB stay with their CPU; the
//! peak rises by 2 %.
//!
//! A run that is sampled, or below 4 GiB, is of no class: its entry is [`LARGE`].
//!
//! # What is held
//!
//! Runs in buckets are idle memory that only requests of their class and the two before it can use. Four rules keep it from making the program
//! larger:
//!
//! 1. A run is kept only if it serves one of the last few requests that buckets did not (`buckets::rooms`).
//! 2. All CPUs' buckets together have room for a part of what slabs and runs have (`BUDGET_PART`). A CPU has room for one run, or
//!    for its share of a little (`LEAST_BUDGET`), if it missed one such itself. What it handed out was in use just now.
//! 3. The CPU's runs go back to their zones before pages of a zone become resident, for a run, a slab or a mapped block. Those of
//!    all CPUs go once for each `FRESH_PART` of the heap that became resident (`take_pages`).
//! 4. Reclaim takes them from all CPUs: where memory is short, at rest, and when a class has been idle for some windows.
//!
//! One short run more waits on each CPU, for its next visit to its zone ([`buckets::waiting`](super::buckets::waiting)). In a small
//! heap requests are cut from it (`cut_waiting`, `rejoin`).

use crate::base::invalid_free::InvalidFree;
use crate::base::run_class;
use crate::base::units::{Bytes, Class, Order, PAGE, PageNo, Pages, Span};
use crate::caches::cpu::buckets::rooms::{Budget, Wanted};
use crate::caches::cpu::buckets::waiting::{NoPlace, Waiting};
use crate::caches::heap_caches::Caches;
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::window::{LARGE, Window};
use crate::pages::zone::{FreeAreas, PageRun, Purpose};
use crate::platform::Platform;
use crate::platform::cpu_table::{CpuSlab, Pushed};
use crate::policy::growing_buffer;
use crate::telemetry::stats;
use core::sync::atomic::Ordering::Relaxed;

/// CPUs' buckets together have room for this part of what slabs and runs have. A CPU may have its share of that if others have
/// more than theirs. So they have room for a quarter at most. Where lengths are random a third of the room is filled: with half
/// of it, half of the requests of 33 to 128 KiB found a run, in place of four of five.
const BUDGET_PART: usize = 8;
/// Bytes that buckets have room for at least, where a CPU takes back what it handed out. They are enough for some dozens of runs of
/// up to 128 KiB, or one of 4 MiB, on each of two CPUs.
const LEAST_BUDGET: usize = 8 << 20;
/// Bytes that one CPU's buckets have room for at most: with that, frees and allocations in random order seldom go past them.
const MOST_OF_CPU: usize = 8 << 20;
/// All CPUs' runs go back each time as this part of what slabs and runs have became resident. A heap that grows tenfold takes
/// them some 150 times, each time by a fence.
const FRESH_PART: usize = 64;
/// Bytes that became resident, at least, before all CPUs' runs go back: to touch 16 pages takes more than a fence does.
const LEAST_FRESH: Bytes = Bytes(64 << 10);
/// A run waits if all CPUs may have one like it for this part of what slabs and runs have.
const WAITING_PART: usize = 32;
/// A request gets a run that waits whole if what is over is too short to be a run, and at most this part of what it asked for: as
/// much as that of two classes more.
const LONGER: (usize, usize) = (3, 8);
/// Runs that leave a bucket at a time.
const AT_A_TIME: usize = 8;

/// Result for a run that a program freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The run is in the CPU's bucket.
    Done,
    /// The run is on top of the bucket already: it was freed twice.
    Twice,
    /// There is no room for it.
    Full,
}

/// Pages of the longest run of a run class.
fn longest(class: Class) -> Pages {
    Pages::in_bytes(run_class::size_of_class(class))
}

impl<P: Platform> Caches<P> {
    /// A run from the current CPU's buckets that holds `size` bytes, for which `class` is the class, and begins at a multiple of
    /// `align`; null: there is none.
    #[inline(always)]
    pub(crate) fn pop_run(&self, class: Class, size: usize, align: Order) -> *mut u8 {
        let run = self.pop_run_of(class, size, align);
        if run.is_null() { self.pop_longer_run(class, size, align) } else { run }
    }

    #[cold]
    #[inline(never)]
    fn pop_longer_run(&self, class: Class, size: usize, align: Order) -> *mut u8 {
        let longer = run_class::serving(class).skip(1);
        longer
            .map(|class| self.pop_run_of(class, size, align))
            .find(|run| !run.is_null())
            .unwrap_or(core::ptr::null_mut())
    }

    /// A run of `class` from the current CPU's bucket that holds `size` bytes and begins right; null: there is none. One that is too
    /// short, or begins elsewhere, goes to its zone; what a wrong free put there is named.
    #[inline(always)]
    fn pop_run_of(&self, class: Class, size: usize, align: Order) -> *mut u8 {
        let run = if self.pages.platform.lockless() {
            // SAFETY: what the table's entries point to, CPUs' slabs and the dummy, is there for good.
            unsafe { self.pages.platform.pop(&self.cpu.table, class) }
        } else {
            self.pop_locked(class.index()).unwrap_or(core::ptr::null_mut())
        };
        if run.is_null() {
            return run;
        }
        if self.is_run_of(class, run, size, align) {
            return run;
        }
        self.give_counted(class, run);
        core::ptr::null_mut()
    }

    /// Whether `run`, which a bucket had, is still one of `class`, from its beginning, holds `size` bytes and begins right. A push
    /// compares with the bucket's top alone. So it may be a pointer into a run's first page. Or another CPU's bucket had the run too,
    /// and gave it to its zone.
    #[inline]
    fn is_run_of(&self, class: Class, run: *mut u8, size: usize, align: Order) -> bool {
        let window = &self.pages.normal;
        let is_run = |page| window.class_of(page) == class && window.run_pages(page).length() >= size;
        align.aligns(run as usize) && window.page_of(run as usize).is_some_and(is_run)
    }

    fn run_budget(&self, wanted: Wanted) -> Budget {
        let is_own = wanted == Wanted::Here;
        let least = if is_own { Pages::in_bytes(LEAST_BUDGET) } else { Pages::ZERO };
        let all = (self.page_bytes().pages_down() / BUDGET_PART).max(least);
        Budget { all, share: all / self.cpu.cpus(), most: Pages::in_bytes(MOST_OF_CPU), one_beyond: is_own }
    }

    fn page_bytes(&self) -> Bytes {
        Bytes(self.pages.gauges.page_bytes.get() as usize)
    }

    /// Keeps a run of `class` that a program freed, `pages` pages, in the current CPU's bucket, which had no room for it. Full: there
    /// is none.
    pub(crate) fn keep_run(&self, class: Class, run: *mut u8, pages: Pages) -> Kept {
        let p = &self.pages.platform;
        if p.checks_all() {
            return Kept::Full;
        }
        if !p.lockless() {
            // Without restartable sections each free comes here first.
            match self.push_run(class, run) {
                Pushed::Full => {}
                Pushed::Done => return Kept::Done,
                Pushed::Twice => return Kept::Twice,
            }
        }
        stats::add(&p.stats().free_misses, 1);
        if p.lockless() && !self.cpu.install(p) {
            return Kept::Full;
        }
        let Some(wanted) = self.cpu.wants_room(p, class) else { return Kept::Full };
        if !self.cpu.make_room(p, class, &self.run_budget(wanted), |other| self.flush_runs(other)) {
            return Kept::Full;
        }
        match self.push_run(class, run) {
            Pushed::Full => Kept::Full,
            Pushed::Twice => Kept::Twice,
            Pushed::Done => {
                // After a drain, as before the balancer sleeps, no bucket has room: so what comes to be idle does not escape it.
                self.pages.events.freed(p, pages.bytes());
                Kept::Done
            }
        }
    }

    fn push_run(&self, class: Class, run: *mut u8) -> Pushed {
        let p = &self.pages.platform;
        if p.lockless() {
            // SAFETY: what the table's entries point to is never unmapped, `class` has a bucket, and the program gave the run up.
            return unsafe { p.push(&self.cpu.table, class, run) };
        }
        let Some((_guard, slab)) = self.cpu.locked(p, p.cpu()) else { return Pushed::Full };
        // SAFETY: where there are no restartable sections, a slab is worked on under its lock alone, and the guard holds that
        // lock. The program gave the run up.
        unsafe { CpuSlab::push(slab, class, run) }
    }

    /// Gives the runs in the current CPU's bucket of `class` to their zones.
    fn flush_runs(&self, class: Class) {
        self.flush_runs_by(class, |run| self.give_run(class, run));
    }

    /// Takes the runs of `class` out of the current CPU's bucket, and calls `give` with each.
    fn flush_runs_by(&self, class: Class, give: impl Fn(*mut u8)) {
        loop {
            let mut runs = [core::ptr::null_mut(); AT_A_TIME];
            let n = self.pop_runs(class, &mut runs);
            self.cpu.note_came(&self.pages.platform, class, -(n as i32));
            runs[..n].iter().for_each(|&run| give(run));
            if n < AT_A_TIME {
                return;
            }
        }
    }

    fn pop_runs(&self, class: Class, out: &mut [*mut u8]) -> usize {
        let p = &self.pages.platform;
        if p.lockless() {
            // SAFETY: what the table's entries point to is never unmapped, and `class` has a bucket.
            return unsafe { p.pop_batch(&self.cpu.table, class, out) };
        }
        let Some((_guard, slab)) = self.cpu.locked(p, p.cpu()) else { return 0 };
        // SAFETY: where there are no restartable sections, a slab is worked on under its lock alone, and the guard holds that
        // lock.
        let popped = core::iter::repeat_with(|| unsafe { CpuSlab::pop(slab, class) }).take_while(|run| !run.is_null());
        out.iter_mut().zip(popped).map(|(out, run)| *out = run).count()
    }

    /// Gives the current CPU's runs to their zones; whether there may have been any.
    pub(crate) fn flush_own_runs(&self) -> bool {
        let waiting = self.cpu.take_waiting(&self.pages.platform);
        let has_waited = waiting.is_some();
        waiting.into_iter().for_each(|(class, run)| self.give_counted(class, run));
        let has_rooms = self.cpu.has_rooms();
        if has_rooms {
            self.cpu
                .take_rooms(&self.pages.platform, |class| self.flush_runs_by(class, |run| self.give_late(class, run)));
        }
        has_rooms || has_waited
    }

    /// Gives runs in buckets to their zones before `bytes` become resident: the current CPU's, and, each time as enough became so,
    /// those of all CPUs.
    pub(crate) fn flush_before(&self, bytes: Bytes) {
        if !self.flush_own_runs() && !self.cpu.is_much_waiting() {
            return;
        }
        let p = &self.pages.platform;
        let fresh = Bytes(self.fresh_beside_runs.fetch_add(bytes.0, Relaxed)) + bytes;
        let has_more = self.cpu.has_rooms() || self.cpu.is_much_waiting();
        if has_more && fresh >= (self.page_bytes() / FRESH_PART).max(LEAST_FRESH) {
            self.fresh_beside_runs.store(0, Relaxed);
            self.give_waiting();
            // While another drain goes on, which may wait for the system, this does not wait: the next time does it.
            self.cpu.try_drain_runs(p, |class, run| self.give_run(class, run));
        }
    }

    /// A run of `class`, `pages` pages, that a program freed, for which there is no room in a bucket. A short one waits for the CPU's
    /// next visit to its zone; others go there.
    pub(crate) fn give_freed(&self, class: Class, run: *mut u8, pages: Pages) {
        let p = &self.pages.platform;
        stats::add(&self.table.get(class.index()).counts.slow_frees, 1);
        let before = if self.may_wait((class, run), pages) { self.cpu.wait(p, (class, run)) } else { Err(NoPlace) };
        match before {
            Err(NoPlace) => self.give_counted(class, run),
            Ok(Some(same)) if same == (class, run) => {
                p.invalid_free(InvalidFree::DoubleFree, run as usize, run_class::size_of_class(class));
            }
            Ok(before) => {
                if self.is_much(pages) {
                    self.cpu.note_much_waiting();
                }
                // The one before counted when its own wait began. As it goes, it counts in place of this one.
                let told = before.map_or(Bytes::ZERO, |(class, _)| Bytes(run_class::size_of_class(class)));
                before.into_iter().for_each(|(class, run)| self.give_counted(class, run));
                if pages.bytes() > told {
                    // No visit to the zone may follow: what rests here does not escape the balancer.
                    self.pages.events.freed(p, pages.bytes() - told);
                }
            }
        }
    }

    /// Whether a run of `pages` pages may wait. A growing buffer is told by the order in which longer ones come and go, of
    /// which what is freed is never what was asked for last.
    fn may_wait(&self, run: Waiting, pages: Pages) -> bool {
        let p = &self.pages.platform;
        let may = if self.is_much(pages) { self.cpu.is_asked_once(p, run) } else { pages < growing_buffer::LEAST };
        may && !p.checks_all()
    }

    /// Whether a run of `pages` pages is much for this heap, if each CPU lets one wait.
    fn is_much(&self, pages: Pages) -> bool {
        pages.bytes() * (WAITING_PART * self.cpu.cpus()) > self.page_bytes()
    }

    /// Whether a run that a program freed is to wait, and not to be kept in a bucket: the heap is small, and the CPU asked for it last,
    /// and for other lengths before. What a bucket had of it would have to go before each next one.
    pub(crate) fn waits_first(&self, run: Waiting, pages: Pages) -> bool {
        let p = &self.pages.platform;
        self.cpu.is_asked_once(p, run) && self.is_much(pages) && !p.checks_all()
    }

    /// A run of `class`, `pages` pages, which begins at a block of order `align`, of the beginning of a longer one that waits on the
    /// current CPU. The rest waits on. Null: none waits that is much for this heap and serves.
    pub(crate) fn cut_waiting(&self, class: Class, pages: Pages, align: Order) -> *mut u8 {
        let (p, window) = (&self.pages.platform, &self.pages.normal);
        let none = core::ptr::null_mut();
        if self.cpu.peek_waiting(p).is_none_or(|(its, _)| its.0 < class.0 || !self.is_much(longest(its))) {
            return none;
        }
        let Some((its, run)) = self.cpu.take_waiting(p) else { return none };
        let Some(page) = window.page_of(run as usize) else { return none };
        let all = window.run_pages(page);
        let rest = all.saturating_sub(pages);
        let rest_class = run_class::class_of_run(rest.length());
        let is_aligned = run as usize & (Pages::of_order(align.0).length() - 1) == 0;
        let serves = all >= pages && is_aligned && self.is_much(all);
        if !serves || rest_class.is_none() && rest * LONGER.1 > pages * LONGER.0 {
            self.wait_again((its, run));
            return none;
        }
        let Some(span) = self.unmark(its, run) else { return none };
        self.cpu.note_came(p, its, -1);
        if span.len != all {
            // A wrong free gave it to its zone, which has handed it out again meanwhile. It is no place to cut.
            self.pages.give(ZoneKind::Normal, span, 0);
            return none;
        }
        let class = match rest_class {
            Some(rest_class) => {
                self.make_run(page, pages, class);
                self.wait_again((rest_class, self.make_run(page + pages, rest, rest_class)));
                class
            }
            None => {
                self.make_run(page, all, its);
                its
            }
        };
        self.note_cut((class, run), pages);
        run
    }

    /// A run was handed out for a request of `pages` pages. A length that is wanted time and again is worth room in a bucket,
    /// where a free and a request are quicker.
    fn note_cut(&self, run: Waiting, pages: Pages) {
        let p = &self.pages.platform;
        if self.cpu.note_asked(p, run) {
            self.cpu.note_missed(p, pages);
        }
    }

    /// Joins a run that a program freed, `pages` pages of `class`, with what waits on the current CPU behind it, as a look told. Both
    /// wait as one run. Whether they do, or the free is wrong.
    #[cold]
    pub(crate) fn rejoin(&self, class: Class, run: *mut u8, pages: Pages) -> bool {
        let (p, window) = (&self.pages.platform, &self.pages.normal);
        if !self.cpu.is_asked_once(p, (class, run)) || p.checks_all() {
            return false;
        }
        let Some((its, rest)) = self.cpu.take_waiting(p) else { return false };
        let is_behind = |first: PageNo, last: PageNo| {
            // Neighbours may be of two nodes, and one zone takes back what is one run.
            first + pages == last && window.node_of(first) == window.node_of(last)
        };
        let all = match (window.page_of(run as usize), window.page_of(rest as usize)) {
            (Some(first), Some(last)) if is_behind(first, last) => pages + window.run_pages(last),
            _ => Pages::ZERO,
        };
        let whole = run_class::class_of_run(all.length());
        // Where a bucket has room for the whole, a second free of this run would not be told from one of that.
        let Some(whole) = whole.filter(|&whole| self.is_much(all) && !self.cpu.has_room(p, whole)) else {
            self.wait_again((its, rest));
            return false;
        };
        let Some(freed) = self.unmark(class, run) else {
            self.wait_again((its, rest));
            return true;
        };
        self.cpu.note_came(p, class, -1);
        stats::add(&self.table.get(class.index()).counts.slow_frees, 1);
        let Some(behind) = self.unmark(its, rest) else {
            // A wrong free gave the rest to its zone.
            self.pages.give(ZoneKind::Normal, freed, 0);
            return true;
        };
        self.cpu.note_came(p, its, -1);
        if freed.len + behind.len == all && freed.len == pages {
            self.wait_again((whole, self.make_run(freed.first, all, whole)));
        } else {
            // Of a wrong free, as of one that is cut.
            [freed, behind].into_iter().for_each(|span| self.pages.give(ZoneKind::Normal, span, 0));
        }
        true
    }

    /// Makes pages of the caller's in NORMAL a run of `class`.
    fn make_run(&self, page: PageNo, pages: Pages, class: Class) -> *mut u8 {
        let window = &self.pages.normal;
        window.set_run_pages(page, pages);
        window.set_class(Span::new(page, Pages(1)), class);
        self.cpu.note_came(&self.pages.platform, class, 1);
        window.addr_of(page) as *mut u8
    }

    /// Lets a run wait that counted when its wait began. One that came meanwhile goes to its zone.
    fn wait_again(&self, waiting: Waiting) {
        let is_much = self.is_much(longest(waiting.0));
        let other = self.cpu.wait(&self.pages.platform, waiting).unwrap_or(Some(waiting));
        if is_much {
            self.cpu.note_much_waiting();
        }
        other.into_iter().for_each(|(class, run)| self.give_counted(class, run));
    }

    /// Gives a run of `class`, which counts as one of the CPU's, to its zone.
    fn give_counted(&self, class: Class, run: *mut u8) {
        self.cpu.note_came(&self.pages.platform, class, -1);
        self.give_late(class, run);
    }

    /// Gives the runs that wait on all CPUs to their zones; returns how much they are.
    pub(in crate::caches) fn give_waiting(&self) -> Bytes {
        let mut bytes = Bytes::ZERO;
        for (class, run) in self.cpu.take_all_waiting() {
            bytes += Bytes(run_class::size_of_class(class));
            self.give_counted(class, run);
        }
        bytes
    }

    /// Gives a run of `class` that a program freed to its zone, which hears of the free only now. The former copy of a buffer that
    /// grows is of no use to the zone, and released.
    fn give_late(&self, class: Class, run: *mut u8) {
        let given = self.give_by_class(class, run, |zone, window, pages| {
            zone.give(window, pages, 0);
            zone.growth.give(pages.len).then_some(pages)
        });
        if let Some(Some(pages)) = given {
            self.pages.release_run(ZoneKind::Normal, pages);
        }
    }

    /// Gives a run of `class`, which is in no bucket, to its zone.
    pub(crate) fn give_run(&self, class: Class, run: *mut u8) {
        self.give_by_class(class, run, |zone, window, pages| zone.give(window, pages, 0));
    }

    /// Gives a run of `class` to its zone by `give`; `None` as of [`Caches::unmark`].
    fn give_by_class<T>(
        &self,
        class: Class,
        run: *mut u8,
        give: impl FnOnce(&mut FreeAreas, &Window, Span) -> T,
    ) -> Option<T> {
        let pages = self.unmark(class, run)?;
        Some(self.pages.give_by(ZoneKind::Normal, pages, |zone, window| give(zone, window, pages)))
    }

    /// The pages of a run of `class`, which is none any more. One that is in its zone already was freed twice: it is named, and
    /// `None`.
    fn unmark(&self, class: Class, run: *mut u8) -> Option<Span> {
        let (p, window) = (&self.pages.platform, &self.pages.normal);
        let is_whole = (run as usize).is_multiple_of(PAGE);
        let page = window.page_of(run as usize).filter(|&page| is_whole && window.unmark_run(page, class));
        let Some(page) = page else {
            let what = if is_whole { InvalidFree::DoubleFree } else { InvalidFree::InteriorPointer };
            p.invalid_free(what, run as usize, run_class::size_of_class(class));
            return None;
        };
        Some(Span::new(page, window.run_pages(page)))
    }

    /// Makes a run of the caller's, which is of no class, one of the class of its length, if there is one.
    pub(crate) fn join_class(&self, kind: ZoneKind, page: PageNo) {
        let window = self.pages.window(kind);
        let class = run_class::class_of_run(window.run_pages(page).length());
        if let Some(class) = class.filter(|_| kind == ZoneKind::Normal) {
            self.cpu.note_came(&self.pages.platform, class, 1);
            window.set_class(Span::new(page, Pages(1)), class);
        }
    }

    /// Makes a run of the caller's one of no class, if it is of one.
    pub(crate) fn leave_class(&self, kind: ZoneKind, page: PageNo) {
        let window = self.pages.window(kind);
        let class = window.class_of(page);
        if run_class::contains(class) {
            self.cpu.note_came(&self.pages.platform, class, -1);
            window.set_class(Span::new(page, Pages(1)), LARGE);
        }
    }

    /// [`HeapPages::take`](crate::pages::HeapPages) of NORMAL. The run that waits on the CPU goes back with it. Before pages become
    /// resident, runs in buckets go back.
    pub(crate) fn take_pages(&self, pages: Pages, align: Order, purpose: Purpose) -> Result<PageRun, Short> {
        let waiting = self.end_wait();
        if self.cpu.has_rooms() || waiting.is_some() || self.cpu.is_much_waiting() {
            if let Ok(run) = self.pages.take_idle(waiting, pages, align, purpose) {
                return Ok(run);
            }
            self.flush_before(pages.bytes());
        }
        self.pages.take(ZoneKind::Normal, pages, align, purpose)
    }

    /// The pages of the run that waits on the CPU, which is none any more: they are the caller's, to give back.
    fn end_wait(&self) -> Option<Span> {
        let (class, run) = self.cpu.take_waiting(&self.pages.platform)?;
        self.cpu.note_came(&self.pages.platform, class, -1);
        self.unmark(class, run)
    }

    /// How much runs in CPUs' buckets are. O(CPUs).
    pub(crate) fn cached_runs(&self) -> Bytes {
        let window = &self.pages.normal;
        let mut sum = Bytes::ZERO;
        self.cpu.each_run(|class, run| {
            // Taken and freed meanwhile, it may be of another length, or none: these are figures.
            let page = window.page_of(run).filter(|&page| window.class_of(page) == class);
            let of_class = Bytes(run_class::size_of_class(class));
            sum += page.map_or(Bytes::ZERO, |page| window.run_pages(page).bytes().min(of_class));
        });
        sum
    }
}
