//! The typed cache, and the box that an object of it is owned by.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use weir_core::caches::user_cache::CacheId;
use weir_linux::process::heap::HEAP;

use super::calls::is_inside;
use super::errors::AllocError;
use super::lifetime::{PerUse, Retained, UseHooks, ValueLifetime};
use super::raw::{BATCH, Raw, RawBatch};
use crate::cache_error::CacheError;
use crate::stats::CacheStats;

/// A cache of objects of type `T`.
///
/// There are two kinds:
/// - In a cache of values *per use* ([`ObjectCache::new`]) a value is moved in by each allocation and dropped at each
///   free. An object is a `Box` that comes from a cache.
/// - In a cache of [*retained*](crate::ObjectCacheBuilder::retained) values a value is made once, when its slab comes, and
///   dropped when the slab is released. In between it is handed out again and again as it was left, with what is costly
///   to build (buffers, locks, tables) still in it. `on_alloc` and `on_free` are called at each use. These are UMA's
///   ctor and dtor, and init and fini.
///
/// Free objects are reclaimed when memory is short; objects in use are never touched.
///
/// A panic of a value's drop, of a closure, or of what makes values costs the value that it is about and no object. The
/// value's object is freed, and so are the others of a batch. A retained value is left as the panic of `on_alloc` or `on_free` left
/// it, and is handed out again. Only the drop of a retained value may not panic: that ends the process.
/// [`retained`](crate::ObjectCacheBuilder::retained) says where it runs.
///
/// ```
/// use weir::ObjectCache;
///
/// struct Packet { len: usize, bytes: [u8; 2000] }
///
/// let packets = ObjectCache::new("packets").unwrap();
/// let mut packet = packets.alloc(Packet { len: 0, bytes: [0; 2000] }).unwrap();
/// packet.bytes[..5].copy_from_slice(b"hello");
/// packet.len = 5;
/// // Another thread, on whatever CPU, may free it, at the same cost.
/// std::thread::scope(|scope| { scope.spawn(move || drop(packet)); });
/// assert_eq!(packets.stats().used, 0);
/// ```
///
/// A cache for the whole program is a static:
///
/// ```
/// use std::sync::LazyLock;
/// use weir::{CacheBox, ObjectCache};
///
/// static NODES: LazyLock<ObjectCache<[u64; 6]>> = LazyLock::new(|| ObjectCache::new("nodes").unwrap());
///
/// let node: CacheBox<'static, [u64; 6]> = NODES.alloc([1; 6]).unwrap();
/// assert_eq!(node.iter().sum::<u64>(), 6);
/// ```
///
/// A value that is retained outlives its box, so nothing of a shorter life can be put into it:
///
/// ```compile_fail,E0597
/// use weir::{CacheBox, ObjectCache, Retained};
///
/// let cache: ObjectCache<&'static str, Retained> =
///     ObjectCache::builder("lines").retained(|| Some(""), |_| (), |_| ()).unwrap();
/// let text = String::from("short");
/// let mut line: CacheBox<'_, &str, Retained> = cache.alloc().unwrap();
/// *line = &text;
/// ```
pub struct ObjectCache<T, M: ValueLifetime<T> = PerUse> {
    pub(super) id: CacheId,
    /// The closures of a cache of retained values, in a block of their own.
    pub(super) closures: NonNull<u8>,
    pub(super) hooks: &'static UseHooks,
    /// Invariant in `T`: what is put into a retained value through one box comes out of another.
    pub(super) types: PhantomData<fn(T) -> (T, M)>,
}

// SAFETY: the engine may be used from any thread, and closures are `Send` and `Sync`. Objects that are made or dropped
// on another thread than their user's are `T`s, which must be `Send` for that.
unsafe impl<T: Send, M: ValueLifetime<T>> Send for ObjectCache<T, M> {}
// SAFETY: every method takes `&self` and goes to the engine, which any thread may use at any time; closures are `Sync`.
unsafe impl<T: Send, M: ValueLifetime<T>> Sync for ObjectCache<T, M> {}

