//! Calls of a program on a user cache ([`crate::caches::user_cache`]): objects one by one and in batches, the limit,
//! the reserve.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use crate::base::units::{PAGE, Pages};
use crate::base::unwind::OnUnwind;
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::MAX_BATCH;
use crate::caches::heap_caches::Caches;
use crate::caches::slab::pieces::Pieces;
use crate::caches::user_cache::CacheId;
use crate::caches::user_cache::spec::LimitError;
use crate::caches::user_cache::spec::{LIMITED, ZERO};
use crate::pages::Short;
use crate::platform::Platform;
use crate::telemetry::stats;

impl<P: Platform> Caches<P> {
    /// Allocates an object of a user cache; null where its `init` failed.
    #[inline(always)]
    fn alloc(&self, id: CacheId) -> Result<*mut u8, Short> {
        // SAFETY: what the table's entries point to is never unmapped, and every class has a bucket, if an empty one.
        let object = unsafe { self.pages.platform.pop(&self.cpu.table, id.class()) };
        if !object.is_null() {
            return Ok(object);
        }
        self.pop_locked(id.number()).map_or_else(|| self.refill(id.number()), Ok)
    }

    /// Whether a cache needs [`Caches::alloc_counted`].
    #[inline(always)]
    pub(crate) fn is_plain(&self, id: CacheId) -> bool {
        self.table.get(id.number()).user.traits.load(Relaxed) & (LIMITED | ZERO) == 0
    }

    /// An object of a cache with a limit or of zeros; null where the limit is reached.
    #[inline(never)]
    pub(crate) fn alloc_counted(&self, id: CacheId) -> Result<*mut u8, Short> {
        let cache = self.table.get(id.number());
        let traits = cache.user.traits.load(Relaxed);
        if traits & LIMITED != 0 && cache.user.count_out(1) == 0 {
            self.note_failures(id.number(), 1);
            return Ok(core::ptr::null_mut());
        }
        let undo = OnUnwind(|| {
            if traits & LIMITED != 0 {
                cache.user.used.fetch_sub(1, Relaxed);
            }
        });
        // Dropped on unwinding, and where there is no object: it is counted in again.
        let object = self.alloc(id)?;
        if object.is_null() {
            return Ok(object);
        }
        core::mem::forget(undo);
        if traits & ZERO != 0 {
            // SAFETY: the object was allocated just now, so it is this thread's alone, and objects of the cache are
            // that long.
            unsafe { object.write_bytes(0, cache.shape.get().size as usize) };
        }
        Ok(object)
    }

    /// Whether `object` lies in a slab of the cache.
    #[inline(always)]
    pub(crate) fn is_of(&self, id: CacheId, object: *mut u8) -> bool {
        let window = &self.pages.normal;
        window.page_of(object as usize).is_some_and(|page| {
            window.class_of(page).index() == id.number() || self.is_of_unbucketed(page, id.number())
        })
    }

    /// `n` objects come back.
    #[inline(always)]
    pub(crate) fn count_in(&self, id: CacheId, n: usize) {
        let user = &self.table.get(id.number()).user;
        if user.traits.load(Relaxed) & LIMITED != 0 {
            user.used.fetch_sub(n, Relaxed);
        }
    }

    /// The next free of an object is none of an allocation that succeeded.
    pub(crate) fn note_refused(&self, id: CacheId) {
        self.table.get(id.number()).user.frees_before.fetch_add(1, Relaxed);
    }

    /// Fills `out` with objects, as many as can be had; returns how many, and whether pages are short for the rest.
    pub(crate) fn alloc_batch(&self, id: CacheId, out: &mut [*mut u8]) -> (usize, Result<(), Short>) {
        let cache = self.table.get(id.number());
        let traits = cache.user.traits.load(Relaxed);
        let granted = if traits & LIMITED != 0 { cache.user.count_out(out.len()) } else { out.len() };
        let (n, filled) = self.fill(id, &mut out[..granted]);
        if traits & LIMITED != 0 {
            cache.user.used.fetch_sub(granted - n, Relaxed);
        }
        if traits & ZERO != 0 {
            let size = cache.shape.get().size as usize;
            // SAFETY: these objects were allocated just now, so they are this thread's alone, and objects of the cache
            // are that long.
            out[..n].iter().for_each(|object| unsafe { object.write_bytes(0, size) });
        }
        (n, filled)
    }

