//! The page pools of `weir.h`, found in whatever is preloaded.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

type Create = unsafe extern "C" fn(*const c_char, c_uint) -> *mut c_void;
type Get = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Put = unsafe extern "C" fn(*mut c_void, *mut c_void);
type Figures = unsafe extern "C" fn(*mut c_void, *mut Stats, usize) -> c_int;

/// `struct weir_page_pool_stats`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
    /// Pages that are idle now.
    pub idle_pages: usize,
    in_flight_pages: usize,
    gets: u64,
    misses: u64,
    squeezes: u64,
    squeezed_pages: u64,
    misses_after_squeeze: u64,
}

/// A pool, which lasts as long as the program.
#[derive(Clone, Copy)]
pub struct PagePool {
    pool: NonNull<c_void>,
    get: Get,
    put: Put,
    stats: Figures,
}

// SAFETY: a pool may be used by any thread.
unsafe impl Send for PagePool {}
// SAFETY: no method changes a `PagePool` itself; the pool behind it has a lock of its own.
unsafe impl Sync for PagePool {}

fn find(name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: a C string; looks the name up in what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    NonNull::new(found).ok_or_else(|| format!("no {} here: this needs Weir preloaded", name.to_string_lossy()))
}

impl PagePool {
    /// A new pool.
    pub fn new(name: &str) -> Result<PagePool, String> {
        let names = [c"weir_page_pool_create", c"weir_page_pool_get", c"weir_page_pool_put", c"weir_page_pool_stats"];
        let [create, get, put, stats] = names.map(find);
        // SAFETY: these names have these types in weir.h.
        let (create, get, put, stats) = unsafe {
            (
                std::mem::transmute::<NonNull<c_void>, Create>(create?),
                std::mem::transmute::<NonNull<c_void>, Get>(get?),
                std::mem::transmute::<NonNull<c_void>, Put>(put?),
                std::mem::transmute::<NonNull<c_void>, Figures>(stats?),
            )
        };
        let name = CString::new(name).map_err(|_| "a name with a zero byte")?;
        // SAFETY: a C string; no flags.
        let pool = NonNull::new(unsafe { create(name.as_ptr(), 0) });
        let pool = pool.ok_or_else(|| format!("no pool: {}", std::io::Error::last_os_error()))?;
        Ok(PagePool { pool, get, put, stats })
    }

    /// A run of `pages` pages, a byte of each written.
    pub fn take(&self, pages: usize) -> Result<NonNull<c_void>, String> {
        // SAFETY: the pool lasts as long as the program.
        let run = NonNull::new(unsafe { (self.get)(self.pool.as_ptr(), pages) });
        let run = run.ok_or_else(|| format!("no run: {}", std::io::Error::last_os_error()))?;
        for page in 0..pages {
            // SAFETY: a byte of the run, which has so many pages and is this caller's alone.
            unsafe { run.as_ptr().cast::<u8>().add(page * super::mem::PAGE).write_volatile(1) };
        }
        Ok(run)
    }

    /// Puts a run back that [`PagePool::take`] of this pool has given, once.
    pub fn put(&self, run: NonNull<c_void>) {
        // SAFETY: a run of this pool's, in flight, which the caller does not use any more.
        unsafe { (self.put)(self.pool.as_ptr(), run.as_ptr()) }
    }

    /// Its figures.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: the pool lasts as long as the program; `stats` has the size that is told.
        unsafe { (self.stats)(self.pool.as_ptr(), &mut stats, size_of::<Stats>()) };
        stats
    }
}
