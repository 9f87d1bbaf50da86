//! Threads that wait for a value that another computes, as a list: to see whether one more wait would close a circle.
//!
//! A wait is for a word that changes when the value has landed ([`super::landings`]), and names the thread that
//! computes. It counts while the word is what it was as the wait began. So a circle is never seen where there is none. A thread
//! whose value has landed changed the word before it began to wait itself. A thread that sees its wait, under the lock, sees that
//! too. And none is missed: the wait that would close it is added last, and looks at all others.

use core::ptr::{NonNull, null};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::platform::Wait;
use crate::platform::lock::Lock;

/// The threads that wait, read and written under one lock.
#[derive(Debug)]
pub struct Waits(*const Waiting);

/// A thread that waits. It lies in that thread's frame, and leaves the list before the frame ends.
struct Waiting {
    thread: usize,
    runner: usize,
    word: NonNull<AtomicU32>,
    seen: u32,
    next: *const Self,
}

impl Waiting {
    /// The thread `thread` waits while `word` is `seen`, for what the thread `runner` computes.
    fn new(thread: usize, runner: usize, word: &AtomicU32, seen: u32) -> Self {
        Self { thread, runner, word: NonNull::from(word), seen, next: null() }
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

impl Waits {
    /// No thread waits.
    pub const fn new() -> Self {
        Self(null())
    }

    fn iter(&self) -> impl Iterator<Item = &Waiting> {
        // SAFETY: a wait on the list is valid, as it leaves the list under the lock that the caller has.
        core::iter::successors(unsafe { self.0.as_ref() }, |wait| unsafe { wait.next.as_ref() })
    }

    /// Whether `runner` is `me`, or waits for it, directly or through others. It ends, as no wait that closes a circle is
    /// ever added.
    fn lead_to(&self, runner: usize, me: usize) -> bool {
        // SAFETY: who waits uses the cache that the word is of, which thus is there.
        let counts = |wait: &&Waiting| unsafe { wait.word.as_ref() }.load(Relaxed) == wait.seen;
        let mut at = runner;
        while at != me {
            let Some(wait) = self.iter().filter(counts).find(|wait| wait.thread == at) else { return false };
            at = wait.runner;
        }
        true
    }

    /// Adds a wait.
    ///
    /// # Safety
    /// The wait and its word stay where they are until it is taken off, or this is dropped.
    unsafe fn add(&mut self, wait: *mut Waiting) {
        // SAFETY: the caller's, and on no list yet.
        unsafe { (*wait).next = self.0 };
        self.0 = wait;
    }

    /// Takes a wait off, if it is there: in a forked child it is not.
    fn remove(&mut self, wait: *const Waiting) {
        let mut link = &raw mut self.0;
        // SAFETY: the head, or the link of a wait on the list, which is valid and changed under the lock alone.
        unsafe {
            while !(*link).is_null() && *link != wait {
                link = (&raw const (**link).next).cast_mut();
            }
            if *link == wait && !wait.is_null() {
                *link = (*wait).next;
            }
        }
    }
}

/// Sleeps while `word` is `seen`, or for no reason, for what the thread `runner` computes; `me` is the calling thread. The list is
/// what `waits` makes of what a lock protects. `false`: that thread waits for this one, directly or through others, and the call
/// returns at once.
pub fn wait_for<T, P: Wait, const RANK: u32>(
    (lock, waits): (&Lock<T, RANK>, fn(&mut T) -> &mut Waits),
    platform: &P,
    (me, runner): (usize, usize),
    (word, seen): (&AtomicU32, u32),
) -> bool {
    let mut list = lock.lock(platform);
    if word.load(Relaxed) != seen {
        return true;
    }
    if waits(&mut list).lead_to(runner, me) {
        return false;
    }
    let mut wait = Waiting::new(me, runner, word, seen);
    let wait = &raw mut wait;
    // SAFETY: it is taken off below, before this frame ends, and the word is the caller's until then.
    unsafe { waits(&mut list).add(wait) };
    drop(list);
    platform.wait_for(word, seen, None);
    waits(&mut lock.lock(platform)).remove(wait);
    true
}