    /// Fills `out` with objects of a cache, as far as they can be had; returns how many.
    fn fill(&self, id: CacheId, out: &mut [*mut u8]) -> (usize, Result<(), Short>) {
        let mut filled = Ok(());
        let number = id.number();
        let mut filling = Filling { caches: self, number, out, n: 0 };
        while filling.n < filling.out.len() {
            let rest = &mut filling.out[filling.n..];
            // SAFETY: what the table's entries point to is never unmapped, and every class has a bucket, if an empty
            // one.
            let mut got = unsafe { self.pages.platform.pop_batch(&self.cpu.table, id.class(), rest) };
            if got == 0 {
                let end = rest.len().min(MAX_BATCH);
                match self.fetch(number, &mut rest[..end]) {
                    Ok(0) => break,
                    Ok(n) => got = n,
                    Err(short) => {
                        filled = Err(short);
                        break;
                    }
                }
                self.cpu.note_came(&self.pages.platform, id.class(), got as i32);
            }
            filling.n += got;
        }
        let n = filling.n;
        core::mem::forget(filling);
        (n, filled)
    }

    /// Takes objects of the cache back.
    ///
    /// # Safety
    /// They are the cache's, and no thread uses them any more.
    pub(crate) unsafe fn free_batch(&self, id: CacheId, objects: &[*mut u8]) {
        let (number, cache) = (id.number(), self.table.get(id.number()));
        self.count_in(id, objects.len());
        stats::add(&cache.counts.slow_frees, objects.len() as u64);
        let mut done = 0;
        if self.pages.platform.lockless() {
            // SAFETY: what the table's entries point to is never unmapped. Every class has a bucket, if a full one. The
            // caller gave the objects up.
            done = unsafe { self.pages.platform.push_batch(&self.cpu.table, id.class(), objects) };
        }
        if done < objects.len() {
            done += self.fill_bucket(id.class(), &objects[done..]);
        }
        let rest = &objects[done..];
        self.cpu.note_came(&self.pages.platform, id.class(), -(rest.len() as i32));
        for part in rest.chunks(MAX_BATCH) {
            let mut copy = [core::ptr::null_mut(); MAX_BATCH];
            copy[..part.len()].copy_from_slice(part);
            self.flush_freed(number, &mut copy[..part.len()]);
        }
    }

    /// Sets the limit of a cache that was made with one: how many objects may be out at a time.
    pub(crate) fn set_limit(&self, id: CacheId, limit: usize) -> Result<(), LimitError> {
        let user = &self.table.get(id.number()).user;
        if user.traits.load(Relaxed) & LIMITED == 0 {
            return Err(LimitError::Uncounted);
        }
        user.limit.store(limit, Relaxed);
        Ok(())
    }

    /// Free objects that reclaim leaves to the cache.
    pub(crate) fn reserve(&self, id: CacheId) -> usize {
        self.table.get(id.number()).user.reserve.load(Relaxed)
    }

    /// Undoes a [`Caches::set_reserve`] of `objects` that failed: the reserve is `former` again, and what it does not need of the
    /// slabs goes back. Where another call has set the reserve meanwhile, that one counts.
    pub(crate) fn reset_reserve(&self, id: CacheId, objects: usize, former: usize) {
        let cache = self.table.get(id.number());
        let _ = cache.user.reserve.compare_exchange(objects, former, Relaxed, Relaxed);
        cache.domains().for_each(|domain| self.give_empty(cache, domain));
    }

