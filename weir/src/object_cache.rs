//! Typed object caches.
//!
//! Two kinds. In a cache of *moved* objects ([`ObjectCache::new`]) a value is moved in by each allocation and dropped
//! at each free: a `Box` that comes from a cache. In a cache of *kept* objects ([`Builder::kept`]) a value is made
//! once, when its slab comes, and dropped when the slab goes back; in between it is handed out again and again as it
//! was left, with what is dear to build (buffers, locks, tables) still in it. `on_alloc` and `on_free` are called at
//! each use. That is UMA's ctor and dtor, and init and fini.
//!
//! What is free gives way when memory is short; nothing that is out is ever touched.
//!
//! A panic of a value's drop, of a closure, or of what makes values costs the value that it is about and no object: its
//! object goes back, and so do the others of a batch. Only the drop of a kept value whose slab goes may not panic: that is on
//! a thread of the library's, and ends the process.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use crate::caches::{self, CacheId, CacheStats, Flags, LimitError, MakeError, Spec};
use crate::heap;

/// Objects moved between a cache and its user at a time by the batch forms.
const BATCH: usize = 64;

/// How a cache treats its objects: [`Moved`] or [`Kept`].
pub trait Mode<T>: sealed::Sealed + Sized {
    /// Ends a use of `object`, before it is given back.
    ///
    /// # Safety
    /// The object is valid, of this cache, and nobody else's.
    #[doc(hidden)]
    unsafe fn end_use(cache: &ObjectCache<T, Self>, object: NonNull<T>);
}

/// A value is moved in by each allocation and dropped at each free.
#[derive(Debug)]
pub enum Moved {}

/// A value is made once, and kept while it is free.
#[derive(Debug)]
pub enum Kept {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Moved {}
    impl Sealed for super::Kept {}
}

impl<T> Mode<T> for Moved {
    #[inline]
    unsafe fn end_use(_: &ObjectCache<T, Self>, object: NonNull<T>) {
        // SAFETY: as the caller promises.
        unsafe { object.drop_in_place() }
    }
}

impl<T> Mode<T> for Kept {
    #[inline]
    unsafe fn end_use(cache: &ObjectCache<T, Self>, object: NonNull<T>) {
        // SAFETY: as the caller promises; the hooks are the cache's.
        unsafe { (cache.uses.on_free)(cache.hooks, object.as_ptr().cast()) }
    }
}

/// A cache of objects of type `T`.
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
pub struct ObjectCache<T, M: Mode<T> = Moved> {
    id: CacheId,
    /// The [`Hooks`] of a kept cache, in a block of their own.
    hooks: NonNull<u8>,
    uses: &'static Uses,
    types: PhantomData<(T, M)>,
}

// SAFETY: the engine may be used from any thread; hooks are `Send` and `Sync`; objects made or dropped on another
// thread than their user's are `T`s, which must be `Send` for that.
unsafe impl<T: Send, M: Mode<T>> Send for ObjectCache<T, M> {}
// SAFETY: as above.
unsafe impl<T: Send, M: Mode<T>> Sync for ObjectCache<T, M> {}

/// What is called at each use, for one type of hooks and objects.
struct Uses {
    on_alloc: unsafe fn(NonNull<u8>, *mut u8),
    on_free: unsafe fn(NonNull<u8>, *mut u8),
    /// Drops the hooks and gives their block back.
    drop: unsafe fn(NonNull<u8>),
}

/// A kept cache's closures.
struct Hooks<N, A, F> {
    new: N,
    on_alloc: A,
    on_free: F,
}

/// How a cache is to be made.
///
/// ```
/// use weir::ObjectCache;
///
/// let requests = ObjectCache::<[u8; 500]>::builder("requests").limit(1000).reserve(32).build().unwrap();
/// assert!(requests.stats().free_slab >= 32);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder<'a, T> {
    name: &'a str,
    limit: usize,
    reserve: usize,
    no_reclaim: bool,
    align: usize,
    types: PhantomData<fn() -> T>,
}

