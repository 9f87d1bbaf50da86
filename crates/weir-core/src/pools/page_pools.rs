//! The pools of a heap, the window that they share, and the time at which the balancer tends them next.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use super::page_pool::PagePool;
use super::squeeze::Squeeze;
use super::visits::Departures;
use crate::base::time::Time;
use crate::base::units::Pages;
use crate::pages::HeapPages;
use crate::platform::lock::{Lock, RankTurn};
use crate::platform::{Platform, Wait, Workers, rank};

/// The pools of a heap, by ascending number.
pub struct PagePools {
    pub(super) list: Lock<PoolList, { rank::PAGE_POOLS }>,
    departures: Departures,
    pub(super) squeeze: Squeeze,
    /// Turn of the goal that was an event last.
    pub(super) signaled: AtomicUsize,
    /// When the balancer tends the pools next, ns; 0: nothing is due.
    due: AtomicU64,
    /// Pages given to the zones in windows that the balancer has not released yet.
    squeezed: AtomicUsize,
    count: AtomicUsize,
}

/// List of pools, under its lock.
pub(super) struct PoolList {
    first: AtomicPtr<PagePool>,
    /// Null: there is none.
    last: AtomicPtr<PagePool>,
    last_number: u64,
}

impl PoolList {
    const fn new() -> Self {
        Self { first: AtomicPtr::new(null_mut()), last: AtomicPtr::new(null_mut()), last_number: 0 }
    }

    /// All pools; whoever has the reference has the lock.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PagePool> {
        self.from(&self.first)
    }

    /// Pools from a link of the list on.
    fn from<'a>(&'a self, link: &'a AtomicPtr<PagePool>) -> impl Iterator<Item = &'a PagePool> {
        // SAFETY: a pool stays where it is until it has left the list, for which it takes the lock that the caller has.
        let at = |at: &AtomicPtr<PagePool>| unsafe { at.load(Acquire).as_ref() };
        core::iter::successors(at(link), move |pool| at(&pool.next))
    }

    fn append(&self, pool: NonNull<PagePool>, new: &PagePool) {
        let last = self.last.swap(pool.as_ptr(), Relaxed);
        new.prev.store(last, Relaxed);
        // SAFETY: as in `from`: the last one has not left the list.
        let last = unsafe { last.as_ref() };
        last.map_or(&self.first, |last| &last.next).store(pool.as_ptr(), SeqCst);
    }

    /// Takes a pool out; whether it was in. Its link leads to itself from then on, which no listed pool's does.
    fn take_out(&self, pool: &PagePool) -> bool {
        if !pool.is_listed() {
            return false;
        }
        let (prev, next) = (pool.prev.load(Relaxed), pool.next.load(Relaxed));
        // SAFETY: as in `from`: the neighbours of a listed pool have not left the list.
        let (before, behind) = unsafe { (prev.as_ref(), next.as_ref()) };
        before.map_or(&self.first, |before| &before.next).store(next, SeqCst);
        behind.map_or(&self.last, |behind| &behind.prev).store(prev, Relaxed);
        pool.next.store(core::ptr::from_ref(pool).cast_mut(), SeqCst);
        true
    }
}

/// The pools with the pages that they take from and give to.
pub struct PoolsOn<'a, P: Platform> {
    pub(super) pools: &'a PagePools,
    pub(super) pages: &'a HeapPages<P>,
}

impl<P: Platform> PoolsOn<'_, P> {
    pub(super) fn platform(&self) -> &P {
        &self.pages.platform
    }
}

impl PagePools {
    /// No pools.
    pub(crate) const fn new() -> Self {
        Self {
            list: Lock::new(PoolList::new()),
            departures: Departures::new(),
            squeeze: Squeeze::new(),
            signaled: AtomicUsize::new(usize::MAX),
            due: AtomicU64::new(0),
            squeezed: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
        }
    }

