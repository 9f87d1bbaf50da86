//! What a program does with a cache that it made ([`crate::made_cache`]): objects one by one and in batches, limits, the
//! reserve.

use core::sync::atomic::Ordering::Relaxed;

use crate::geometry::MAX_BATCH;
use crate::heap::Heap;
use crate::made_cache::{CacheId, LIMITED, LimitError, ZERO};
use crate::percpu::Pushed;
use crate::platform::{Misuse, Platform};
use crate::stats;
use crate::unwind::OnUnwind;

impl<P: Platform> Heap<P> {
    /// An object; null when there is no memory, or the limit is reached. Its contents are those that it had when it
    /// was freed, or that `init` gave it; zero with [`crate::made_cache::Flags::zero`]; anything for other caches.
    #[inline(always)]
    pub fn cache_alloc(&self, id: CacheId) -> *mut u8 {
        if self.caches[id.number()].made.traits.load(Relaxed) & (LIMITED | ZERO) != 0 {
            return self.cache_alloc_special(id);
        }
        self.alloc_class(id.number())
    }

    #[inline(never)]
    fn cache_alloc_special(&self, id: CacheId) -> *mut u8 {
        let cache = &self.caches[id.number()];
        let traits = cache.made.traits.load(Relaxed);
        if traits & LIMITED != 0 && cache.made.count_out(1) == 0 {
            stats::add(&cache.counts.failures, 1);
            return core::ptr::null_mut();
        }
        let undo = OnUnwind(|| {
            if traits & LIMITED != 0 {
                cache.made.used.fetch_sub(1, Relaxed);
            }
        });
        let object = self.alloc_class(id.number());
        if object.is_null() {
            drop(undo);
        } else {
            core::mem::forget(undo);
        }
        if !object.is_null() && traits & ZERO != 0 {
            // SAFETY: the object is fresh and that long.
            unsafe { object.write_bytes(0, cache.shape.get().size as usize) };
        }
        object
    }

    /// Takes an object back, on whatever CPU. Named as a misuse if it is not one of the cache.
    ///
    /// # Safety
    /// Nobody uses the object any more.
    #[inline(always)]
    pub unsafe fn cache_free(&self, id: CacheId, object: *mut u8) {
        let class = id.number();
        let page = self.normal.window.page_of(object as usize);
        if page.is_none_or(|page| usize::from(self.normal.window.class_of(page)) != class) {
            return self.platform.misuse(Misuse::ForeignPointer, object as usize, self.size_of(class));
        }
        if self.caches[class].made.traits.load(Relaxed) & LIMITED != 0 {
            self.caches[class].made.used.fetch_sub(1, Relaxed);
        }
        // SAFETY: the table's slabs live on; the caller gives the object up.
        match unsafe { self.platform.push(&self.percpu.table, class, object) } {
            Pushed::Done => (),
            pushed => self.overflow(object, class, pushed),
        }
    }

    /// Fills `out` with objects, as many as can be had; returns how many. Cheaper than one by one.
    pub fn cache_alloc_batch(&self, id: CacheId, out: &mut [*mut u8]) -> usize {
        let (class, cache) = (id.number(), &self.caches[id.number()]);
        let traits = cache.made.traits.load(Relaxed);
        let granted = if traits & LIMITED != 0 { cache.made.count_out(out.len()) } else { out.len() };
        let n = self.fill(class, &mut out[..granted]);
        if n < out.len() {
            stats::add(&cache.counts.failures, (out.len() - n) as u64);
        }
        if traits & LIMITED != 0 {
            cache.made.used.fetch_sub(granted - n, Relaxed);
        }
        if traits & ZERO != 0 {
            let size = cache.shape.get().size as usize;
            // SAFETY: the objects are fresh and that long.
            out[..n].iter().for_each(|object| unsafe { object.write_bytes(0, size) });
        }
        self.housekeeping();
        n
    }

    /// Fills `out` with objects of a cache, as far as they can be had; returns how many.
    fn fill(&self, class: usize, out: &mut [*mut u8]) -> usize {
        let mut filling = Filling { heap: self, class, out, n: 0 };
        while filling.n < filling.out.len() {
            let rest = &mut filling.out[filling.n..];
            // SAFETY: the table's slabs live on.
            let mut got = unsafe { self.platform.pop_batch(&self.percpu.table, class, rest) };
            if got == 0 {
                let end = rest.len().min(MAX_BATCH);
                got = self.fetch(class, &mut rest[..end]);
                if got == 0 {
                    break;
                }
                self.percpu.note_came(&self.platform, class, got as i32);
            }
            filling.n += got;
        }
        let n = filling.n;
        core::mem::forget(filling);
        n
    }