impl<T> ObjectCache<T> {
    /// Moves `value` into an object.
    ///
    /// # Errors
    /// There is no memory, or the limit is reached; the error holds the value.
    ///
    /// ```
    /// use weir::{AllocError, ObjectCache};
    ///
    /// let jobs = ObjectCache::<String>::builder("jobs").limit(1).build().unwrap();
    /// let first = jobs.alloc("first".into()).unwrap();
    /// let Err(AllocError(second)) = jobs.alloc("second".into()) else { panic!() };
    /// drop(first);
    /// assert_eq!(*jobs.alloc(second).unwrap(), "second");
    /// ```
    #[inline]
    pub fn alloc(&self, value: T) -> Result<CacheBox<'_, T>, AllocError<T>> {
        match NonNull::new(HEAP.cache_alloc(self.id).cast::<T>()) {
            Some(object) => {
                // SAFETY: fresh, and of a `T`'s layout.
                unsafe { object.write(value) };
                Ok(CacheBox { object, cache: self })
            }
            None => Err(AllocError(value)),
        }
    }

    /// Fills the empty places of `out` with objects that hold what `value` makes, as far as they can be had; returns
    /// how many. Cheaper than one by one.
    ///
    /// ```
    /// let packets = weir::ObjectCache::<[u8; 1500]>::new("packets").unwrap();
    /// let mut burst: [Option<_>; 32] = std::array::from_fn(|_| None);
    /// assert_eq!(packets.alloc_batch(&mut burst, || [0; 1500]), 32);
    /// packets.free_batch(burst.into_iter().flatten());
    /// assert_eq!(packets.stats().used, 0);
    /// ```
    pub fn alloc_batch<'c>(&'c self, out: &mut [Option<CacheBox<'c, T>>], mut value: impl FnMut() -> T) -> usize {
        self.fill(out, |object| {
            // SAFETY: fresh, and of a `T`'s layout.
            unsafe { object.write(value()) }
        })
    }
}

impl<T> ObjectCache<T, Retained> {
    /// An object, as its last user left it; `None` when there is no memory, or the limit is reached.
    #[inline]
    pub fn alloc(&self) -> Option<CacheBox<'_, T, Retained>> {
        let object = NonNull::new(HEAP.cache_alloc(self.id).cast::<T>())?;
        let raw = Raw { id: self.id, object: object.cast() };
        // SAFETY: `init` made a value there, which is this caller's now; the hooks are the cache's.
        unsafe { (self.hooks.on_alloc)(self.closures, object.as_ptr().cast()) };
        core::mem::forget(raw);
        Some(CacheBox { object, cache: self })
    }

    /// Fills the empty places of `out` with objects, as far as they can be had; returns how many.
    pub fn alloc_batch<'c>(&'c self, out: &mut [Option<CacheBox<'c, T, Retained>>]) -> usize {
        self.fill(out, |object| {
            // SAFETY: `init` made a value in each object of the cache, and this object is the caller's; the closures
            // and hooks are the cache's.
            unsafe { (self.hooks.on_alloc)(self.closures, object.as_ptr().cast()) }
        })
    }
}

impl<T, M: ValueLifetime<T>> ObjectCache<T, M> {
    fn fill<'c>(&'c self, out: &mut [Option<CacheBox<'c, T, M>>], mut ready: impl FnMut(NonNull<T>)) -> usize {
        let mut filled = 0;
        let mut places = out.iter_mut().filter(|place| place.is_none());
        loop {
            let mut objects = [core::ptr::null_mut(); BATCH];
            let mut wanted = [const { None }; BATCH];
            let mut n = 0;
            while n < BATCH
                && let Some(place) = places.next()
            {
                wanted[n] = Some(place);
                n += 1;
            }
            let got = HEAP.cache_alloc_batch(self.id, &mut objects[..n]);
            let mut raw = RawBatch { id: self.id, objects, first: 0, end: got };
            for place in wanted[..got].iter_mut().flatten() {
                // SAFETY: none of the `got` objects is null.
                let object = unsafe { NonNull::new_unchecked(raw.objects[raw.first].cast::<T>()) };
                ready(object);
                raw.first += 1;
                **place = Some(CacheBox { object, cache: self });
            }
            filled += got;
            if got < BATCH {
                return filled;
            }
        }
    }

