//! How a cache is made.

use core::marker::PhantomData;
use core::ptr::NonNull;
use weir_core::caches::user_cache::{COUNTED, CacheId, Flags, Spec};
use weir_linux::process::heap::{make_cache, set_cache_move};

use super::cache::ObjectCache;
use super::calls::noted;
use super::lifetime::{Retained, UseHooks, ValueLifetime};
use crate::cache_error::CacheError;
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
    /// At most so many objects are in use at a time; any number if it is not called. Costs an atomic operation an
    /// allocation and a free. `usize::MAX` stops nothing, and [`ObjectCache::set_limit`] may do so later.
    pub fn limit(self, objects: usize) -> Self {
        Self { limit: objects.min(COUNTED), ..self }
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
            // What is no power of two is refused, and stays what it is for that.
            align: if self.align.is_power_of_two() { self.align.max(align_of::<T>()) } else { self.align },
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
    /// `on_alloc` and `on_free` are called at each use. The closures must not use this cache. A value that owns the last handle of
    /// its own cache keeps it for good.
    ///
    /// The first allocation makes all values of a slab, or none, whatever the limit is. There are 8 or more of up to 4 KiB: 128 of
    /// 32 bytes, for example, and 1024 of 16. They stay until none of them is in use. So a value had better hold what it owns in
    /// itself, as an array. For what is scarce, such as file descriptors, this is no place.
    ///
    /// Values are dropped when their slab is released: on a thread of the library's, in [`heap::trim`] on the thread that calls it,
    /// or as the cache ends. Where `new` cannot make all values of a slab, those that it made are dropped at once: in the
    /// allocation, or in [`ObjectCache::set_reserve`]. So who calls one of these, or drops the cache, must not hold what the drop
    /// of a value waits for. A drop that panics then ends the process.
    ///
    /// # Errors
    /// As [`ObjectCacheBuilder::build`].
    ///
    /// ```
    /// use weir::{ObjectCache, Retained};
    ///
    /// let lines: ObjectCache<Vec<u8>, Retained> = ObjectCache::builder("lines")
    ///     .retained(|| Some(Vec::with_capacity(100)), |_| (), |line| line.clear())
    ///     .unwrap();
    /// let mut line = lines.alloc().unwrap();
    /// line.extend(b"no allocation here");
    /// drop(line);
    /// let line = lines.alloc().unwrap();
    /// assert!(line.is_empty() && line.capacity() >= 100);
    /// ```
    pub fn retained<N, A, F>(self, new: N, on_alloc: A, on_free: F) -> Result<ObjectCache<T, Retained>, CacheError>
    where
        T: Send + 'static,
        N: Fn() -> Option<T> + Send + Sync + 'static,
        A: Fn(&mut T) + Send + Sync + 'static,
        F: Fn(&mut T) + Send + Sync + 'static,
    {
        let closures = in_block(Closures { new, on_alloc, on_free })?;
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
                drop: drop_block::<Closures<N, A, F>>,
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

    /// Makes a cache of values per use whose objects may be moved, so that the few that are left after a peak lie on few pages.
    /// Reclaim calls `relocate` with the addresses of an object and of a free place.
    ///
    /// - `true`: the value is at the second address now, and nothing refers to the first, which is freed.
    /// - `false`: the object stays. Objects beside it are not asked again until something changes there.
    ///
    /// A thread of the library's calls it, which holds no lock of the library's. It may use this cache. The end of the cache waits
    /// for a call that is running, so a thread that holds what `relocate` waits for must not drop the cache. A cache that ends
    /// inside `relocate` itself stays for good. A panic in `relocate` ends the process.
    ///
    /// # Errors
    /// As [`ObjectCacheBuilder::build`].
    ///
    /// # Safety
    /// The first address may be of no object in use. `relocate` does not read it before it has found it among the objects that the
    /// program holds as [`CacheBox::into_raw`] gave them, and excludes other uses of what it found. It returns `true` only if that
    /// object's value was copied to the second address, and no copy of the first address is used any more. The second is then as if
    /// it came from `into_raw`. Where it returns `false`, the second address is used no more.
    ///
    /// ```
    /// use std::{collections::HashMap, ptr::NonNull, sync::{Arc, Mutex}};
    /// use weir::ObjectCache;
    ///
    /// /// A value's address as a number. Who takes it out of the table has the value.
    /// type Table = Mutex<HashMap<u32, usize>>;
    ///
    /// let table = Arc::new(Table::default());
    /// let in_callback = Arc::clone(&table);
    /// let relocate = move |from: NonNull<[u64; 8]>, to: NonNull<[u64; 8]>| {
    ///     let mut table = in_callback.lock().unwrap();
    ///     let Some(place) = table.values_mut().find(|at| **at == from.addr().get()) else { return false };
    ///     // SAFETY: an object that the table has, and a free place.
    ///     unsafe { from.copy_to_nonoverlapping(to, 1) };
    ///     *place = to.as_ptr().expose_provenance();
    ///     true
    /// };
    /// // SAFETY: it moves what the table has, whose lock excludes all other uses.
    /// let nodes = unsafe { ObjectCache::builder("nodes").movable(relocate) }.unwrap();
    /// let node = nodes.alloc([7; 8]).unwrap().into_raw();
    /// table.lock().unwrap().insert(1, node.as_ptr().expose_provenance());
    ///
    /// let at = std::ptr::with_exposed_provenance_mut(table.lock().unwrap().remove(&1).unwrap());
    /// // SAFETY: it came from `into_raw`, or was moved there; the table has it no more.
    /// let node = unsafe { nodes.from_raw(NonNull::new(at).unwrap()) };
    /// assert_eq!(*node, [7; 8]);
    /// ```
    ///
    /// [`CacheBox::into_raw`]: crate::CacheBox::into_raw
    pub unsafe fn movable<F>(self, relocate: F) -> Result<ObjectCache<T>, CacheError>
    where
        T: Send + 'static,
        F: Fn(NonNull<T>, NonNull<T>) -> bool + Send + Sync + 'static,
    {
        let closure = in_block(relocate)?;
        let hooks = const { &UseHooks { on_alloc: |_, _| (), on_free: |_, _| (), drop: drop_block::<F> } };
        let id = match self.make(&self.spec()) {
            Ok(id) => id,
            Err(error) => {
                // SAFETY: there is no cache, so nothing else refers to the closure.
                unsafe { drop_block::<F>(closure) };
                return Err(error);
            }
        };
        // SAFETY: the closure lives as long as the cache, and does what the caller promises. It cannot destroy the cache, which
        // stays where it is dropped inside the closure. The cache is new, so it has no such function, and no `init`.
        unsafe { set_cache_move(id, move_object::<T, F>, closure.as_ptr()) };
        self.finish(id, closure, hooks)
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

/// `closures` in a block of their own.
fn in_block<C>(closures: C) -> Result<NonNull<u8>, CacheError> {
    let block = heap::alloc_aligned(align_of::<C>(), size_of::<C>().max(1));
    let block = NonNull::new(block).ok_or(CacheError::OutOfMemory)?;
    // SAFETY: fresh, and of that layout.
    unsafe { block.cast().write(closures) };
    Ok(block)
}

/// # Safety
/// A block from [`in_block`] of that type, which nothing else refers to.
unsafe fn drop_block<C>(block: NonNull<u8>) {
    // SAFETY: as the caller promises.
    unsafe {
        block.cast::<C>().drop_in_place();
        heap::free(block.as_ptr());
    }
}

unsafe extern "C" fn move_object<T, F: Fn(NonNull<T>, NonNull<T>) -> bool>(
    from: *mut u8,
    to: *mut u8,
    _size: usize,
    closure: *mut u8,
) -> bool {
    // SAFETY: neither the closure nor objects are null.
    let [closure, from, to] = [closure, from, to].map(|at| unsafe { NonNull::new_unchecked(at) });
    // SAFETY: the closure of this cache, which lives as long as it.
    noted(closure, || unsafe { closure.cast::<F>().as_ref()(from.cast(), to.cast()) })
}

unsafe extern "C-unwind" fn init<T, N: Fn() -> Option<T>, A, F>(object: *mut u8, _: usize, closures: *mut u8) -> bool {
    // SAFETY: the closures of this cache, which live as long as it; the object is fresh and has a `T`'s layout.
    unsafe {
        let made = ((*closures.cast::<Closures<N, A, F>>()).new)();
        made.map(|value| object.cast::<T>().write(value)).is_some()
    }
}

unsafe extern "C" fn fini<T>(object: *mut u8, _size: usize, closures: *mut u8) {
    // SAFETY: the cache's own closures, which are not null.
    let closures = unsafe { NonNull::new_unchecked(closures) };
    // SAFETY: `init` made a value there; the object is free, so nothing refers to it. A panic ends the process here.
    noted(closures, || unsafe { object.cast::<T>().drop_in_place() });
}
