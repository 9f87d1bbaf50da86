//! Unregistering a callback: after it, no thread runs the callback.
//!
//! - The entry leaves the list first, so that no thread takes it any more. Then the caller waits until it does not run, and
//!   disposes of it. The interleaving that this excludes: a thread has taken the entry, and calls it after its memory went.
//!   It cannot: taking sets `RUNNING` under the lock under which unregistering looks.
//! - A run may call a callback many times, one batch after another. It ends after the batch in which a thread begins to wait. So
//!   the wait is for one call, whatever the callback says that it holds.
//! - A callback that unregisters itself would wait for itself, and two that unregister each other for each other, as would a
//!   longer circle. So each wait is listed under the lock, and a caller that would close a circle returns at once. The entry is
//!   marked `GONE`, and the thread that runs it disposes of it after its return.
//!
//! The model is `crates/weir-models/tests/evict/shrinkers.rs`.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::callback::{BROKEN, Entry, GONE, LEAVING, RUNNING};
use super::waits::Waiting;
use super::{Callbacks, thread_of};
use crate::platform::Wait;

impl Callbacks {
    /// Unregisters an entry and disposes of it. Waits while it runs. The calling thread may be in the callback, or in one that
    /// the callback waits for here. Then this returns at once, and the entry is disposed of after the callback has returned.
    ///
    /// # Safety
    /// The entry is registered, and the caller gives it up.
    pub unsafe fn unregister<P: Wait>(&self, platform: &P, entry: NonNull<Entry>) {
        // SAFETY: valid until it is disposed of, which is below, or after the thread that runs it sees `GONE`.
        let old = unsafe { entry.as_ref() };
        let me = thread_of(platform);
        let mut list = self.list.lock(platform);
        let next = old.next.load(Relaxed);
        if list.first == entry.as_ptr() {
            list.first = next;
        } else if let Some(before) = list.iter().find(|other| other.next.load(Relaxed) == entry.as_ptr()) {
            before.next.store(next, Relaxed);
        }
        self.counts[old.class as usize].fetch_sub(1, Relaxed);
        if !old.is(BROKEN) {
            self.count_shrinker(old, |count| _ = count.fetch_sub(1, Relaxed));
        }
        if list.waits.lead_to(old, me) {
            old.set(GONE);
            return;
        }
        if old.is(RUNNING) {
            old.set(LEAVING);
            let mut wait = Waiting::new(me, entry);
            let wait = &raw mut wait;
            // SAFETY: it stays until it is taken off, below.
            unsafe { list.waits.add(wait) };
            drop(list);
            self.wait_for_return(platform, old);
            // SAFETY: this thread put it there above, and no other takes it off.
            unsafe { self.list.lock(platform).waits.remove(wait) };
        } else {
            drop(list);
        }
        // SAFETY: off the list and not running: no other thread has it.
        unsafe { (old.dispose)(entry) };
    }

    fn wait_for_return<P: Wait>(&self, platform: &P, entry: &Entry) {
        loop {
            let seen = self.finished.load(SeqCst);
            if !entry.is(RUNNING) {
                return;
            }
            platform.wait_for(&self.finished, seen, None);
        }
    }
}