    /// Frees objects of this cache, cheaper than one by one; others are freed all the same.
    pub fn free_batch<'c>(&'c self, boxes: impl IntoIterator<Item = CacheBox<'c, T, M>>) {
        let mut raw = RawBatch { id: self.id, objects: [core::ptr::null_mut(); BATCH], first: 0, end: 0 };
        for object in boxes {
            if object.cache.id != self.id {
                drop(object);
                continue;
            }
            let object = ManuallyDrop::new(object);
            // Before its use ends, so that a panic there frees it too.
            raw.objects[raw.end] = object.object.as_ptr().cast();
            raw.end += 1;
            // SAFETY: the box is forgotten.
            unsafe { M::end_use(self.hooks, self.closures, object.object) };
            if raw.end == BATCH {
                raw.free();
            }
        }
    }

    /// The figures of the cache. O(CPUs).
    pub fn stats(&self) -> CacheStats {
        CacheStats::of(&HEAP.cache_stats(self.id))
    }

    /// Sets how many objects may be in use at a time, for a cache that was made with a limit. Objects in use beyond it
    /// stay.
    ///
    /// # Errors
    /// [`CacheError::NotLimited`].
    pub fn set_limit(&self, objects: usize) -> Result<(), CacheError> {
        HEAP.set_cache_limit(self.id, objects).map_err(CacheError::of_setting)
    }

    /// Sets how many free objects are left to the cache by every reclaim, and makes them.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`] where there is no memory for all of them; the reserve then stays what it was. What exceeds the
    /// room below the tightest limit is refused at once.
    pub fn set_reserve(&self, objects: usize) -> Result<(), CacheError> {
        HEAP.set_cache_reserve(self.id, objects).map_err(CacheError::of_setting)
    }

    /// Turns an object back into a box that [`CacheBox::into_raw`] gave up.
    ///
    /// ```
    /// let nodes = weir::ObjectCache::new("nodes").unwrap();
    /// let raw = nodes.alloc([7u64; 6]).unwrap().into_raw();
    /// // SAFETY: an object of this cache, from `into_raw`, turned back once.
    /// let node = unsafe { nodes.from_raw(raw) };
    /// assert_eq!(node[5], 7);
    /// ```
    ///
    /// # Safety
    /// The object is one of this cache's, from `into_raw`, and is turned back once.
    pub unsafe fn from_raw(&self, object: NonNull<T>) -> CacheBox<'_, T, M> {
        CacheBox { object, cache: self }
    }
}

impl<T, M: ValueLifetime<T>> Drop for ObjectCache<T, M> {
    fn drop(&mut self) {
        if is_inside(self.closures) {
            return;
        }
        // Boxes borrow the cache, so none is left, unless one was forgotten: then the cache stays, for what it has.
        // SAFETY: `drop` has the cache alone, and it is not used afterwards.
        if unsafe { HEAP.destroy_cache(self.id) }.is_ok() {
            // SAFETY: the cache is gone, so nothing calls the closures any more.
            unsafe { (self.hooks.drop)(self.closures) }
        }
    }
}

impl<T, M: ValueLifetime<T>> fmt::Debug for ObjectCache<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// An object of an [`ObjectCache`], owned; dropping it frees it.
pub struct CacheBox<'c, T, M: ValueLifetime<T> = PerUse> {
    object: NonNull<T>,
    cache: &'c ObjectCache<T, M>,
}

// SAFETY: it owns a `T` and refers to a cache, which any thread may use.
unsafe impl<T: Send, M: ValueLifetime<T>> Send for CacheBox<'_, T, M> {}
// SAFETY: a shared box gives out shared references to its `T` alone; the cache behind it may be shared.
unsafe impl<T: Sync + Send, M: ValueLifetime<T>> Sync for CacheBox<'_, T, M> {}

impl<T, M: ValueLifetime<T>> CacheBox<'_, T, M> {
    /// Gives the object up without ending its use: for C, or for a ring of pointers. See [`ObjectCache::from_raw`].
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }
}

impl<T> CacheBox<'_, T> {
    /// Moves the value out and frees the object.
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the object holds a value, which is moved out once: the box is forgotten, and the object freed.
        unsafe {
            let value = this.object.read();
            HEAP.cache_free(this.cache.id, this.object.as_ptr().cast());
            value
        }
    }
}

impl<T, M: ValueLifetime<T>> Deref for CacheBox<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns the object, which holds a value.
        unsafe { self.object.as_ref() }
    }
}

impl<T, M: ValueLifetime<T>> DerefMut for CacheBox<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the object, which holds a value, and is borrowed exclusively.
        unsafe { self.object.as_mut() }
    }
}

impl<T, M: ValueLifetime<T>> Drop for CacheBox<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        let _raw = Raw { id: self.cache.id, object: self.object.cast() };
        // SAFETY: the box owns the object, and is gone after this.
        unsafe { M::end_use(self.cache.hooks, self.cache.closures, self.object) };
    }
}

impl<T: fmt::Debug, M: ValueLifetime<T>> fmt::Debug for CacheBox<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
