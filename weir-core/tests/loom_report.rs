//! A report against allocations and frees: the zone's own code under a model checker's lock.
//!
//! The reporter isolates, lets the lock go, wipes, and puts back, as `report` does. What the pages hold is a cell
//! each, on which the checker reports a race if a page is wiped while somebody has it.
#![cfg(loom)]

#[path = "fake/mod.rs"]
mod fake;

use fake::Fake;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use weir_core::page::{PAGEBLOCK_PAGES, Window};
use weir_core::platform::Reach;
use weir_core::zone::FreeAreas;

/// Pages that the model uses; the rest of the pageblock is in use throughout.
const PAGES: usize = 2;
const WRITTEN: u32 = 7;

/// What is left out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    Isolation,
}

struct World {
    zone: Mutex<FreeAreas>,
    window: Window,
    _fake: Box<Fake>,
    contents: [UnsafeCell<u32>; PAGES],
    omit: Omit,
}

/// What the model is about, before the checker's part.
struct Below {
    zone: FreeAreas,
    window: Window,
    fake: Box<Fake>,
}

impl Below {
    /// A zone of one pageblock whose first pages are free, backed and dirty.
    fn new() -> Self {
        let mut fake = Box::new(Fake::new());
        fake.window = 8 << 20;
        let window = Window::new(Reach::Any);
        let (first, count) = window.grow(&*fake, 1, 0).unwrap();
        let mut zone = FreeAreas::new(0);
        zone.add(&window, first, count);
        // All pageblocks but the first are taken too, so that the lists are short.
        for block in 0..count {
            assert_eq!(zone.take(&window, PAGEBLOCK_PAGES, 0, false).unwrap().page as usize, block * PAGEBLOCK_PAGES);
        }
        zone.give(&window, 0, PAGES, 0);
        Self { zone, window, fake }
    }
}

impl World {
    fn new(omit: Omit) -> Arc<Self> {
        // The checker's threads have small stacks.
        let below = std::thread::spawn(|| Box::new(Below::new())).join().unwrap();
        let Below { zone, window, fake } = *below;
        let contents = std::array::from_fn(|_| UnsafeCell::new(WRITTEN));
        Arc::new(Self { zone: Mutex::new(zone), window, _fake: fake, contents, omit })
    }

    /// Takes a page, if one is free, and uses it for a while.
    fn use_a_page(&self) -> bool {
        let Some(run) = self.zone.lock().unwrap().take(&self.window, 1, 0, false) else { return false };
        let page = run.page as usize;
        assert!(page < PAGES, "a page that was in use");
        // SAFETY: what the protocol is to guarantee, and the checker to check.
        self.contents[page].with(|value| assert!(!run.zero || unsafe { *value } == 0, "a page known as zero is not"));
        // SAFETY: as above.
        self.contents[page].with_mut(|value| unsafe { *value = WRITTEN + 1 });
        thread::yield_now();
        // SAFETY: as above.
        self.contents[page].with(|value| assert_eq!(unsafe { *value }, WRITTEN + 1, "a page in use was wiped"));
        self.zone.lock().unwrap().give(&self.window, run.page, 1, 0);
        true
    }

    fn report(&self, succeeds: bool) {
        let mut zone = self.zone.lock().unwrap();
        let pages = match self.omit {
            Omit::Nothing => zone.isolate(&self.window, 0),
            // SAFETY: the zone's lock is held.
            Omit::Isolation => unsafe { (*self.window.block(0)).idle() },
        };
        drop(zone);
        let mut at = 0;
        while let Some((first, len)) = pages.next_run(at) {
            if succeeds {
                // SAFETY: as above.
                self.contents[first..first + len].iter().for_each(|c| c.with_mut(|value| unsafe { *value = 0 }));
            }
            at = first + len;
        }
        self.zone.lock().unwrap().put_back(&self.window, 0, &pages, succeeds);
    }

    /// Nothing is lost: all pages are free, those that are not idle are zero, and both counts say so.
    fn check(&self) {
        let mut zone = self.zone.lock().unwrap();
        assert_eq!(zone.used, zone.pages - PAGES);
        let idle = zone.idle;
        let mut dirty = 0;
        for _ in 0..PAGES {
            let run = zone.take(&self.window, 1, 0, false).unwrap();
            // SAFETY: nobody else is here any more.
            let value = self.contents[run.page as usize].with(|value| unsafe { *value });
            assert!(!run.zero || value == 0);
            dirty += usize::from(!run.zero);
        }
        assert_eq!(idle, dirty);
    }
}

fn model(omit: Omit, succeeds: bool) {
    loom::model(move || {
        let world = World::new(omit);
        let user = {
            let world = world.clone();
            thread::spawn(move || (world.use_a_page(), world.use_a_page()))
        };
        world.report(succeeds);
        user.join().unwrap();
        world.check();
    });
}

#[test]
fn a_report_leaves_pages_in_use_alone() {
    model(Omit::Nothing, true);
}

#[test]
fn a_failed_report_changes_nothing() {
    model(Omit::Nothing, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_isolation_it_does_not() {
    model(Omit::Isolation, true);
}

#[test]
fn two_users_against_a_report() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let world = World::new(Omit::Nothing);
        let user = || {
            let world = world.clone();
            thread::spawn(move || world.use_a_page())
        };
        let (first, second) = (user(), user());
        world.report(true);
        first.join().unwrap();
        second.join().unwrap();
        world.check();
    });
}
