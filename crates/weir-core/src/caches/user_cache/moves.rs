//! Objects of caches with a [move callback](super::move_callback) leave sparse slabs, so that these become empty.
//!
//! Reclaim only says that it wishes so ([`Caches::wish_moves`]), between trim and eviction. The platform's thread for a program's
//! own code asks then, object by object ([`Caches::run_moves`]). [`crate::caches::slab::sparse`] says which objects, and where to.
//!
//! **The protocol**, for each object:
//!
//! 1. Under the lock of the slabs a place is taken. Nobody else has it then.
//! 2. Under no lock the callback is asked. The program looks the object up in its own table, under its own lock. It may find
//!    nothing: what is in a CPU's bucket or a depot is not free in its slab, and the program may free an object between the look
//!    and the call. Even the slab may have gone meanwhile, as it is not held. So an object is known by what the program finds.
//! 3. Yes: the old place goes back to its slab, past buckets and depots. No: the new place does.
//!
//! *The interleaving that this excludes*: the place is chosen, and the program gets it by an allocation before the callback does.
//!
//! **It ends.** Moves do by their rule. A slab of which an object was refused is not asked again before an object of it comes or
//! goes. A place that is given back leaves the target as it was. After a pass in which nothing was asked reclaim wishes for none
//! until another number of objects is free: a pass looks at the whole class map.
//!
//! **The end of the cache** waits for the callback that runs, as for finalizers ([`crate::caches::cache::life`]). What is asked
//! looks at each object whether the cache still lives.

use core::sync::atomic::Ordering::Relaxed;

use crate::base::units::{Bytes, PageNo, Pages};
use crate::caches::cache::Cache;
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::FIRST_USER;
use crate::caches::heap_caches::Caches;
use crate::caches::slab::pieces::Pieces;
use crate::caches::user_cache::move_callback::Move;
use crate::platform::Platform;

/// Passes over a cache for one wish. After the second there is little to move, if the program frees nothing meanwhile.
const PASSES: usize = 4;

/// An object that is to be asked.
struct Asked {
    /// Its number in its slab.
    number: usize,
    from: *mut u8,
    to: *mut u8,
}

impl<P: Platform> Caches<P> {
    /// Sets the callback of cache `number`, for good. `false`: it has one, or its free objects keep what `init` made.
    ///
    /// # Safety
    /// The function may be called with the argument, on any thread, until the cache has been destroyed. It does what [`Move`] says,
    /// and does not destroy the cache.
    pub(crate) unsafe fn set_move(&self, number: usize, function: Move, argument: *mut u8) -> bool {
        let cache = self.table.get(number);
        if cache.user.is_initialised() {
            return false;
        }
        let _one_at_a_time = self.table.lock(&self.pages.platform);
        cache.moves.set(function, argument)
    }

    /// Has the platform's thread ask the objects of sparse slabs, where so much is free that it is worth it.
    pub(crate) fn wish_moves(&self) {
        let caches = self.reclaimable().filter(|&number| number >= FIRST_USER).map(|number| self.table.get(number));
        let mut any = false;
        let is_worth_it =
            |cache: &&Cache| self.is_wasteful(cache) && !cache.moves.is_settled(self.free_in_slabs(cache));
        for cache in caches.filter(|cache| cache.moves.is_there()).filter(is_worth_it) {
            cache.moves.want();
            any = true;
        }
        if any {
            self.pages.platform.wake_finalizer();
        }
    }

    /// Asks as reclaim wished; returns how many objects moved. Calls the caches' own functions: to be called where a program's
    /// code may run, by a thread that holds nothing of the program's.
    pub(crate) fn run_moves(&self) -> usize {
        let numbers = self.table.numbers().filter(|&number| number >= FIRST_USER);
        let wanted = numbers.filter(|&number| self.table.get(number).moves.take_wish());
        wanted.map(|number| self.move_objects(number)).sum()
    }

    /// Passes over the slabs of cache `number`, until nothing moves.
    fn move_objects(&self, number: usize) -> usize {
        let (cache, platform) = (self.table.get(number), &self.pages.platform);
        let Some(callback) = self.begin_moves(cache) else { return 0 };
        let mut moved = 0;
        for _ in 0..PASSES {
            let (asked, now) = self.pass_for_moves(number, callback);
            cache.moves.passed(asked, self.free_in_slabs(cache));
            moved += now;
            if now == 0 || !self.is_wasteful(cache) {
                break;
            }
        }
        let bytes = Bytes(cache.shape.get().size as usize) * moved;
        cache.life.end_finalizers(platform);
        if moved > 0 {
            self.pages.events.freed(platform, bytes);
        }
        moved
    }

