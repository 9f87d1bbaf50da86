//! A report against allocations and frees: the zone's own code under a model checker's lock.
//!
//! The reporter isolates, lets the lock go, wipes, and puts back, as `report` does. Against it are users that take
//! pages one by one or merged into a block, a thread that switches it off, and hot-unplug of the pageblock. The contents
//! of each page are a cell, on which the checker reports a race if a page is wiped while it is in use.
#![cfg(loom)]

#[path = "../../../weir-core/tests/fake/mod.rs"]
mod fake;

use fake::Fake;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;
use weir_core::base::units::{BlockNo, Order, PAGEBLOCK_PAGES, PageNo, Pages, Span};
use weir_core::pages::page_set::PageSet;
use weir_core::pages::window::Window;
use weir_core::pages::zone::{FreeAreas, Purpose, ReportOutcome};
use weir_core::platform::{Contents, Reach};

/// Pages that the model uses; the rest of the pageblock is in use throughout.
const PAGES: usize = 2;
const WRITTEN: u32 = 7;

/// Omission from the protocol, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    Isolation,
    /// The thread that switches reports off, or unplugs, does not wait for the batch in flight.
    Waiting,
}

struct World {
    zone: Mutex<FreeAreas>,
    window: Window,
    _fake: Box<Fake>,
    contents: [UnsafeCell<u32>; PAGES],
    omit: Omit,
    /// The switch, and the lock under which a batch looks at it.
    on: AtomicBool,
    in_flight: Mutex<()>,
}

/// Subject of the model, before the checker's part.
struct Host {
    zone: FreeAreas,
    window: Window,
    fake: Box<Fake>,
}

impl Host {
    /// A zone of one pageblock whose first pages are free, backed and dirty.
    fn new() -> Self {
        let mut fake = Box::new(Fake::new());
        fake.window = 8 << 20;
        let window = Window::new(Reach::Any);
        let blocks = window.growing(&*fake).grow(1, 0).unwrap();
        let mut zone = FreeAreas::new(0);
        zone.add(&window, blocks.clone());
        // All pageblocks but the first are taken too, so that the lists are short.
        for block in BlockNo::each(blocks) {
            let run = zone.take(&window, Pages::BLOCK, Order::PAGE, Purpose::Run, false, Pages::MAX).unwrap();
            assert_eq!(run.page, block.first());
        }
        zone.give(&window, Span::new(PageNo(0), Pages(PAGES)), 0);
        Self { zone, window, fake }
    }
}

impl World {
    fn new(omit: Omit) -> Arc<Self> {
        // The checker's threads have small stacks.
        let below = std::thread::spawn(|| Box::new(Host::new())).join().unwrap();
        let Host { zone, window, fake } = *below;
        let contents = std::array::from_fn(|_| UnsafeCell::new(WRITTEN));
        let (on, in_flight) = (AtomicBool::new(true), Mutex::new(()));
        Arc::new(Self { zone: Mutex::new(zone), window, _fake: fake, contents, omit, on, in_flight })
    }

    /// Takes a block of `pages` pages, if one is free, and uses it for a while.
    fn use_pages(&self, pages: usize) -> bool {
        let order = Order(pages.trailing_zeros());
        let Ok(run) =
            self.zone.lock().unwrap().take(&self.window, Pages(pages), order, Purpose::Run, false, Pages::MAX)
        else {
            return false;
        };
        let first = run.page.index();
        assert!(first + pages <= PAGES, "a page that was in use");
        let contents = &self.contents[first..first + pages];
        for page in contents {
            // SAFETY: what the protocol is to guarantee, and the checker to check.
            page.with(|value| assert!(!run.zero || unsafe { *value } == 0, "a page known as zero is not"));
            // SAFETY: as above.
            page.with_mut(|value| unsafe { *value = WRITTEN + 1 });
        }
        thread::yield_now();
        for page in contents {
            // SAFETY: as above.
            page.with(|value| assert_eq!(unsafe { *value }, WRITTEN + 1, "a page in use was wiped"));
        }
        self.zone.lock().unwrap().give(&self.window, Span::new(run.page, Pages(pages)), 0);
        true
    }

    fn use_a_page(&self) -> bool {
        self.use_pages(1)
    }

    /// A report of which the system below takes the pages in `taken`.
    fn report(&self, taken: &PageSet) {
        let _batch = self.in_flight.lock().unwrap();
        if !self.on.load(Relaxed) {
            return;
        }
        let mut zone = self.zone.lock().unwrap();
        let pages = match self.omit {
            // SAFETY: the zone's lock is held.
            Omit::Isolation => unsafe { (*self.window.state(BlockNo(0))).idle() },
            _ => zone.isolate(&self.window, BlockNo(0)),
        };
        drop(zone);
        let gone = pages.and(taken);
        for run in gone.runs() {
            // SAFETY: as above.
            self.contents[run].iter().for_each(|c| c.with_mut(|value| unsafe { *value = 0 }));
        }
        let how = ReportOutcome { contents: Contents::Zero, at: 1, horizon: 1, calm: true, lazily: false };
        self.zone.lock().unwrap().put_back(&self.window, BlockNo(0), &pages, &gone, how);
    }

