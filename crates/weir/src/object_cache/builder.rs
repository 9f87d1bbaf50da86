//! How a cache is made.

use core::marker::PhantomData;
use core::ptr::NonNull;
use weir_core::caches::user_cache::{CacheId, Flags, Spec};
use weir_linux::process::heap::make_cache;

use super::cache::ObjectCache;
use super::errors::CacheError;
use super::lifetime::{Retained, UseHooks, ValueLifetime};
use crate::heap;

/// The closures of a cache of retained values.
struct Closures<N, A, F> {
    new: N,
    on_alloc: A,
    on_free: F,
}

impl<T> ObjectCache<T> {
    /// A cache of values per use with no limit, under a name for statistics (cut at 31 bytes).
    ///
    /// # Errors
    /// [`CacheError::ObjectSize`], [`CacheError::Alignment`],
    /// [`CacheError::OutOfMemory`].
    pub fn new(name: &str) -> Result<Self, CacheError> {
        Self::builder(name).build()
    }

    /// Sets out how a cache is made, of either kind.
    pub fn builder(name: &str) -> ObjectCacheBuilder<'_, T> {
        ObjectCacheBuilder {
            name,
            limit: usize::MAX,
            reserve: 0,
            no_reclaim: false,
            no_merge: false,
            align: 1,
            types: PhantomData,
        }
    }
}

/// Makes an [`ObjectCache`].
///
/// ```
/// use weir::ObjectCache;
///
/// let requests = ObjectCache::<[u8; 500]>::builder("requests").limit(1000).reserve(32).build().unwrap();
/// assert!(requests.stats().free_slab >= 32);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ObjectCacheBuilder<'a, T> {
    name: &'a str,
    limit: usize,
    reserve: usize,
    no_reclaim: bool,
    no_merge: bool,
    align: usize,
    types: PhantomData<fn() -> T>,
}

impl<'a, T> ObjectCacheBuilder<'a, T> {
    /// At most so many objects are in use at a time; any number if it is not called. Costs an atomic addition an
    /// allocation and a free.
    pub fn limit(self, objects: usize) -> Self {
        Self { limit: objects, ..self }
    }

    /// So many free objects, made at once, are left to the cache by every reclaim.
    pub fn reserve(self, objects: usize) -> Self {
        Self { reserve: objects, ..self }
    }

    /// No pressure takes anything from the cache: for objects that are needed to relieve pressure.
    pub fn no_reclaim(self) -> Self {
        Self { no_reclaim: true, ..self }
    }

    /// No object is copied to the free places of other pages, where the setting `merge` has that done. This is for objects
    /// that hold secrets, of which no copy is to outlive the object.
    #[must_use]
    pub fn no_merge(self) -> Self {
        Self { no_merge: true, ..self }
    }

    /// Objects are aligned to `align` at least, a power of two up to a page.
    pub fn align(self, align: usize) -> Self {
        Self { align, ..self }
    }

