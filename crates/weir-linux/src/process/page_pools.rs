//! Page pools by plain functions: what `PagePool` of the crate `weir` stands on.

use core::ptr::NonNull;

pub use weir_core::base::units::MAX_RUN;
pub use weir_core::heap::page_pools::InFlight;
pub use weir_core::pools::page_pool::{PagePool, PoolSpec, PoolStats};

use crate::process::heap::{BACKGROUND, HEAP, on_first_use};

/// Makes a pool known; from now on pressure is listened for.
///
/// # Safety
/// It lives, where it is, until [`remove`] has succeeded, is added once, and is used through shared references alone
/// meanwhile.
pub unsafe fn add(pool: NonNull<PagePool>) {
    on_first_use();
    // SAFETY: as the caller promises.
    unsafe { HEAP.page_pools().add(pool) }
    BACKGROUND.listen();
}

/// Ends a pool, unless pages of it are in flight; then nothing has changed. No other thread uses the pool meanwhile.
pub fn remove(pool: &PagePool) -> Result<(), InFlight> {
    HEAP.page_pools().remove(pool)
}

/// Pages that a run of at least `pages` pages (1 to [`MAX_RUN`]) has.
pub fn run_pages(pages: usize) -> usize {
    PagePool::run_pages(pages)
}

/// A run of at least `pages` pages; null when memory is refused, or for a length that cannot be.
pub fn get(pool: &PagePool, pages: usize) -> *mut u8 {
    HEAP.page_pools().get(pool, pages)
}

/// Fills `out` with runs of at least `pages` pages, as many as can be had; returns how many.
pub fn get_batch(pool: &PagePool, pages: usize, out: &mut [*mut u8]) -> usize {
    HEAP.page_pools().get_batch(pool, pages, out)
}

/// Puts runs back, each whole and once; null is allowed.
///
/// # Safety
/// The runs are not used any more.
pub unsafe fn put(pool: &PagePool, runs: &[*mut u8]) {
    // SAFETY: as the caller promises.
    unsafe { HEAP.page_pools().put(pool, runs) }
}

/// What the owner of a pool does after each wake-up; returns the pages given up for pressure.
pub fn tend(pool: &PagePool) -> usize {
    HEAP.page_pools().tend(pool)
}

/// Sleeps until there is a pressure event that the pool was not tended for, for `ns` at most, or for no reason.
pub fn wait(pool: &PagePool, ns: Option<u64>) {
    HEAP.page_pools().wait_for_squeeze(pool, ns);
}

/// A pool's figures.
pub fn stats(pool: &PagePool) -> PoolStats {
    HEAP.page_pools().stats(pool)
}
