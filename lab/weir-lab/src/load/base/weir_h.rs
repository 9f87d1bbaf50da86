//! Object caches and page pools as a C program sees them: the names of `weir.h`, found in whatever is preloaded.

use crate::base::mem::{Block, PAGE};
use anyhow::{Context, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

type Any = *const c_void;
type CreateCache = unsafe extern "C" fn(*const c_char, usize, usize, Any, Any, Any, Any, c_uint) -> *mut c_void;
type CreatePool = unsafe extern "C" fn(*const c_char, c_uint) -> *mut c_void;
type Alloc = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Get = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Give = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Figures<T> = unsafe extern "C" fn(*mut c_void, *mut T, usize) -> c_int;

/// WEIR_CACHE_NO_RECLAIM.
pub const NO_RECLAIM: c_uint = 2;
/// WEIR_CACHE_LIMITED.
pub const LIMITED: c_uint = 4;

/// A function of `weir.h`, as `F`.
///
/// # Safety
/// The function of that name has the type `F`, which is that of a function pointer.
unsafe fn find<F>(name: &CStr) -> Result<F> {
    // SAFETY: the name ends with a zero byte.
    let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    let found = found.with_context(|| format!("no {} here: this needs Weir preloaded", name.to_string_lossy()))?;
    // SAFETY: the caller's promise; both are of a pointer's size.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn made(handle: *mut c_void, what: &str) -> Result<NonNull<c_void>> {
    NonNull::new(handle).with_context(|| format!("no {what}: {}", std::io::Error::last_os_error()))
}

/// `struct weir_cache_stats`, as far as it is looked at; the order is that of `weir.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    name: [u8; 32],
    head: [usize; 5],
    pub free_cpu: usize,
    pub free_depot: usize,
    pub free_slab: usize,
    pub slab_bytes: usize,
    pub requests: usize,
    failures_visits: [usize; 2],
    pub misses: usize,
    crossed: usize,
    pub bucket: usize,
    bounds: [usize; 4],
    pub trims: usize,
    trimmed_bytes: usize,
    pub drains: usize,
    drained_bytes: usize,
}

/// Where buffers of one size come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// malloc.
    Malloc(usize),
    /// The kernel's mappings.
    Map(usize),
    /// Places in turn, which nobody allocates.
    Fixed { base: Block, size: usize, count: usize, next: &'static AtomicUsize },
    /// An object cache.
    Cache { cache: NonNull<c_void>, alloc: Alloc, free: Give, stats: Figures<CacheStats>, size: usize },
}

// SAFETY: caches may be used from every thread, and a place is handed to one at a time.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// A cache of objects of `size` bytes.
    pub fn cache(name: &str, size: usize, flags: c_uint) -> Result<Source> {
        let (name, none) = (CString::new(name)?, std::ptr::null());
        // SAFETY: the types are those of `weir.h`; the name ends with a zero byte, and no callback is passed.
        unsafe {
            let create = find::<CreateCache>(c"weir_cache_create")?;
            let cache = made(create(name.as_ptr(), size, 0, none, none, none, none, flags), "cache")?;
            let (alloc, free) = (find(c"weir_cache_alloc")?, find(c"weir_cache_free")?);
            Ok(Source::Cache { cache, alloc, free, stats: find(c"weir_cache_stats")?, size })
        }
    }

    /// `count` places of `size` bytes.
    pub fn fixed(size: usize, count: usize) -> Source {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Source::Fixed { base: map(size * count), size, count, next: &NEXT }
    }

    /// Takes a buffer.
    #[inline]
    pub fn take(&self) -> Block {
        match *self {
            Source::Malloc(size) => Block::new(size),
            Source::Map(size) => map(size),
            Source::Fixed { base, size, count, next } => {
                let place = next.load(Ordering::Relaxed);
                next.store(place + 1, Ordering::Relaxed); // One thread takes.
                Block::checked(base.address().wrapping_add(place % count * size).cast(), size)
            }
            // SAFETY: the cache is alive, and the function is its own.
            Source::Cache { cache, alloc, size, .. } => Block::checked(unsafe { alloc(cache.as_ptr()) }, size),
        }
    }

    /// Gives a buffer of this source back.
    #[inline]
    pub fn give(&self, block: Block) {
        match *self {
            Source::Malloc(_) => block.free(),
            Source::Fixed { .. } => {}
            // SAFETY: the block is a mapping of that size.
            Source::Map(size) => _ = unsafe { libc::munmap(block.address().cast(), size) },
            // SAFETY: the block is of this cache.
            Source::Cache { cache, free, .. } => unsafe { free(cache.as_ptr(), block.address().cast()) },
        }
    }

    /// A cache's figures.
    pub fn stats(&self) -> Option<CacheStats> {
        let Source::Cache { cache, stats, .. } = *self else { return None };
        let mut figures = CacheStats::default();
        // SAFETY: the cache is alive, and as much is written as the place has bytes.
        let failed = unsafe { stats(cache.as_ptr(), &mut figures, size_of::<CacheStats>()) };
        (failed == 0).then_some(figures)
    }
}

fn map(size: usize) -> Block {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of the kernel's choice replaces none.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    Block::checked(if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at }, size)
}

/// `struct weir_page_pool_stats`, as far as it is looked at.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PoolStats {
    idle_pages: usize,
    rest: [u64; 6],
}

/// A page pool.
#[derive(Clone, Copy)]
pub struct PagePool {
    pool: NonNull<c_void>,
    get: Get,
    put: Give,
    stats: Figures<PoolStats>,
}

// SAFETY: pools may be used from every thread.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl PagePool {
    /// Makes a pool.
    pub fn new(name: &str) -> Result<PagePool> {
        let name = CString::new(name)?;
        // SAFETY: the types are those of `weir.h`, and the name ends with a zero byte.
        unsafe {
            let pool = made(find::<CreatePool>(c"weir_page_pool_create")?(name.as_ptr(), 0), "pool")?;
            let (get, put) = (find(c"weir_page_pool_get")?, find(c"weir_page_pool_put")?);
            Ok(PagePool { pool, get, put, stats: find(c"weir_page_pool_stats")? })
        }
    }

    /// Takes a run of pages, each of which is touched.
    pub fn take(&self, pages: usize) -> Result<Block> {
        // SAFETY: the pool is alive.
        let run = made(unsafe { (self.get)(self.pool.as_ptr(), pages) }, "run of pages")?;
        let run = Block::from_address(run.as_ptr().cast());
        run.touch_pages(pages * PAGE);
        Ok(run)
    }

    /// Puts a run back.
    pub fn put(&self, run: Block) {
        // SAFETY: the run is of this pool.
        unsafe { (self.put)(self.pool.as_ptr(), run.address().cast()) }
    }

    /// How many idle pages it holds.
    pub fn idle_pages(&self) -> usize {
        let mut stats = PoolStats::default();
        // SAFETY: the pool is alive, and as much is written as the place has bytes.
        unsafe { (self.stats)(self.pool.as_ptr(), &mut stats, size_of::<PoolStats>()) };
        stats.idle_pages
    }
}