    /// Switches reports off; from then on no page is wiped or isolated, and each is marked as what it is.
    fn switch_off(&self) {
        self.on.store(false, Relaxed);
        if self.omit != Omit::Waiting {
            drop(self.in_flight.lock().unwrap());
        }
        let mut zone = self.zone.lock().unwrap();
        // SAFETY: the zone's lock is held.
        let (free, idle) =
            unsafe { ((*self.window.state(BlockNo(0))).free.len(), (*self.window.state(BlockNo(0))).idle().len()) };
        assert_eq!((zone.used + free, zone.idle), (zone.pages, idle), "a page is isolated, with reports off");
        // A page that is taken now may be looked at as long as it is held.
        while let Ok(run) = zone.take(&self.window, Pages(1), Order::PAGE, Purpose::Run, false, Pages::MAX) {
            // SAFETY: as above.
            let value = self.contents[run.page.index()].with(|value| unsafe { *value });
            assert!(!run.zero || value == 0);
            zone.give(&self.window, Span::new(run.page, Pages(1)), 0);
            if !run.zero {
                break;
            }
        }
    }

    /// Takes the pageblock out of use for a while, as `zone_close` does; whether none of the model's pages was in use.
    fn unplug(&self) -> bool {
        let batch = (self.omit != Omit::Waiting).then(|| self.in_flight.lock().unwrap());
        let in_use = self.zone.lock().unwrap().close(&self.window, BlockNo(0).row(1));
        drop(batch);
        let is_out = in_use == Pages(PAGEBLOCK_PAGES - PAGES);
        if is_out {
            // It may be unmapped now: the checker is to see that nobody else comes near.
            self.contents.iter().for_each(|page| page.with_mut(|_| ()));
        }
        thread::yield_now();
        self.zone.lock().unwrap().open(&self.window, BlockNo(0).row(1));
        is_out
    }

    /// Nothing is lost: all pages are free, those that are not idle are zero, and both counts say so.
    fn check(&self) {
        let mut zone = self.zone.lock().unwrap();
        assert_eq!(zone.used, zone.pages - Pages(PAGES));
        let idle = zone.idle;
        let mut dirty = 0;
        for _ in 0..PAGES {
            let run = zone.take(&self.window, Pages(1), Order::PAGE, Purpose::Run, false, Pages::MAX).unwrap();
            // SAFETY: nobody else is here any more.
            let value = self.contents[run.page.index()].with(|value| unsafe { *value });
            assert!(!run.zero || value == 0);
            dirty += usize::from(!run.zero);
        }
        assert_eq!(idle, Pages(dirty));
    }
}

fn all() -> PageSet {
    PageSet::FULL
}

fn model(omit: Omit, taken: PageSet, pages: usize) {
    loom::model(move || {
        let world = World::new(omit);
        let user = {
            let world = world.clone();
            thread::spawn(move || (world.use_pages(pages), world.use_pages(pages)))
        };
        world.report(&taken);
        user.join().unwrap();
        world.check();
    });
}

#[test]
fn a_report_leaves_pages_in_use_alone() {
    model(Omit::Nothing, all(), 1);
}

#[test]
fn a_report_leaves_merged_blocks_in_use_alone() {
    model(Omit::Nothing, all(), 2);
}

#[test]
fn a_failed_report_changes_nothing() {
    model(Omit::Nothing, PageSet::EMPTY, 1);
}

#[test]
fn of_a_report_that_failed_in_part_each_page_is_marked_as_what_it_is() {
    for page in 0..PAGES {
        model(Omit::Nothing, PageSet::range(page..page + 1), 1);
        model(Omit::Nothing, PageSet::range(page..page + 1), 2);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_isolation_it_does_not() {
    model(Omit::Isolation, all(), 1);
}

#[test]
fn two_users_against_a_report() {
    weir_models::check(2, || {
        let world = World::new(Omit::Nothing);
        let user = || {
            let world = world.clone();
            thread::spawn(move || world.use_a_page())
        };
        let (first, second) = (user(), user());
        world.report(&all());
        first.join().unwrap();
        second.join().unwrap();
        world.check();
    });
}

/// `act` against a report, and against a user if there is one.
fn beside_a_report(omit: Omit, with_user: bool, act: impl Fn(&World) + Send + Sync + 'static) {
    weir_models::check(2, move || {
        let world = World::new(omit);
        let start = |f: fn(&World)| {
            let world = world.clone();
            thread::spawn(move || f(&world))
        };
        let reporter = start(|world| world.report(&PageSet::range(0..1)));
        let user = with_user.then(|| start(|world| drop(world.use_a_page())));
        act(&world);
        reporter.join().unwrap();
        user.into_iter().for_each(|user| user.join().unwrap());
        world.check();
    });
}

fn drop<T>(_: T) {}

fn switched_off(omit: Omit) {
    beside_a_report(omit, true, World::switch_off);
}

fn unplugged(omit: Omit, with_user: bool) {
    beside_a_report(omit, with_user, move |world| {
        assert!(world.unplug() || with_user, "nobody uses a page, and the pageblock is in use");
    });
}

#[test]
fn unplugging_waits_for_the_batch_in_flight() {
    unplugged(Omit::Nothing, false);
}

#[test]
fn unplugged_pages_are_nobodys() {
    unplugged(Omit::Nothing, true);
}

#[test]
#[should_panic(expected = "the pageblock is in use")]
fn without_waiting_a_free_pageblock_cannot_be_unplugged() {
    unplugged(Omit::Waiting, false);
}

#[test]
fn switching_off_waits_for_the_batch_in_flight() {
    switched_off(Omit::Nothing);
}

#[test]
#[should_panic(expected = "a page is isolated, with reports off")]
fn without_waiting_it_does_not() {
    switched_off(Omit::Waiting);
}
