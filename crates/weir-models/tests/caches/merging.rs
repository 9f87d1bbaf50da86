//! Filling the free places of a page (`merge/fill.rs`), its own source. Meanwhile a program gets an object of the page,
//! frees one and writes to its objects. Nothing that the program stored is lost, and nothing else is stored where it
//! has an object.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

mod platform {
    pub use weir_models::sync;
}

#[path = "../../../weir-core/src/merge/fill.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod fill;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Pages of the group, each of two places of one word: page i has an object at place i.
const PAGES: usize = 2;

/// Two pages, and which of their places are in use: what the lock of their slabs guards.
struct Shared {
    live: Mutex<[u8; PAGES]>,
    pages: [[AtomicU64; PAGES]; PAGES],
    /// The lock is given back between the look at the bitmap and the filling: the flaw.
    is_open: bool,
}

impl Shared {
    fn new(is_open: bool) -> Self {
        let pages = [[1, 100], [200, 2]].map(|page| page.map(AtomicU64::new));
        Self { live: Mutex::new([0b01, 0b10]), pages, is_open }
    }

    /// Does `f` with page `i`, if it is as it was when it was chosen.
    fn with(&self, i: usize, f: impl FnOnce(&[AtomicU64])) {
        let live = self.live.lock().unwrap();
        if live[i] != 1 << i {
            return;
        }
        if self.is_open {
            drop(live);
            return f(&self.pages[i]);
        }
        f(&self.pages[i]);
    }

    /// As a pass does: the picture, then each page.
    fn merge(&self) {
        let mut picture = [7, 7];
        for i in 0..PAGES {
            self.with(i, |page| fill::read(page, i..i + 1, &mut picture));
        }
        for i in 0..PAGES {
            self.with(i, |page| fill::write(page, 1 - i..2 - i, &picture));
        }
    }

    /// Gets the free place of page `i`, and writes to it.
    fn get(&self, i: usize, value: u64) {
        self.live.lock().unwrap()[i] |= 1 << (1 - i);
        self.pages[i][1 - i].store(value, Relaxed);
    }

    /// Frees the object that page `i` had from the beginning.
    fn free(&self, i: usize) {
        self.live.lock().unwrap()[i] &= !(1 << i);
    }
}

fn model(is_open: bool) {
    loom::model(move || {
        let shared = Arc::new(Shared::new(is_open));
        let filler = {
            let shared = shared.clone();
            thread::spawn(move || shared.merge())
        };
        // An object in use is written to, one is got, one is freed.
        shared.pages[0][0].store(11, Relaxed);
        shared.get(0, 12);
        assert_eq!((shared.pages[0][0].load(Relaxed), shared.pages[0][1].load(Relaxed)), (11, 12), "a store is lost");
        shared.free(1);
        filler.join().unwrap();
        let found = (shared.pages[0][0].load(Relaxed), shared.pages[0][1].load(Relaxed));
        assert_eq!(found, (11, 12), "a store is lost");
    });
}

#[test]
fn nothing_that_the_program_stores_is_lost() {
    model(false);
}

#[test]
fn pages_that_nobody_writes_become_equal() {
    loom::model(|| {
        let shared = Shared::new(false);
        shared.merge();
        let words = |page: &[AtomicU64; PAGES]| [page[0].load(Relaxed), page[1].load(Relaxed)];
        assert_eq!(shared.pages.each_ref().map(words), [[1, 2], [1, 2]]);
    });
}

#[test]
fn a_bitmap_that_is_looked_at_without_the_lock_loses_a_store() {
    weir_models::must_fail("a store is lost", || model(true));
}