    /// Takes objects back, as [`Heap::cache_free`] does one. Cheaper than one by one; an object that is freed twice
    /// is found out when it goes back to its slab.
    ///
    /// # Safety
    /// As [`Heap::cache_free`].
    pub unsafe fn cache_free_batch(&self, id: CacheId, objects: &[*mut u8]) {
        let (class, cache) = (id.number(), &self.caches[id.number()]);
        let window = &self.normal.window;
        let of_it = |&object: &*mut u8| {
            window.page_of(object as usize).is_some_and(|page| usize::from(window.class_of(page)) == class)
        };
        if let Some(&wrong) = objects.iter().find(|object| !of_it(object)) {
            return self.platform.misuse(Misuse::ForeignPointer, wrong as usize, self.size_of(class));
        }
        if cache.made.traits.load(Relaxed) & LIMITED != 0 {
            cache.made.used.fetch_sub(objects.len(), Relaxed);
        }
        stats::add(&cache.counts.slow_frees, objects.len() as u64);
        let mut done = 0;
        if self.platform.lockless() {
            // SAFETY: the table's slabs live on; the caller gives the objects up.
            done = unsafe { self.platform.push_batch(&self.percpu.table, class, objects) };
        }
        if done < objects.len() {
            done += self.keep(class, &objects[done..]);
        }
        let rest = &objects[done..];
        self.percpu.note_came(&self.platform, class, -(rest.len() as i32));
        for part in rest.chunks(MAX_BATCH) {
            let mut copy = [core::ptr::null_mut(); MAX_BATCH];
            copy[..part.len()].copy_from_slice(part);
            self.deposit_freed(class, &mut copy[..part.len()]);
        }
        self.housekeeping();
    }

    /// Sets how many objects may be out at a time, for a cache that was made with a limit.
    pub fn set_cache_limit(&self, id: CacheId, limit: usize) -> Result<(), LimitError> {
        let made = &self.caches[id.number()].made;
        if made.traits.load(Relaxed) & LIMITED == 0 {
            return Err(LimitError::Uncounted);
        }
        made.limit.store(limit, Relaxed);
        Ok(())
    }

    /// Sets how many free objects reclaim leaves to the cache, and sees to it that they are there, memory behind them
    /// and all. A program may use them up: they are there again when it has freed as many.
    pub fn set_cache_reserve(&self, id: CacheId, objects: usize) -> Result<(), LimitError> {
        let cache = &self.caches[id.number()];
        let g = cache.shape.get();
        cache.made.reserve.store(objects, Relaxed);
        let free = || -> usize { cache.domains().map(|d| d.slabs.lock(&self.platform).free).sum() };
        while free() < objects {
            let Some(page) = self.fresh_slab(cache, &g) else { return Err(LimitError::NoMemory) };
            for i in 0..u32::from(g.pages) {
                let word = self.normal.window.addr_of(page + i) as *mut u8;
                // SAFETY: the slab is nobody's yet; an object that was initialised keeps its contents.
                unsafe { word.write_volatile(word.read_volatile()) };
            }
            self.domain_of(cache, page).slabs.lock(&self.platform).add(&self.normal.window, &g, page);
        }
        cache.domains().for_each(|domain| self.give_empty(cache, domain));
        Ok(())
    }
}

/// Objects on their way into `out`. Dropped when an object's `init` unwinds: then the `n` that were had go back, and all are
/// counted in again.
struct Filling<'a, P: Platform> {
    heap: &'a Heap<P>,
    class: usize,
    out: &'a mut [*mut u8],
    n: usize,
}

impl<P: Platform> Drop for Filling<'_, P> {
    fn drop(&mut self) {
        self.out[..self.n].chunks(MAX_BATCH).for_each(|part| self.heap.deposit(self.class, part));
        let made = &self.heap.caches[self.class].made;
        if made.traits.load(Relaxed) & LIMITED != 0 {
            made.used.fetch_sub(self.out.len(), Relaxed);
        }
    }
}