impl<'a, T> Builder<'a, T> {
    /// At most so many objects are out at a time; any number if it is not called. Costs an atomic addition a call.
    pub fn limit(self, objects: usize) -> Self {
        Self { limit: objects, ..self }
    }

    /// Free objects that no reclaim takes, made at once.
    pub fn reserve(self, objects: usize) -> Self {
        Self { reserve: objects, ..self }
    }

    /// No pressure touches the cache: for what is needed to get out of it.
    pub fn no_reclaim(self) -> Self {
        Self { no_reclaim: true, ..self }
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
            flags: Flags { zero: false, no_reclaim: self.no_reclaim },
            limit: self.limit,
            ..Spec::default()
        }
    }

    /// Makes a cache of moved objects.
    pub fn build(self) -> Result<ObjectCache<T>, MakeError> {
        let uses = const { &Uses { on_alloc: |_, _| (), on_free: |_, _| (), drop: |_| () } };
        self.finish(caches::make(&self.spec())?, NonNull::dangling(), uses)
    }

    /// Makes a cache of kept objects: `new` makes each when its slab comes (`None`: the allocation fails), `on_alloc`
    /// and `on_free` are called at each use, and values are dropped when their slab goes back, on a thread of the
    /// library's. The closures must not use this cache.
    ///
    /// ```
    /// use weir::{Kept, ObjectCache};
    ///
    /// let lines: ObjectCache<Vec<u8>, Kept> =
    ///     ObjectCache::builder("lines").kept(|| Some(Vec::with_capacity(4096)), |_| (), |line| line.clear()).unwrap();
    /// let mut line = lines.alloc().unwrap();
    /// line.extend(b"no allocation here");
    /// drop(line);
    /// let line = lines.alloc().unwrap();
    /// assert!(line.is_empty() && line.capacity() >= 4096);
    /// ```
    pub fn kept<N, A, F>(self, new: N, on_alloc: A, on_free: F) -> Result<ObjectCache<T, Kept>, MakeError>
    where
        T: Send + 'static,
        N: Fn() -> Option<T> + Send + Sync + 'static,
        A: Fn(&mut T) + Send + Sync + 'static,
        F: Fn(&mut T) + Send + Sync + 'static,
    {
        let hooks = heap::alloc_aligned(align_of::<Hooks<N, A, F>>(), size_of::<Hooks<N, A, F>>().max(1));
        let hooks = NonNull::new(hooks).ok_or(MakeError::NoMemory)?;
        // SAFETY: fresh, and of that layout.
        unsafe { hooks.cast().write(Hooks { new, on_alloc, on_free }) };
        let spec = Spec { init: Some(init::<T, N, A, F>), fini: Some(fini::<T>), data: hooks.as_ptr(), ..self.spec() };
        let uses = const {
            &Uses {
                // SAFETY: the hooks are of these types, and the object is the caller's.
                on_alloc: |hooks, object| unsafe {
                    (hooks.cast::<Hooks<N, A, F>>().as_ref().on_alloc)(&mut *object.cast::<T>())
                },
                // SAFETY: as above.
                on_free: |hooks, object| unsafe {
                    (hooks.cast::<Hooks<N, A, F>>().as_ref().on_free)(&mut *object.cast::<T>())
                },
                // SAFETY: as above; the caller gives them up.
                drop: |hooks| unsafe {
                    hooks.cast::<Hooks<N, A, F>>().drop_in_place();
                    heap::free(hooks.as_ptr());
                },
            }
        };
        match caches::make(&spec) {
            Ok(id) => self.finish(id, hooks, uses),
            Err(error) => {
                // SAFETY: nobody else has them.
                unsafe { (uses.drop)(hooks) };
                Err(error)
            }
        }
    }

    fn finish<M: Mode<T>>(
        &self,
        id: CacheId,
        hooks: NonNull<u8>,
        uses: &'static Uses,
    ) -> Result<ObjectCache<T, M>, MakeError> {
        let cache = ObjectCache { id, hooks, uses, types: PhantomData };
        cache.set_reserve(self.reserve).map_err(|_| MakeError::NoMemory)?;
        Ok(cache)
    }
}

