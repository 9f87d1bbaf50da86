//! An entry of an evictable cache: pinned, evicted, removed and freed by several threads. The source itself on a model
//! checker's atomics.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weir-models --release`
#![cfg(loom)]

mod platform {
    pub use weir_models::sync;
}

#[path = "../../../weir-core/src/evict/pins.rs"]
mod pins;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;
use pins::Pins;

struct Shared {
    /// The shard's lock, and whether the entry is in it.
    is_in: Mutex<bool>,
    pins: Pins,
    /// The value: the checker reports whoever reads while another frees.
    value: UnsafeCell<u32>,
    freed: AtomicU32,
    /// The eviction looks at the count before it takes the lock.
    is_flawed: bool,
}

impl Shared {
    fn give_up(&self) {
        if self.pins.unpin() {
            // SAFETY: what the model is to show: nobody else is at it.
            self.value.with_mut(|value| unsafe { *value = 0 });
            self.freed.fetch_add(1, Relaxed);
        }
    }

    fn read(&self) {
        let is_in = self.is_in.lock().unwrap();
        if !*is_in {
            return;
        }
        self.pins.pin();
        drop(is_in);
        // SAFETY: what the model is to show: a pinned value is not freed.
        assert_eq!(self.value.with(|value| unsafe { *value }), 7);
        self.give_up();
    }

    fn evict(&self) {
        let early = self.is_flawed && self.pins.is_held_once();
        let mut is_in = self.is_in.lock().unwrap();
        if *is_in && (early || !self.is_flawed && self.pins.is_held_once()) {
            *is_in = false;
            drop(is_in);
            // Held by the cache alone, so it goes at once.
            assert!(self.pins.unpin(), "an eviction took an entry that is pinned");
            // SAFETY: what the model is to show: nobody else is at it.
            self.value.with_mut(|value| unsafe { *value = 0 });
            self.freed.fetch_add(1, Relaxed);
        }
    }

    /// Has the value elsewhere, if nobody else holds it.
    fn relocate(&self) {
        let is_in = self.is_in.lock().unwrap();
        if *is_in && self.pins.is_held_once() {
            // SAFETY: what the model is to show: nobody else is at it.
            self.value.with_mut(|value| unsafe { *value = 7 });
        }
    }

    fn remove(&self) {
        let mut is_in = self.is_in.lock().unwrap();
        if std::mem::replace(&mut *is_in, false) {
            drop(is_in);
            self.give_up();
        }
    }
}

fn model(threads: &'static [fn(&Shared)], is_flawed: bool) {
    weir_models::check((threads.len() > 2).then_some(3), move || {
        let shared = Arc::new(Shared {
            is_in: Mutex::new(true),
            pins: Pins::new(1),
            value: UnsafeCell::new(7),
            freed: AtomicU32::new(0),
            is_flawed,
        });
        let others: Vec<_> = threads
            .iter()
            .map(|work| {
                let shared = shared.clone();
                thread::spawn(move || work(&shared))
            })
            .collect();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let is_in = *shared.is_in.lock().unwrap();
        assert_eq!(shared.freed.load(Relaxed), u32::from(!is_in), "freed once, when it left the cache");
    });
}

#[test]
fn a_pinned_entry_is_not_evicted() {
    model(&[Shared::read, Shared::evict], false);
}

#[test]
fn a_removed_entry_lives_until_its_last_pin_ends() {
    model(&[Shared::read, Shared::remove], false);
    model(&[Shared::read, Shared::read, Shared::remove], false);
}

#[test]
fn readers_an_eviction_and_a_removal_free_once() {
    model(&[Shared::read, Shared::evict, Shared::remove], false);
}

#[test]
fn an_entry_moves_only_where_nobody_else_holds_it() {
    model(&[Shared::read, Shared::relocate], false);
    model(&[Shared::read, Shared::relocate, Shared::remove], false);
    model(&[Shared::read, Shared::relocate, Shared::evict], false);
}

#[test]
fn a_look_without_the_lock_is_noticed() {
    weir_models::must_fail("an eviction took an entry that is pinned", || model(&[Shared::read, Shared::evict], true));
}