    /// The pools on the pages of a heap.
    pub(crate) fn on<'a, P: Platform>(&'a self, pages: &'a HeapPages<P>) -> PoolsOn<'a, P> {
        PoolsOn { pools: self, pages }
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Makes a pool known.
    ///
    /// # Safety
    /// It lives, where it is, until [`PagePools::remove`] returns, is added once, and is used through shared references
    /// alone meanwhile. No other heap's calls get it.
    pub(crate) unsafe fn add<P: Wait>(&self, platform: &P, pool: NonNull<PagePool>) {
        let mut list = self.list.lock(platform);
        list.last_number += 1;
        // SAFETY: the caller's promise.
        let new = unsafe { pool.as_ref() };
        new.number.store(list.last_number, Relaxed);
        new.inner.lock(platform).seen = self.squeeze.events.last();
        list.append(pool, new);
        self.count.fetch_add(1, Relaxed);
    }

    /// Forgets a pool; when this returns, no other thread visits it.
    pub(crate) fn remove<P: Wait>(&self, platform: &P, pool: &PagePool) {
        let list = self.list.lock(platform);
        if list.take_out(pool) {
            self.count.fetch_sub(1, Relaxed);
        }
        drop(list);
        self.departures.wait_for_none(platform, &pool.visits);
    }

    /// Calls `f` with each pool, without the lock of the list; begins with another one at each `turn`. A pool is left
    /// only when the next one has been found by its link. So a walk of n pools looks at n, not at n * n.
    pub(super) fn each<P: Wait>(&self, platform: &P, turn: usize, mut f: impl FnMut(&PagePool)) {
        let count = self.count.load(Relaxed);
        if count == 0 {
            return;
        }
        let first = self.list.lock(platform).iter().nth(turn % count).map_or(0, |pool| pool.number.load(Relaxed));
        for (last, end) in [(first.saturating_sub(1), u64::MAX), (0, first)] {
            let mut next = self.enter_next(platform, None, last, end);
            while let Some(pool) = next {
                // SAFETY: it is visited, so that it stays until it is left.
                let visited = unsafe { pool.as_ref() };
                f(visited);
                next = self.enter_next(platform, Some(visited), visited.number.load(Relaxed), end);
                // A pool that is about to go may be gone after this.
                self.departures.leave(platform, &visited.visits);
            }
        }
    }

    /// Visits the next pool behind number `last`, which is that of `visited`, and before number `end`.
    fn enter_next<P: Wait>(
        &self,
        platform: &P,
        visited: Option<&PagePool>,
        last: u64,
        end: u64,
    ) -> Option<NonNull<PagePool>> {
        let list = self.list.lock(platform);
        let is_next = |pool: &&PagePool| (last + 1..end).contains(&pool.number.load(Relaxed));
        let listed = visited.filter(|visited| visited.is_listed());
        let pool = list.from(listed.map_or(&list.first, |listed| &listed.next)).find(is_next)?;
        pool.visits.enter();
        Some(NonNull::from(pool))
    }

    // ---- pressure, and the time --------------------------------------------------------------------------------

    /// A pressure event at `now`: see [`Squeeze::signal`].
    pub(crate) fn signal<P: Wait>(&self, platform: &P, now: Time) {
        self.squeeze.signal(platform, now);
    }

    /// `pages` were given to the zones in a window: the balancer is to release them.
    pub(super) fn note_squeezed(&self, pages: Pages) {
        self.squeezed.fetch_add(pages.0, Relaxed);
    }

    /// Takes the pages that the balancer is to release.
    pub(crate) fn take_squeezed(&self) -> Pages {
        Pages(self.squeezed.swap(0, Relaxed))
    }

    /// The balancer is to tend the pools at `at`, or before.
    pub(super) fn tend_at<P: Workers>(&self, platform: &P, at: Time) {
        let earlier = |due: u64| (due == 0 || at.0 < due).then_some(at.0);
        if self.due.fetch_update(SeqCst, SeqCst, earlier).is_ok() && platform.has_balancer_thread() {
            platform.wake_balancer();
        }
    }

    /// When the balancer is to tend the pools, ns.
    pub(crate) fn due(&self) -> Option<Time> {
        Some(Time(self.due.load(SeqCst))).filter(|&due| due > Time::ZERO)
    }

    /// Whether the pools are to be tended now; then nothing is due any more.
    pub(crate) fn take_due(&self, now: Time) -> bool {
        self.due.fetch_update(SeqCst, SeqCst, |due| (due != 0 && due <= now.0).then_some(0)).is_ok()
    }

    // ---- fork --------------------------------------------------------------------------------------------------

    /// Passes its locks to the turn of a rank.
    pub(super) fn freeze<P: Wait>(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.list);
        // SAFETY: this thread has the list's lock whenever it is the pools' turn, as that lock's rank is the lower one.
        turn.locks(|| unsafe { self.list.held() }.iter().map(|pool| &pool.inner));
    }

    /// In a forked child: no other thread visits a pool, sleeps or waits here, and nothing is due.
    pub(crate) fn inherit<P: Wait>(&self, platform: &P) {
        self.list.lock(platform).iter().for_each(|pool| pool.visits.inherit());
        self.departures.inherit();
        self.squeeze.events.inherit();
        self.due.store(0, SeqCst);
    }
}