unsafe extern "C-unwind" fn init<T, N: Fn() -> Option<T>, A, F>(object: *mut u8, _size: usize, hooks: *mut u8) -> bool {
    // SAFETY: the hooks of this cache, which live as long as it; the object is fresh and has a `T`'s layout.
    unsafe {
        let made = ((*hooks.cast::<Hooks<N, A, F>>()).new)();
        made.map(|value| object.cast::<T>().write(value)).is_some()
    }
}

unsafe extern "C" fn fini<T>(object: *mut u8, _size: usize, _hooks: *mut u8) {
    // SAFETY: `init` made a value there, and nobody uses it.
    unsafe { object.cast::<T>().drop_in_place() }
}

impl<T> ObjectCache<T> {
    /// A cache of moved objects with no limit, under a name for statistics (cut at 31 bytes).
    pub fn new(name: &str) -> Result<Self, MakeError> {
        Self::builder(name).build()
    }

    /// How a cache is to be made, of either kind.
    pub fn builder(name: &str) -> Builder<'_, T> {
        Builder { name, limit: usize::MAX, reserve: 0, no_reclaim: false, align: 1, types: PhantomData }
    }

    /// Moves `value` into an object; gives it back when there is no memory, or the limit is reached.
    #[inline]
    pub fn alloc(&self, value: T) -> Result<CacheBox<'_, T>, Refused<T>> {
        match NonNull::new(caches::alloc(self.id).cast::<T>()) {
            Some(object) => {
                // SAFETY: fresh, and of a `T`'s layout.
                unsafe { object.write(value) };
                Ok(CacheBox { object, cache: self })
            }
            None => Err(Refused(value)),
        }
    }

    /// Fills the empty places of `out` with objects that hold what `value` makes, as far as they can be had; returns
    /// how many. Cheaper than one by one.
    pub fn alloc_batch<'c>(&'c self, out: &mut [Option<CacheBox<'c, T>>], mut value: impl FnMut() -> T) -> usize {
        self.fill(out, |object| {
            // SAFETY: fresh, and of a `T`'s layout.
            unsafe { object.write(value()) }
        })
    }
}

impl<T> ObjectCache<T, Kept> {
    /// An object, as its last user left it; `None` when there is no memory, or the limit is reached.
    #[inline]
    pub fn alloc(&self) -> Option<CacheBox<'_, T, Kept>> {
        let object = NonNull::new(caches::alloc(self.id).cast::<T>())?;
        let raw = Raw { id: self.id, object: object.cast() };
        // SAFETY: `init` made a value there, which is this caller's now; the hooks are the cache's.
        unsafe { (self.uses.on_alloc)(self.hooks, object.as_ptr().cast()) };
        core::mem::forget(raw);
        Some(CacheBox { object, cache: self })
    }

    /// Fills the empty places of `out` with objects, as far as they can be had; returns how many.
    pub fn alloc_batch<'c>(&'c self, out: &mut [Option<CacheBox<'c, T, Kept>>]) -> usize {
        self.fill(out, |object| {
            // SAFETY: as in `alloc`.
            unsafe { (self.uses.on_alloc)(self.hooks, object.as_ptr().cast()) }
        })
    }
}