    /// The callback of a live cache, which cannot be destroyed before [`crate::caches::cache::life::Life::end_finalizers`].
    fn begin_moves(&self, cache: &Cache) -> Option<(Move, *mut u8)> {
        let _batch = self.pages.batch(0);
        // First: what is read before may be of the cache that had the number before.
        if !cache.is_live() || cache.user.is_exempt() {
            return None;
        }
        let callback = cache.moves.get()?;
        cache.life.begin_finalizers();
        Some(callback)
    }

    /// Whether on some node so much is free in slabs that moves are worth it.
    fn is_wasteful(&self, cache: &Cache) -> bool {
        let (g, reserve) = (cache.shape.get(), cache.user.reserve.load(Relaxed));
        cache.domains().any(|domain| domain.slabs.lock(&self.pages.platform).is_wasteful(&g, reserve))
    }

    fn free_in_slabs(&self, cache: &Cache) -> usize {
        cache.domains().map(|domain| domain.slabs.lock(&self.pages.platform).free).sum()
    }

    fn pass_for_moves(&self, number: usize, callback: (Move, *mut u8)) -> (usize, usize) {
        let (cache, window) = (self.table.get(number), &self.pages.normal);
        let g = cache.shape.get();
        // Slabs begin at a multiple of the power of two above their length.
        let step = Pages(usize::from(g.pages).next_power_of_two());
        let (mut page, mut asked, mut moved) = (PageNo(0), 0, 0);
        while page < window.top() && cache.is_live() {
            if window.class_of(page) == g.class() {
                let of_slab = self.empty_slab(number, callback, page);
                (asked, moved) = (asked + of_slab.0, moved + of_slab.1);
            }
            page += step;
        }
        (asked, moved)
    }

    /// Asks the objects of the slab at `page`, if it is one of cache `number` and worth it; how many, and how many moved.
    fn empty_slab(&self, number: usize, (function, argument): (Move, *mut u8), page: PageNo) -> (usize, usize) {
        let cache = self.table.get(number);
        let (g, domain) = (cache.shape.get(), self.domain_of(cache, page));
        let (mut asked, mut moved, mut first) = (0, 0, 0);
        while cache.is_live()
            && let Some(Asked { number: object, from, to }) = self.next_to_move(cache, domain, (page, first))
        {
            (asked, first) = (asked + 1, object + 1);
            // SAFETY: whoever set the callback answers for it until the cache's end, which waits for this pass. `to` is a free
            // object that nobody else has.
            if unsafe { function(from, to, g.size as usize, argument) } {
                self.to_slabs(number, &[from]);
                moved += 1;
                continue;
            }
            let mut slabs = domain.slabs.lock(&self.pages.platform);
            slabs.refused(&self.pages.normal, &g, page, to as usize);
            let has_empty = slabs.empty > 0;
            drop(slabs);
            if has_empty {
                self.give_empty(cache, domain);
            }
        }
        (asked, moved)
    }

    /// The next object of a slab that should move, with a place that was taken for it.
    fn next_to_move(&self, cache: &Cache, domain: &Domain, at: (PageNo, usize)) -> Option<Asked> {
        let (g, window, reserve) = (cache.shape.get(), &self.pages.normal, cache.user.reserve.load(Relaxed));
        let mut slabs = domain.slabs.lock(&self.pages.platform);
        if !slabs.is_wasteful(&g, reserve) {
            return None;
        }
        let mut taken = Pieces::NONE;
        let number = slabs.next_to_move(window, &g, at, &mut taken)?;
        let (fresh, again) = slabs.take_resident();
        drop(slabs);
        self.pages.events.resident(&self.pages.platform, fresh, again);
        let from = (window.addr_of(at.0) + number * g.size as usize) as *mut u8;
        let mut to = core::ptr::null_mut();
        taken.for_each(window, &g, |place| to = place);
        Some(Asked { number, from, to })
    }
}
