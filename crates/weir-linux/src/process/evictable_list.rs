//! The evictable caches of the process (crate `weir`), as `fork` and the figures see them. Their locks come before the heap's.
//! They are taken before a fork and given back after it on both sides, so that the child finds every cache whole.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use weir_core::evict::waits::{self, Waits};
use weir_core::platform::lock::{Lock, RankTurn};
use weir_core::platform::rank;
use weir_core::policy::prices::Prices;
use weir_core::telemetry::tables::EvictableRow;

use crate::arch::thread::thread_pointer;
use crate::platform::linux::Linux;

/// A cache around a fork, and its figures.
///
/// # Safety
/// It passes the same locks to both turns of a rank.
pub unsafe trait Evictable: Sync {
    /// Passes its locks to the turn of a rank.
    fn freeze(&self, turn: &RankTurn<'_, Linux>);

    /// In the child: ends what the parent's other threads had begun.
    fn inherit(&self);

    /// The figures, if none of its locks is held.
    fn figures(&self) -> Option<EvictableRow>;
}

/// A cache's place in the list.
pub struct Node {
    cache: NonNull<dyn Evictable>,
    /// The prices of its bytes, as the background thread found them last.
    pub prices: Prices,
    /// The previous and the next cache; read and written under the list's lock.
    links: Cell<[Option<NonNull<Node>>; 2]>,
}

// SAFETY: the links are used under the list's lock alone; the cache is `Sync`.
unsafe impl Send for Node {}
// SAFETY: no method reads or writes the links through a shared reference but under the list's lock.
unsafe impl Sync for Node {}

impl Node {
    /// The node of a cache, in no list yet.
    pub fn new<E: Evictable + 'static>(cache: NonNull<E>) -> Self {
        Self { cache, prices: Prices::new(), links: Cell::new([None; 2]) }
    }
}

/// The first cache, and the threads that wait for values that others compute.
struct List {
    first: Option<NonNull<Node>>,
    waits: Waits,
}

// SAFETY: nodes stay where they are until they leave the list, and any thread may call their functions.
unsafe impl Send for List {}

static LIST: Lock<List, { rank::EVICTABLE_CACHES }> = Lock::new(List { first: None, waits: Waits::new() });

impl List {
    fn each(&self, mut work: impl FnMut(&dyn Evictable, &Prices)) {
        let mut at = self.first;
        while let Some(node) = at {
            // SAFETY: a node in the list is valid with its cache, and the list's lock is held by this thread.
            let (node, cache) = unsafe { (node.as_ref(), node.as_ref().cache.as_ref()) };
            at = node.links.get()[1];
            work(cache, &node.prices);
        }
    }
}

/// Adds a cache to those that a `fork` is to find whole.
///
/// # Safety
/// The node and its cache stay where they are until [`remove`].
pub unsafe fn add(platform: &Linux, node: NonNull<Node>) {
    let mut list = LIST.lock(platform);
    // SAFETY: the caller's node, in no list yet, and a node of the list, both valid; their links are this lock's.
    unsafe {
        node.as_ref().links.set([None, list.first]);
        if let Some(next) = list.first {
            next.as_ref().links.set([Some(node), next.as_ref().links.get()[1]]);
        }
    }
    list.first = Some(node);
}

/// Takes a cache out.
///
/// # Safety
/// The node is in the list.
pub unsafe fn remove(platform: &Linux, node: NonNull<Node>) {
    let mut list = LIST.lock(platform);
    // SAFETY: the node and its neighbours are in the list, thus valid, and their links are this lock's.
    unsafe {
        let [previous, next] = node.as_ref().links.get();
        match previous {
            Some(previous) => previous.as_ref().links.set([previous.as_ref().links.get()[0], next]),
            None => list.first = next,
        }
        if let Some(next) = next {
            next.as_ref().links.set([previous, next.as_ref().links.get()[1]]);
        }
    }
}

/// Sleeps while `word`, of a cache in the list, is `seen`, or for no reason, for what the thread `runner` computes
/// ([`thread_pointer`] tells threads apart). `false`: that thread waits for this one, directly or through others, and the call
/// returns at once.
pub fn wait_for(platform: &Linux, word: &AtomicU32, seen: u32, runner: usize) -> bool {
    waits::wait_for((&LIST, |list| &mut list.waits), platform, (thread_pointer(), runner), (word, seen))
}

/// Passes the list's lock and all of the caches' to the turn of a rank.
pub(super) fn freeze(turn: &RankTurn<'_, Linux>) {
    turn.lock(&LIST);
    if (rank::EVICTABLE_SHARD..=rank::EVICTABLE_DUEL).contains(&turn.rank()) {
        // SAFETY: this thread has the list's lock whenever it is the caches' turn, as its rank is the lowest. It gives no reference
        // to the list out otherwise meanwhile.
        unsafe { LIST.held() }.each(|cache, _| cache.freeze(turn));
    }
}

/// In the child, when the locks are given back: what other threads of the parent's had begun is ended.
pub(super) fn inherit(platform: &Linux) {
    // A fork that took no locks may have left the list's lock held.
    if let Some(mut list) = LIST.try_lock(platform) {
        list.waits = Waits::new();
        list.each(|cache, _| cache.inherit());
    }
}

/// Calls `add` with the figures of each cache, and where its prices are told, for the background thread. It waits for no lock:
/// whoever holds one may wait for this thread, in an allocation that is throttled. `false`: a lock is held, and nothing or not all was told.
pub(super) fn figures(platform: &Linux, add: &mut dyn FnMut(EvictableRow, &Prices)) -> bool {
    let Some(list) = LIST.try_lock(platform) else { return false };
    let mut is_whole = true;
    list.each(|cache, prices| match cache.figures() {
        Some(row) => add(row, prices),
        None => is_whole = false,
    });
    is_whole
}