impl<T, M: Mode<T>> ObjectCache<T, M> {
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
            let got = caches::alloc_batch(self.id, &mut objects[..n]);
            let mut raw = RawBatch { id: self.id, objects, first: 0, end: got };
            for place in wanted[..got].iter_mut().flatten() {
                // SAFETY: the engine gives no null objects.
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
            // Before its use ends: a panic there gives it back too.
            raw.objects[raw.end] = object.object.as_ptr().cast();
            raw.end += 1;
            // SAFETY: the box is forgotten.
            unsafe { M::end_use(self, object.object) };
            if raw.end == BATCH {
                raw.free();
            }
        }
    }

    /// The figures of the cache. O(CPUs).
    pub fn stats(&self) -> CacheStats {
        caches::stats(self.id)
    }

    /// Sets how many objects may be out at a time, for a cache that was made with a limit.
    pub fn set_limit(&self, objects: usize) -> Result<(), LimitError> {
        caches::set_limit(self.id, objects)
    }

    /// Sets how many free objects no reclaim takes, and makes them. Fails if there is no memory for all of them.
    pub fn set_reserve(&self, objects: usize) -> Result<(), LimitError> {
        caches::set_reserve(self.id, objects)
    }

    /// Takes an object back that [`CacheBox::into_raw`] gave.
    ///
    /// # Safety
    /// The object is one of this cache's, from `into_raw`, and is turned back once.
    pub unsafe fn from_raw(&self, object: NonNull<T>) -> CacheBox<'_, T, M> {
        CacheBox { object, cache: self }
    }
}

impl<T, M: Mode<T>> Drop for ObjectCache<T, M> {
    fn drop(&mut self) {
        // Boxes borrow the cache, so none is left, unless one was forgotten: then the cache stays, for what it has.
        // SAFETY: nobody else has the cache.
        if unsafe { caches::destroy(self.id) }.is_ok() {
            // SAFETY: nobody calls them any more.
            unsafe { (self.uses.drop)(self.hooks) }
        }
    }
}

impl<T, M: Mode<T>> fmt::Debug for ObjectCache<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// An object without a value, or with one that nobody is to see: it goes back when this is dropped.
struct Raw {
    id: CacheId,
    object: NonNull<u8>,
}

impl Drop for Raw {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the object is one of the cache, and this is all that refers to it.
        unsafe { caches::free(self.id, self.object.as_ptr()) }
    }
}

/// The same of several: those from `first` to `end`.
struct RawBatch {
    id: CacheId,
    objects: [*mut u8; BATCH],
    first: usize,
    end: usize,
}

impl RawBatch {
    fn free(&mut self) {
        let objects = &self.objects[core::mem::take(&mut self.first)..core::mem::take(&mut self.end)];
        if !objects.is_empty() {
            // SAFETY: as in `Raw`.
            unsafe { caches::free_batch(self.id, objects) }
        }
    }
}

impl Drop for RawBatch {
    fn drop(&mut self) {
        self.free();
    }
}

/// The value that a cache had no object for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<T>(pub T);

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refused").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for an object, or the cache's limit is reached")
    }
}

impl<T> core::error::Error for Refused<T> {}

/// An object of an [`ObjectCache`], owned; dropping it gives it back.
pub struct CacheBox<'c, T, M: Mode<T> = Moved> {
    object: NonNull<T>,
    cache: &'c ObjectCache<T, M>,
}

// SAFETY: it owns a `T` and refers to a cache, which any thread may use.
unsafe impl<T: Send, M: Mode<T>> Send for CacheBox<'_, T, M> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send, M: Mode<T>> Sync for CacheBox<'_, T, M> {}

impl<T, M: Mode<T>> CacheBox<'_, T, M> {
    /// Gives the object up without ending its use: for C, or for a ring of pointers. See [`ObjectCache::from_raw`].
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).object
    }
}

impl<T> CacheBox<'_, T> {
    /// Moves the value out and gives the object back.
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the object holds a value, which is the caller's now; the object is nobody's.
        unsafe {
            let value = this.object.read();
            caches::free(this.cache.id, this.object.as_ptr().cast());
            value
        }
    }
}

impl<T, M: Mode<T>> Deref for CacheBox<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns the object, which holds a value.
        unsafe { self.object.as_ref() }
    }
}

impl<T, M: Mode<T>> DerefMut for CacheBox<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { self.object.as_mut() }
    }
}

impl<T, M: Mode<T>> Drop for CacheBox<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        let _raw = Raw { id: self.cache.id, object: self.object.cast() };
        // SAFETY: the box owns the object; nobody uses it after this.
        unsafe { M::end_use(self.cache, self.object) };
    }
}

impl<T: fmt::Debug, M: Mode<T>> fmt::Debug for CacheBox<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
