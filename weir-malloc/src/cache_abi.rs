//! `weir.h`'s object caches. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, ENOSPC, fail};
use crate::weir_abi::fill;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr::null_mut;
use weir::caches::{self, CacheId, CacheStats, Flags, LimitError, MakeError, Spec};
use weir::heap;

/// `weir_cache_init`.
pub type Init = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
/// `weir_cache_fini`.
pub type Fini = unsafe extern "C" fn(*mut c_void, usize);
/// `weir_cache_ctor`.
pub type Ctor = unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int;
/// `weir_cache_dtor`.
pub type Dtor = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

const ZERO: c_uint = 1;
const NO_RECLAIM: c_uint = 2;
const LIMITED: c_uint = 4;

/// `weir_cache`: what C has in hands.
pub struct Cache {
    id: CacheId,
    /// As the program gave it.
    size: usize,
    ctor: Option<Ctor>,
    dtor: Option<Dtor>,
    init: Option<Init>,
    fini: Option<Fini>,
}

/// `weir_cache_create`.
#[allow(clippy::too_many_arguments, reason = "the C function has them")]
pub unsafe fn create(
    name: *const c_char,
    size: usize,
    align: usize,
    ctor: Option<Ctor>,
    dtor: Option<Dtor>,
    init: Option<Init>,
    fini: Option<Fini>,
    flags: c_uint,
) -> *mut Cache {
    if flags & !(ZERO | NO_RECLAIM | LIMITED) != 0 {
        return fail(EINVAL).cast();
    }
    let cache = heap::alloc(size_of::<Cache>()).cast::<Cache>();
    if cache.is_null() {
        return fail(ENOMEM).cast();
    }
    // SAFETY: the caller's promise: null, or a string.
    let name = if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    let spec = Spec {
        name,
        size,
        align: align.max(1),
        flags: Flags { zero: flags & ZERO != 0, no_reclaim: flags & NO_RECLAIM != 0 },
        init: init.map(|_| init_object as weir::caches::Init),
        fini: fini.map(|_| fini_object as weir::caches::Fini),
        data: cache.cast(),
        // Any number, but counted.
        limit: if flags & LIMITED != 0 { usize::MAX - 1 } else { usize::MAX },
    };
    match caches::make(&spec) {
        Ok(id) => {
            // SAFETY: fresh, and of that size; nobody has allocated from the cache, so no callback has read it.
            unsafe { cache.write(Cache { id, size, ctor, dtor, init, fini }) };
            cache
        }
        Err(error) => {
            // SAFETY: nobody else has it.
            unsafe { heap::free(cache.cast()) };
            fail(match error {
                MakeError::Size | MakeError::Align => EINVAL,
                MakeError::TooMany => ENOSPC,
                MakeError::NoMemory => ENOMEM,
            })
            .cast()
        }
    }
}

unsafe extern "C-unwind" fn init_object(object: *mut u8, _rounded: usize, cache: *mut u8) -> bool {
    // SAFETY: `create` passed its cache, which outlives its objects; the function is the program's.
    unsafe {
        let cache = &*cache.cast::<Cache>();
        cache.init.is_none_or(|init| init(object.cast(), cache.size) == 0)
    }
}

unsafe extern "C" fn fini_object(object: *mut u8, _rounded: usize, cache: *mut u8) {
    // SAFETY: as in `init_object`.
    unsafe {
        let cache = &*cache.cast::<Cache>();
        if let Some(fini) = cache.fini {
            fini(object.cast(), cache.size);
        }
    }
}

/// `weir_cache_destroy`.
pub unsafe fn destroy(cache: *mut Cache) -> c_int {
    if cache.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a cache that nobody uses.
    unsafe {
        if caches::destroy((*cache).id).is_err() {
            fail(EBUSY);
            return -1;
        }
        heap::free(cache.cast());
    }
    0
}

/// `weir_cache_alloc` and `weir_cache_alloc_arg`.
#[inline(always)]
pub unsafe fn alloc_arg(cache: *mut Cache, argument: *mut c_void) -> *mut u8 {
    // SAFETY: the caller's promise: a cache.
    let cache = unsafe { &*cache };
    let object = caches::alloc(cache.id);
    if object.is_null() {
        return fail(ENOMEM);
    }
    // SAFETY: the object is this caller's, and no one else's.
    if cache.ctor.is_some() && !unsafe { construct(cache, object, argument) } {
        return fail(ENOMEM);
    }
    object
}

/// `weir_cache_alloc`.
#[inline(always)]
pub unsafe fn alloc(cache: *mut Cache) -> *mut u8 {
    // SAFETY: the caller's promise: a cache.
    unsafe { alloc_arg(cache, null_mut()) }
}

/// Calls `ctor`; an object that it refuses goes back.
unsafe fn construct(cache: &Cache, object: *mut u8, argument: *mut c_void) -> bool {
    // SAFETY: the function is the program's; the object is the caller's.
    unsafe {
        let made = cache.ctor.is_none_or(|ctor| ctor(object.cast(), cache.size, argument) == 0);
        if !made {
            caches::free(cache.id, object);
        }
        made
    }
}