    fn spec(&self) -> Spec<'a> {
        Spec {
            name: self.name.as_bytes(),
            size: size_of::<T>().max(1),
            align: self.align.max(align_of::<T>()),
            flags: Flags { zero: false, no_reclaim: self.no_reclaim, no_merge: self.no_merge },
            limit: self.limit,
            ..Spec::default()
        }
    }

    /// Makes a cache of values per use.
    ///
    /// # Errors
    /// [`CacheError::ObjectSize`], [`CacheError::Alignment`],
    /// [`CacheError::OutOfMemory`].
    ///
    /// ```
    /// use weir::{CacheError, ObjectCache};
    ///
    /// let error = ObjectCache::<[u8; 64]>::builder("odd").align(48).build().unwrap_err();
    /// assert_eq!(error, CacheError::Alignment { align: 48, max: 4096 });
    /// assert_eq!(error.to_string(), "alignment of 48 bytes: must be a power of two, 1 to 4096");
    /// ```
    pub fn build(self) -> Result<ObjectCache<T>, CacheError> {
        let hooks = const { &UseHooks { on_alloc: |_, _| (), on_free: |_, _| (), drop: |_| () } };
        self.finish(self.make(&self.spec())?, NonNull::dangling(), hooks)
    }

    /// Makes a cache of retained values. `new` makes each value when its slab comes (`None`: the allocation fails).
    /// `on_alloc` and `on_free` are called at each use. Values are dropped when their slab is released, on a thread of the
    /// library's. The closures must not use this cache.
    ///
    /// # Errors
    /// As [`ObjectCacheBuilder::build`].
    ///
    /// ```
    /// use weir::{ObjectCache, Retained};
    ///
    /// let lines: ObjectCache<Vec<u8>, Retained> = ObjectCache::builder("lines")
    ///     .retained(|| Some(Vec::with_capacity(4096)), |_| (), |line| line.clear())
    ///     .unwrap();
    /// let mut line = lines.alloc().unwrap();
    /// line.extend(b"no allocation here");
    /// drop(line);
    /// let line = lines.alloc().unwrap();
    /// assert!(line.is_empty() && line.capacity() >= 4096);
    /// ```
    pub fn retained<N, A, F>(self, new: N, on_alloc: A, on_free: F) -> Result<ObjectCache<T, Retained>, CacheError>
    where
        T: Send + 'static,
        N: Fn() -> Option<T> + Send + Sync + 'static,
        A: Fn(&mut T) + Send + Sync + 'static,
        F: Fn(&mut T) + Send + Sync + 'static,
    {
        let block = heap::alloc_aligned(align_of::<Closures<N, A, F>>(), size_of::<Closures<N, A, F>>().max(1));
        let closures = NonNull::new(block).ok_or(CacheError::OutOfMemory)?;
        // SAFETY: fresh, and of that layout.
        unsafe { closures.cast().write(Closures { new, on_alloc, on_free }) };
        let (init, fini) = (Some(init::<T, N, A, F> as _), Some(fini::<T> as _));
        let hooks = const {
            &UseHooks {
                // SAFETY: a cache calls its hooks with its own closures, which are of these types and live as long as it
                // does. The object is the cache's own; it holds a value and is the caller's alone.
                on_alloc: |closures, object| unsafe {
                    (closures.cast::<Closures<N, A, F>>().as_ref().on_alloc)(&mut *object.cast::<T>())
                },
                // SAFETY: the closures are the cache's, of these types; the object holds a value until this returns,
                // and its last user has given it up.
                on_free: |closures, object| unsafe {
                    (closures.cast::<Closures<N, A, F>>().as_ref().on_free)(&mut *object.cast::<T>())
                },
                // SAFETY: called once, when no cache refers to the closures any more; the block is theirs.
                drop: |closures| unsafe {
                    closures.cast::<Closures<N, A, F>>().drop_in_place();
                    heap::free(closures.as_ptr());
                },
            }
        };
        match self.make(&Spec { init, fini, data: closures.as_ptr(), ..self.spec() }) {
            Ok(id) => self.finish(id, closures, hooks),
            Err(error) => {
                // SAFETY: there is no cache, so nothing else refers to the closures.
                unsafe { (hooks.drop)(closures) };
                Err(error)
            }
        }
    }

    fn make(&self, spec: &Spec<'_>) -> Result<CacheId, CacheError> {
        make_cache(spec).map_err(|why| CacheError::of_making(why, spec.size, spec.align))
    }

    fn finish<M: ValueLifetime<T>>(
        &self,
        id: CacheId,
        closures: NonNull<u8>,
        hooks: &'static UseHooks,
    ) -> Result<ObjectCache<T, M>, CacheError> {
        let cache = ObjectCache { id, closures, hooks, types: PhantomData };
        cache.set_reserve(self.reserve)?;
        Ok(cache)
    }
}

unsafe extern "C-unwind" fn init<T, N: Fn() -> Option<T>, A, F>(object: *mut u8, _: usize, closures: *mut u8) -> bool {
    // SAFETY: the closures of this cache, which live as long as it; the object is fresh and has a `T`'s layout.
    unsafe {
        let made = ((*closures.cast::<Closures<N, A, F>>()).new)();
        made.map(|value| object.cast::<T>().write(value)).is_some()
    }
}

unsafe extern "C" fn fini<T>(object: *mut u8, _size: usize, _closures: *mut u8) {
    // SAFETY: `init` made a value there; the object is free, so nothing refers to it.
    unsafe { object.cast::<T>().drop_in_place() }
}
