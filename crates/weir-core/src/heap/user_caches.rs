//! User caches: what a program does with them.

use core::ptr::null_mut;

use super::Heap;
use super::view::view;
use crate::base::invalid_free::InvalidFree;
use crate::base::units::Bytes;
use crate::base::unwind::OnUnwind;
use crate::caches::figures::CacheStats;
use crate::caches::user_cache::{Busy, CacheId, LimitError, MakeError, Move, Spec};
use crate::pages::Short;
use crate::platform::Platform;
use crate::platform::cpu_table::Pushed;

view! {
    /// Object caches of a program.
    pub struct UserCaches;
    /// A program's object caches.
    fn user_caches;
}

impl<P: Platform> UserCaches<'_, P> {
    /// Makes a cache. O(numbers with buckets).
    pub fn make(self, spec: &Spec<'_>) -> Result<CacheId, MakeError> {
        self.heap.caches.make(spec)
    }

    /// Destroys a cache all of whose objects are back, and gives its number back. Waits for reclaim and for finalizers that work
    /// on some of them.
    ///
    /// # Safety
    /// The cache is not used meanwhile, nor afterwards if this succeeds.
    pub unsafe fn destroy(self, id: CacheId) -> Result<(), Busy> {
        // SAFETY: the caller uses the cache neither meanwhile nor afterwards, which is all that `destroy` demands.
        unsafe { self.heap.caches.destroy(id) }
    }

    /// An object; null when there is no memory, or the limit is reached. Its contents are those that it had when it
    /// was freed, or that `init` gave it; zero with [`crate::caches::user_cache::Flags::zero`]; anything for other caches.
    #[inline(always)]
    pub fn alloc(self, id: CacheId) -> *mut u8 {
        if !self.heap.caches.is_plain(id) {
            return self.alloc_counted(id);
        }
        // SAFETY: what the table's entries point to is never unmapped, and every class has a bucket, if an empty one.
        let object = unsafe { self.heap.platform().pop(&self.heap.caches.cpu.table, id.class()) };
        if object.is_null() { self.heap.refill(id.number()) } else { object }
    }

    /// The fast path of [`UserCaches::alloc`] alone: null where there is more to do.
    #[inline(always)]
    pub fn alloc_fast(self, id: CacheId) -> *mut u8 {
        if !self.heap.caches.is_plain(id) {
            return null_mut();
        }
        // SAFETY: the table's slabs live as long as the heap.
        unsafe { self.heap.platform().pop(&self.heap.caches.cpu.table, id.class()) }
    }

    #[inline(never)]
    fn alloc_counted(self, id: CacheId) -> *mut u8 {
        let alloc = || self.heap.caches.alloc_counted(id);
        let object =
            alloc().or_else(|_| self.heap.direct().reclaim_for(self.heap.caches.slab_bytes(id.number()), alloc));
        if object.is_err() {
            self.heap.caches.note_failures(id.number(), 1);
        }
        self.heap.direct().slow_path_ends();
        object.unwrap_or(null_mut())
    }

    /// Takes an object back, on whatever CPU. Named as an invalid free if it is not one of the cache.
    ///
    /// # Safety
    /// The object is not used any more.
    #[inline(always)]
    pub unsafe fn free(self, id: CacheId, object: *mut u8) {
        if !self.heap.caches.is_of(id, object) {
            let size = self.heap.caches.size_of(id.number());
            return self.heap.platform().invalid_free(InvalidFree::ForeignPointer, object as usize, size);
        }
        self.heap.caches.count_in(id, 1);
        // SAFETY: the object is one of the cache, so not null, and the caller gives it up.
        if let Err(left) = unsafe { self.heap.push(id.class(), object) } {
            self.free_slow(id, object, left.pushed);
        }
    }

    /// An object that was just handed out is to be freed, as the program cannot use it: its allocation failed.
    #[cold]
    pub fn note_refused(self, id: CacheId) {
        self.heap.caches.note_failures(id.number(), 1);
        self.heap.caches.note_refused(id);
    }

    #[cold]
    #[inline(never)]
    fn free_slow(self, id: CacheId, object: *mut u8, pushed: Pushed) {
        self.heap.free_object(object, id.number(), pushed);
    }

    /// The fast path of [`UserCaches::free`] alone; whether the object was taken back.
    ///
    /// # Safety
    /// The object is not used any more.
    #[inline(always)]
    pub unsafe fn free_fast(self, id: CacheId, object: *mut u8) -> bool {
        // SAFETY: the caller gives the object up.
        self.heap.caches.is_of(id, object)
            && self.heap.caches.is_plain(id)
            && unsafe { self.heap.push(id.class(), object) }.is_ok()
    }

    /// Fills `out` with objects, as many as can be had; returns how many. Cheaper than one by one.
    pub fn alloc_batch(self, id: CacheId, out: &mut [*mut u8]) -> usize {
        let (mut n, mut filled) = self.heap.caches.alloc_batch(id, out);
        if filled.is_err() {
            let bytes = self.heap.caches.size_of(id.number()).saturating_mul(out.len() - n);
            let bytes = Bytes(bytes).max(self.heap.caches.slab_bytes(id.number()));
            let _ = self.heap.direct().reclaim_for(bytes, || {
                let (have, rest) = out.split_at_mut(n);
                // SAFETY: objects of the cache, which were handed out just now; where this unwinds the caller never gets them.
                let undo = OnUnwind(|| unsafe { self.heap.caches.free_batch(id, have) });
                let (more, result) = self.heap.caches.alloc_batch(id, rest);
                core::mem::forget(undo);
                n += more;
                filled = result;
                result
            });
        }
        if n < out.len() {
            self.heap.caches.note_failures(id.number(), out.len() - n);
        }
        self.heap.direct().slow_path_ends();
        n
    }

    /// Takes objects back, as [`UserCaches::free`] does one. Cheaper than one by one; an object that is freed twice
    /// is found when it goes back to its slab.
    ///
    /// # Safety
    /// The objects are not used any more.
    pub unsafe fn free_batch(self, id: CacheId, objects: &[*mut u8]) {
        if let Some(&wrong) = objects.iter().find(|&&object| !self.heap.caches.is_of(id, object)) {
            let size = self.heap.caches.size_of(id.number());
            return self.heap.platform().invalid_free(InvalidFree::ForeignPointer, wrong as usize, size);
        }
        // SAFETY: each lies in a slab of the cache, as was just found, and the caller gave them up.
        unsafe { self.heap.caches.free_batch(id, objects) };
        self.heap.direct().slow_path_ends();
    }

    /// Sets the limit of a cache that was made with one: how many objects may be out at a time.
    pub fn set_limit(self, id: CacheId, limit: usize) -> Result<(), LimitError> {
        self.heap.caches.set_limit(id, limit)
    }

    /// Sets how many free objects reclaim leaves to the cache, and sees to it that they are there, memory behind them
    /// and all. A program may use them up: they are there again when it has freed as many. Where there is no memory for
    /// all of them, the reserve stays what it was. What no limit leaves room for is refused before anything is made: the memory of
    /// others would go for it, and the process with the last of it.
    pub fn set_reserve(self, id: CacheId, objects: usize) -> Result<(), LimitError> {
        // No machine has so much: the caches could not even count it.
        let bytes =
            self.heap.caches.size_of(id.number()).checked_mul(objects).filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes.map(Bytes) else { return Err(LimitError::NoMemory) };
        let missing = bytes.saturating_sub(Bytes(self.heap.caches.figures(id).slab_bytes));
        if !self.heap.reclaim().is_conceivable(missing) {
            return Err(LimitError::NoMemory);
        }
        let former = self.heap.caches.reserve(id);
        // Dropped on unwinding, and where it failed: a part of it would be of use to nobody.
        let undo = OnUnwind(|| self.heap.caches.reset_reserve(id, objects, former));
        // The limit may become known only as the heap grows.
        let set =
            || self.heap.caches.set_reserve(id, objects, &|bytes| Bytes(bytes) <= self.heap.reclaim().budget_free());
        let wanted = bytes.max(self.heap.caches.slab_bytes(id.number()));
        let result = set().or_else(|Short| self.heap.direct().reclaim_for(wanted, set));
        self.heap.direct().slow_path_ends();
        if result != Ok(true) {
            return Err(LimitError::NoMemory);
        }
        core::mem::forget(undo);
        Ok(())
    }

    /// Calls the finalizers of empty slabs' objects and gives the slabs back; returns bytes. Calls the caches' own
    /// functions: to be called where a program's code may run, by a thread that holds nothing of the program's.
    pub fn run_finalizers(self) -> usize {
        self.heap.caches.run_finalizers()
    }

    /// Whether it has functions that [`UserCaches::run_finalizers`] or [`UserCaches::run_moves`] calls.
    pub fn has_callbacks(self, id: CacheId) -> bool {
        self.heap.caches.has_callbacks(id)
    }

    /// Lets objects of a cache be moved from sparse slabs to fuller ones, by a function that is set once. `false`: the cache has one
    /// already, or its free objects keep what `init` made.
    ///
    /// # Safety
    /// Until the cache has been destroyed the function may be called with `argument`, on any thread. It does what [`Move`] says, and
    /// does not destroy the cache.
    pub unsafe fn set_move(self, id: CacheId, function: Move, argument: *mut u8) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.heap.caches.set_move(id.number(), function, argument) }
    }

    /// Asks objects of sparse slabs to move, where reclaim wished so; returns how many did. As [`UserCaches::run_finalizers`] it
    /// calls the caches' own functions.
    pub fn run_moves(self) -> usize {
        self.heap.caches.run_moves()
    }

    /// The cache, of those that a program made, that has `addr` in one of its slabs: at an object's start or anywhere else.
    /// `None` for all other addresses. O(1): two loads.
    #[inline]
    pub fn at(self, addr: usize) -> Option<CacheId> {
        self.heap.caches.cache_at(addr)
    }

    /// The figures of the first cache with a number above `number`; `None`: there is none. O(CPUs).
    pub fn next(self, number: usize) -> Option<CacheStats> {
        self.heap.caches.next_figures(number)
    }

    /// Calls `see` with the figures of each cache, by number, under no lock. O(caches * CPUs).
    pub fn each(self, see: &mut dyn FnMut(CacheStats)) {
        self.heap.caches.each_figures(see);
    }

    /// The figures of a user cache. O(CPUs).
    pub fn stats(self, id: CacheId) -> CacheStats {
        self.heap.caches.figures(id)
    }
}