    /// Sets how many free objects reclaim leaves to the cache, and sees to it that they are there, memory behind them
    /// and all. A program may use them up: they are there again when it has freed as many. `false`: `init` failed. What
    /// could be had stays the cache's, unless [`Caches::reset_reserve`] follows. `has_room` says whether so many bytes may still
    /// become resident. It is asked before each slab for all that is missing.
    pub(crate) fn set_reserve(
        &self,
        id: CacheId,
        objects: usize,
        has_room: &dyn Fn(usize) -> bool,
    ) -> Result<bool, Short> {
        let cache = self.table.get(id.number());
        let g = cache.shape.get();
        cache.user.reserve.store(objects, Relaxed);
        let free =
            || -> usize { cache.domains().map(|d| d.slabs.lock(&self.pages.platform).free_with_memory(&g)).sum() };
        let missing = || objects.checked_sub(free()).filter(|&missing| missing > 0);
        let has_room = |missing: usize| has_room(missing.saturating_mul(g.size as usize));
        let has_gaps = |domain: &Domain| domain.slabs.lock(&self.pages.platform).has_gaps();
        if objects > 0 && cache.domains().any(has_gaps) && has_room(missing().unwrap_or(0)) {
            self.put_memory_behind(id.number(), objects);
        }
        while let Some(missing) = missing() {
            if !has_room(missing) {
                return Err(Short);
            }
            let Some(page) = self.fresh_slab(cache, &g)? else { return Ok(false) };
            for i in (0..usize::from(g.pages)).map(Pages) {
                let word = self.pages.normal.addr_of(page + i) as *mut u8;
                // SAFETY: the slab is on no list yet, so its pages are this thread's alone. Each is mapped, and the
                // word is written back as it was, so that an initialised object keeps its contents.
                unsafe { word.write_volatile(word.read_volatile()) };
            }
            self.domain_of(cache, page).slabs.lock(&self.pages.platform).add(&self.pages.normal, &g, page);
        }
        cache.domains().for_each(|domain| self.give_empty(cache, domain));
        Ok(true)
    }

    /// Has memory behind so many free objects, as far as there are any: those that will be handed out first. Their pages may have
    /// been released, or merged. A child that is forked meanwhile has them in use for good.
    fn put_memory_behind(&self, number: usize, objects: usize) {
        let cache = self.table.get(number);
        if cache.user.is_initialised() {
            // What is free keeps its contents, so it was neither.
            return;
        }
        let (g, window, platform) = (cache.shape.get(), &self.pages.normal, &self.pages.platform);
        // Each holds the address of the one before.
        let (mut last, mut count) = (null_mut::<u8>(), 0);
        for domain in cache.domains() {
            while count < objects {
                let mut taken = Pieces::NONE;
                let mut slabs = domain.slabs.lock(platform);
                let got = slabs.take(window, &g, MAX_BATCH.min(objects - count), &mut taken);
                let (fresh, again) = slabs.take_resident();
                drop(slabs);
                self.pages.events.resident(platform, fresh, again);
                // SAFETY: a free object of at least two words, which nobody else has as long as it is out of its slab.
                taken.for_each(window, &g, |object| unsafe {
                    // The first page, and each that begins within it.
                    object.cast::<*mut u8>().write(core::mem::replace(&mut last, object));
                    let (size, first) = (g.size as usize, PAGE - object.addr() % PAGE);
                    for at in (first..size).step_by(PAGE) {
                        object.add(at).write_volatile(object.add(at).read_volatile());
                    }
                });
                count += got;
                if got == 0 {
                    break;
                }
            }
        }
        while !last.is_null() {
            let (mut batch, mut n) = ([null_mut(); MAX_BATCH], 0);
            while n < MAX_BATCH && !last.is_null() {
                (batch[n], n) = (last, n + 1);
                // SAFETY: written above; the object is this function's still.
                last = unsafe { last.cast::<*mut u8>().read() };
            }
            self.to_slabs(number, &batch[..n]);
        }
    }
}

/// Objects on their way into `out`. Dropped when an object's `init` unwinds: then the `n` that were had go back, and
/// all are counted in again.
struct Filling<'a, P: Platform> {
    caches: &'a Caches<P>,
    number: usize,
    out: &'a mut [*mut u8],
    n: usize,
}

impl<P: Platform> Drop for Filling<'_, P> {
    fn drop(&mut self) {
        self.out[..self.n].chunks(MAX_BATCH).for_each(|part| self.caches.flush(self.number, part));
        let user = &self.caches.table.get(self.number).user;
        if user.traits.load(Relaxed) & LIMITED != 0 {
            user.used.fetch_sub(self.out.len(), Relaxed);
        }
    }
}
