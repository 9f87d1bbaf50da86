//! The evictable caches of the process, as `fork` sees them: their locks come before the heap's, are taken before a fork
//! and given back after it on both sides, so that the child finds every cache whole.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weir_core::platform::lock::Lock;
use weir_core::platform::rank;
use weir_core::telemetry::tables::EvictableRow;

use super::evictable_waits::{Waiting, Waits};
use crate::arch::thread::thread_pointer;
use crate::os::futex::futex_wait;
use crate::platform::linux::Linux;

/// What is done to a cache around a fork, and what is read of it.
#[derive(Debug)]
pub struct ForkCalls {
    /// Takes all of its locks.
    pub freeze: unsafe fn(NonNull<ForkNode>),
    /// Gives them back.
    pub thaw: unsafe fn(NonNull<ForkNode>),
    /// In the child: ends what the parent's other threads had begun.
    pub inherit: unsafe fn(NonNull<ForkNode>),
    /// Its figures, if none of its locks is held.
    pub figures: unsafe fn(NonNull<ForkNode>) -> Option<EvictableRow>,
}

/// A cache's place in the list.
#[derive(Debug)]
pub struct ForkNode {
    calls: &'static ForkCalls,
    /// The previous and the next cache; written under the list's lock.
    links: UnsafeCell<[Option<NonNull<ForkNode>>; 2]>,
}

// SAFETY: the links are used under the list's lock alone; the calls are shared and constant.
unsafe impl Send for ForkNode {}
// SAFETY: no method reads or writes the links through a shared reference but under the list's lock.
unsafe impl Sync for ForkNode {}

impl ForkNode {
    /// One that is in no list.
    pub const fn new(calls: &'static ForkCalls) -> Self {
        Self { calls, links: UnsafeCell::new([None; 2]) }
    }
}

/// The first cache, and the threads that wait for values that others compute.
struct List {
    first: Option<NonNull<ForkNode>>,
    waits: Waits,
}

// SAFETY: nodes stay where they are until they leave the list, and any thread may call their functions.
unsafe impl Send for List {}

static LIST: Lock<List, { rank::EVICTABLE_CACHES }> = Lock::new(List { first: None, waits: Waits::new() });

impl List {
    fn each(&self, mut work: impl FnMut(NonNull<ForkNode>)) {
        let mut at = self.first;
        while let Some(node) = at {
            // SAFETY: a node in the list is valid, and the list's lock is held by this thread.
            at = unsafe { (*node.as_ref().links.get())[1] };
            work(node);
        }
    }
}

/// Adds a cache.
///
/// # Safety
/// The node stays where it is, with the cache that its calls expect around it, until [`remove`].
pub unsafe fn add(platform: &Linux, node: NonNull<ForkNode>) {
    let mut list = LIST.lock(platform);
    // SAFETY: the caller's node, in no list yet, and nodes of the list, all valid; their links are this lock's.
    unsafe {
        *node.as_ref().links.get() = [None, list.first];
        if let Some(next) = list.first {
            (*next.as_ref().links.get())[0] = Some(node);
        }
    }
    list.first = Some(node);
}

/// Takes a cache out.
///
/// # Safety
/// The node is in the list.
pub unsafe fn remove(platform: &Linux, node: NonNull<ForkNode>) {
    let mut list = LIST.lock(platform);
    // SAFETY: the node and its neighbours are in the list, thus valid, and their links are this lock's.
    unsafe {
        let [previous, next] = *node.as_ref().links.get();
        match previous {
            Some(previous) => (*previous.as_ref().links.get())[1] = next,
            None => list.first = next,
        }
        if let Some(next) = next {
            (*next.as_ref().links.get())[0] = previous;
        }
    }
}

/// Sleeps while `word`, of a cache in the list, is `seen`, or for no reason, for what the thread `runner` computes. `false`:
/// that thread waits for this one, directly or through others, and the call returns at once.
pub(super) fn wait_for(platform: &Linux, word: &AtomicU32, seen: u32, runner: usize) -> bool {
    let me = thread_pointer();
    let mut list = LIST.lock(platform);
    if word.load(Relaxed) != seen {
        return true;
    }
    if list.waits.lead_to(runner, me) {
        return false;
    }
    let mut wait = Waiting::new(me, runner, word, seen);
    let wait = &raw mut wait;
    // SAFETY: it is taken off below, before this frame ends, and the word is the caller's until then.
    unsafe { list.waits.add(wait) };
    drop(list);
    let _ = futex_wait(word, seen, None);
    LIST.lock(platform).waits.remove(wait);
    true
}

/// Takes the list's lock and all of the caches'.
pub(super) fn freeze(platform: &Linux) {
    // Looked at without the lock's guard: the lock is held until `thaw`.
    LIST.acquire(platform);
    // SAFETY: the lock is held; the nodes are valid.
    frozen_list().each(|node| unsafe { (node.as_ref().calls.freeze)(node) });
}

/// Gives them back.
///
/// # Safety
/// Follows [`freeze`] on the same thread, or its copy in the child.
pub(super) unsafe fn thaw(platform: &Linux) {
    // SAFETY: the caller froze the list, which holds valid nodes, and every cache in it.
    frozen_list().each(|node| unsafe { (node.as_ref().calls.thaw)(node) });
    // SAFETY: taken by `freeze`, without a guard.
    unsafe { LIST.release(platform) };
}

/// In the child, when the locks are given back: what other threads of the parent's had begun is ended.
pub(super) fn inherit(platform: &Linux) {
    // A fork that took no locks may have left the list's lock held.
    if let Some(mut list) = LIST.try_lock(platform) {
        list.waits = Waits::new();
        // SAFETY: a node in the list is valid, and its cache's calls expect it.
        list.each(|node| unsafe { (node.as_ref().calls.inherit)(node) });
    }
}

/// Calls `add` with the figures of each cache, for the background thread. It waits for no lock: whoever holds one may wait
/// for this thread, in an allocation that is throttled. `false`: a lock is held, and nothing or not all was told.
pub(super) fn figures(platform: &Linux, add: &mut dyn FnMut(EvictableRow)) -> bool {
    let Some(list) = LIST.try_lock(platform) else { return false };
    let mut is_whole = true;
    // SAFETY: a node in the list is valid, and its cache's calls expect it.
    list.each(|node| match unsafe { (node.as_ref().calls.figures)(node) } {
        Some(row) => add(row),
        None => is_whole = false,
    });
    is_whole
}

/// The list behind the lock that this thread holds without a guard.
fn frozen_list() -> &'static List {
    // SAFETY: this thread holds the lock, and gives no reference to the list out otherwise meanwhile.
    unsafe { LIST.held() }
}