/// `weir_cache_free_arg`.
#[inline(always)]
pub unsafe fn free_arg(cache: *mut Cache, object: *mut u8, argument: *mut c_void) {
    if object.is_null() {
        return;
    }
    // SAFETY: the caller's promise: a cache, and an object of it that nobody uses.
    unsafe {
        let cache = &*cache;
        if let Some(dtor) = cache.dtor {
            dtor(object.cast(), cache.size, argument);
        }
        caches::free(cache.id, object);
    }
}

/// `weir_cache_free`.
#[inline(always)]
pub unsafe fn free(cache: *mut Cache, object: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { free_arg(cache, object, null_mut()) }
}

/// `weir_cache_alloc_batch`.
pub unsafe fn alloc_batch(cache: *mut Cache, objects: *mut *mut u8, count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise: a cache, and room for so many.
    let (cache, out) = unsafe { (&*cache, core::slice::from_raw_parts_mut(objects, count)) };
    let mut got = caches::alloc_batch(cache.id, out);
    if cache.ctor.is_some() {
        let mut made = 0;
        for i in 0..got {
            // SAFETY: the object is this caller's, and no one else's.
            if unsafe { construct(cache, out[i], null_mut()) } {
                out[made] = out[i];
                made += 1;
            }
        }
        got = made;
    }
    if got < count {
        fail(ENOMEM);
    }
    got
}

/// `weir_cache_free_batch`.
pub unsafe fn free_batch(cache: *mut Cache, objects: *const *mut u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: the caller's promise: a cache, and so many objects of it that nobody uses.
    unsafe {
        let (cache, objects) = (&*cache, core::slice::from_raw_parts(objects, count));
        if let Some(dtor) = cache.dtor {
            objects.iter().for_each(|&object| dtor(object.cast(), cache.size, null_mut()));
        }
        caches::free_batch(cache.id, objects);
    }
}

/// `weir_cache_set_limit`.
pub unsafe fn set_limit(cache: *mut Cache, objects: usize) -> c_int {
    // SAFETY: the caller's promise: a cache.
    answer(caches::set_limit(unsafe { (*cache).id }, objects))
}

/// `weir_cache_set_reserve`.
pub unsafe fn set_reserve(cache: *mut Cache, objects: usize) -> c_int {
    // SAFETY: the caller's promise: a cache.
    answer(caches::set_reserve(unsafe { (*cache).id }, objects))
}

fn answer(result: Result<(), LimitError>) -> c_int {
    match result {
        Ok(()) => return 0,
        Err(LimitError::Uncounted) => fail(EINVAL),
        Err(LimitError::NoMemory) => fail(ENOMEM),
    };
    -1
}

/// `struct weir_cache_stats`.
#[repr(C)]
pub struct Stats {
    name: [u8; 32],
    number: usize,
    size: usize,
    limit: usize,
    reserve: usize,
    used: usize,
    free: [usize; 3],
    slab_bytes: usize,
    requests: usize,
    failures: usize,
    visits: usize,
    misses: usize,
    crossed: usize,
    bucket: [usize; 3],
    working_set: usize,
    stale_ms: usize,
    trims: usize,
    trimmed_bytes: usize,
    drains: usize,
    drained_bytes: usize,
}

impl Stats {
    fn new(of: &CacheStats) -> Self {
        Self {
            name: of.name,
            number: of.number,
            size: of.size,
            limit: if of.limit == usize::MAX - 1 { usize::MAX } else { of.limit },
            reserve: of.reserve,
            used: of.used,
            free: [of.free_cpu, of.free_depot, of.free_slab],
            slab_bytes: of.slab_bytes,
            requests: of.requests as usize,
            failures: of.failures as usize,
            visits: of.visits as usize,
            misses: of.misses as usize,
            crossed: of.crossed as usize,
            bucket: of.bucket,
            working_set: of.working_set,
            stale_ms: (of.stale_ns / 1_000_000) as usize,
            trims: of.trims as usize,
            trimmed_bytes: of.trimmed_bytes as usize,
            drains: of.drains as usize,
            drained_bytes: of.drained_bytes as usize,
        }
    }
}

/// `weir_cache_stats`.
pub unsafe fn stats(cache: *mut Cache, out: *mut Stats, size: usize) -> c_int {
    if out.is_null() || size == 0 {
        fail(EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise: a cache, and `size` bytes at `out`.
    unsafe { fill(out.cast(), size, &Stats::new(&caches::stats((*cache).id))) };
    0
}

/// `weir_cache_next`.
pub unsafe fn next(out: *mut Stats, size: usize) -> c_int {
    if out.is_null() || size < core::mem::offset_of!(Stats, number) + size_of::<usize>() {
        fail(EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise: `size` bytes at `out`, which hold the number.
    unsafe {
        let Some(found) = caches::next((&raw const (*out).number).read()) else { return 0 };
        fill(out.cast(), size, &Stats::new(&found));
    }
    1
}

const _: () = assert!(size_of::<Stats>() == 32 + 23 * size_of::<usize>());
