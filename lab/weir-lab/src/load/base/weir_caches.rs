//! Object caches as a C program sees them: the names of `weir.h`, found in whatever is preloaded.

use crate::base::mem::Block;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

type Create = unsafe extern "C" fn(
    *const c_char,
    usize,
    usize,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_uint,
) -> *mut c_void;
type Alloc = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Figures = unsafe extern "C" fn(*mut c_void, *mut Stats, usize) -> c_int;

/// `WEIR_CACHE_NO_RECLAIM`.
pub const NO_RECLAIM: c_uint = 2;
/// `WEIR_CACHE_LIMITED`.
pub const LIMITED: c_uint = 4;

/// `struct weir_cache_stats`, in its order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    name: [u8; 32],
    number: usize,
    size: usize,
    limit: usize,
    reserve: usize,
    /// Held by the program.
    pub used: usize,
    /// Free in CPUs' buckets.
    pub free_cpu: usize,
    /// Free in full buckets.
    pub free_depot: usize,
    /// Free in slabs.
    pub free_slab: usize,
    /// Bytes of its slabs.
    pub slab_bytes: usize,
    /// Allocations that succeeded.
    pub requests: usize,
    failures: usize,
    visits: usize,
    /// Allocations that no bucket could serve.
    pub misses: usize,
    crossed: usize,
    /// Size of a CPU's bucket now.
    pub bucket: usize,
    bucket_min: usize,
    bucket_max: usize,
    working_set: usize,
    stale_ms: usize,
    /// Times that something was taken from the depot.
    pub trims: usize,
    trimmed_bytes: usize,
    /// Times that something was taken from CPUs' buckets.
    pub drains: usize,
    drained_bytes: usize,
}

/// Where buffers of one size come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// malloc and free, whoever's they are.
    Malloc(usize),
    /// The kernel, each time.
    Map(usize),
    /// Places that are handed out in turn, whoever holds them: what the rest of a program costs.
    Fixed { base: *mut u8, size: usize, count: usize, next: &'static AtomicUsize },
    /// A cache of Weir's.
    Cache { cache: NonNull<c_void>, alloc: Alloc, free: Free, stats: Figures, size: usize },
}

// SAFETY: a cache may be used by any thread.
unsafe impl Send for Source {}
// SAFETY: no method changes a `Source`; the counter that `Fixed` shares is atomic.
unsafe impl Sync for Source {}

fn find(name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: a C string; looks the name up in what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    NonNull::new(found).ok_or_else(|| format!("no {} here: this needs Weir preloaded", name.to_string_lossy()))
}

impl Source {
    /// A new cache of objects of `size` bytes.
    pub fn cache(name: &str, size: usize, flags: c_uint) -> Result<Source, String> {
        let [create, alloc, free, stats] =
            [c"weir_cache_create", c"weir_cache_alloc", c"weir_cache_free", c"weir_cache_stats"].map(find);
        // SAFETY: these names have these types in weir.h.
        let (create, alloc, free, stats) = unsafe {
            (
                std::mem::transmute::<NonNull<c_void>, Create>(create?),
                std::mem::transmute::<NonNull<c_void>, Alloc>(alloc?),
                std::mem::transmute::<NonNull<c_void>, Free>(free?),
                std::mem::transmute::<NonNull<c_void>, Figures>(stats?),
            )
        };
        let name = CString::new(name).map_err(|_| "a name with a zero byte")?;
        let none = std::ptr::null();
        // SAFETY: a C string, no hooks.
        let cache = unsafe { create(name.as_ptr(), size, 0, none, none, none, none, flags) };
        let cache = NonNull::new(cache).ok_or_else(|| format!("no cache: {}", std::io::Error::last_os_error()))?;
        Ok(Source::Cache { cache, alloc, free, stats, size })
    }

    /// `count` places of `size` bytes.
    pub fn fixed(size: usize, count: usize) -> Source {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Source::Fixed { base: map(size * count).address(), size, count, next: &NEXT }
    }

    /// A buffer, its first byte written.
    #[inline]
    pub fn take(&self) -> Block {
        match *self {
            Source::Malloc(size) => Block::new(size),
            Source::Map(size) => map(size),
            Source::Fixed { base, size, count, next } => {
                let place = next.load(Ordering::Relaxed);
                next.store(place + 1, Ordering::Relaxed);
                Block::checked(base.wrapping_add(place % count * size).cast(), size)
            }
            // SAFETY: the cache lives as long as the program.
            Source::Cache { cache, alloc, size, .. } => Block::checked(unsafe { alloc(cache.as_ptr()) }, size),
        }
    }

    /// Gives a buffer of this source back.
    #[inline]
    pub fn give(&self, block: Block) {
        match *self {
            Source::Malloc(_) => block.free(),
            Source::Fixed { .. } => {}
            // SAFETY: mapped by `take`, with that size; the caller returns it and keeps no pointer to it.
            Source::Map(size) => unsafe {
                libc::munmap(block.address().cast(), size);
            },
            // SAFETY: callers give back what they took here, once.
            Source::Cache { cache, free, .. } => unsafe { free(cache.as_ptr(), block.address().cast()) },
        }
    }

    /// A cache's figures; none of malloc's.
    pub fn stats(&self) -> Option<Stats> {
        let Source::Cache { cache, stats, .. } = *self else { return None };
        let mut figures = Stats::default();
        // SAFETY: the structure and its size.
        let failed = unsafe { stats(cache.as_ptr(), &mut figures, size_of::<Stats>()) };
        (failed == 0).then_some(figures)
    }
}

fn map(size: usize) -> Block {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, chosen by the kernel.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    Block::checked(if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at }, size)
}
