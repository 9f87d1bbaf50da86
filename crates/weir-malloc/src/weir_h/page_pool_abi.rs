//! `weir.h`'s page pools. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, fail, refuse};
use crate::misuse::{WrongCall, misuse};
use crate::weir_h::handle::{Handle, Home, Named, named, retire};
use crate::weir_h::structs::tell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use weir_core::base::units::MAX_RUN;
use weir_core::pools::page_pool::{PagePool, PoolSpec};
use weir_linux::process::heap::{HEAP, add_pool};

/// `WEIR_PAGE_POOL_TENDED`.
const TENDED: c_uint = 1;
/// `WEIR_PAGE_POOL_COMMON`.
const COMMON: usize = usize::MAX;
/// Longest time that can be set, ms: the setting's range.
const MAX_SQUEEZE_MS: usize = 3_600_000;

/// `weir_page_pool`.
pub type Pool = Handle<PagePool>;

impl Named for PagePool {
    const KIND: usize = 0x7765_6972_706f_6f6c;
    const WRONG: WrongCall = WrongCall::NoPool;
}

/// `struct weir_page_pool_stats`.
#[repr(C)]
pub struct Stats {
    pages: [usize; 2],
    counts: [u64; 5],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_create(name: *const c_char, flags: c_uint) -> *mut Pool {
    if flags & !TENDED != 0 {
        return fail(EINVAL).cast();
    }
    let name = match name.is_null() {
        true => &[],
        // SAFETY: the caller's C string.
        false => unsafe { CStr::from_ptr(name) }.to_bytes(),
    };
    let spec = PoolSpec { name, is_tended: flags & TENDED != 0, ..PoolSpec::default() };
    let Some(home) = Home::new() else { return fail(ENOMEM).cast() };
    let pool: *mut Pool = home.hand_out(PagePool::new(&spec));
    // SAFETY: the pool stays there until `weir_page_pool_destroy` has removed it, and no exclusive reference to it is made
    // meanwhile.
    unsafe { add_pool(NonNull::new_unchecked(&raw mut (*pool).value)) };
    pool
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_destroy(pool: *mut Pool) -> c_int {
    if pool.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a pool.
    let Some(found) = (unsafe { named(pool) }) else { return refuse(EINVAL) };
    if HEAP.remove_pool(found).is_err() {
        return refuse(EBUSY);
    }
    // SAFETY: created by `weir_page_pool_create`, given up by the caller, and not known to the engine any more.
    unsafe { retire(pool) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_get(pool: *mut Pool, pages: usize) -> *mut c_void {
    // SAFETY: the caller's promise: a pool, or null.
    let found = unsafe { named(pool) }.filter(|_| (1..=MAX_RUN.0).contains(&pages));
    let Some(found) = found else { return fail(EINVAL).cast() };
    let run = HEAP.pool_get(found, pages);
    if run.is_null() { fail(ENOMEM).cast() } else { run.cast() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_get_batch(
    pool: *mut Pool,
    pages: usize,
    out: *mut *mut c_void,
    count: usize,
) -> usize {
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise: a pool, or null.
    let found = unsafe { named(pool) }.filter(|_| (1..=MAX_RUN.0).contains(&pages) && !out.is_null());
    let Some(found) = found else {
        fail(EINVAL);
        return 0;
    };
    // SAFETY: the caller's array, which is written before it is read.
    let out = unsafe {
        (0..count).for_each(|i| out.add(i).write(null_mut()));
        core::slice::from_raw_parts_mut(out.cast::<*mut u8>(), count)
    };
    let got = HEAP.pool_get_batch(found, pages, out);
    if got < count {
        fail(ENOMEM);
    }
    got
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_put(pool: *mut Pool, run: *mut c_void) {
    if run.is_null() {
        return;
    }
    // SAFETY: the caller's promise: a pool, and a run that it gives up.
    unsafe { put(pool, &run, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_put_batch(pool: *mut Pool, runs: *const *mut c_void, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { put(pool, runs, count) }
}

/// Takes runs back.
///
/// # Safety
/// Null, or a pool and an array of `count` runs of it, which the program gives up.
unsafe fn put(pool: *mut Pool, runs: *const *mut c_void, count: usize) {
    // An empty array may be NULL, as C++'s vectors are.
    if count == 0 {
        return;
    }
    if pool.is_null() || runs.is_null() {
        return misuse(if pool.is_null() { WrongCall::NoPool } else { WrongCall::NullRuns }, pool.addr());
    }
    // SAFETY: the caller's promise: a pool.
    if let Some(found) = unsafe { named(pool) } {
        // SAFETY: the caller's array of runs, which it gives up.
        unsafe { HEAP.pool_put(found, core::slice::from_raw_parts(runs.cast::<*mut u8>(), count)) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_set_max_idle_pages(pool: *mut Pool, pages: usize) -> c_int {
    // SAFETY: the caller's promise: a pool, or null.
    let Some(found) = (unsafe { named(pool) }) else { return refuse(EINVAL) };
    found.set_max_idle_pages((pages != COMMON).then_some(pages));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_set_squeeze_ms(pool: *mut Pool, ms: usize) -> c_int {
    // SAFETY: the caller's promise: a pool, or null.
    let found = unsafe { named(pool) }.filter(|_| ms == COMMON || ms <= MAX_SQUEEZE_MS);
    let Some(found) = found else { return refuse(EINVAL) };
    found.set_squeeze_ms((ms != COMMON).then_some(ms as u64));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_tend(pool: *mut Pool) -> usize {
    // SAFETY: the caller's promise: a pool, or null.
    let Some(found) = (unsafe { named(pool) }) else {
        fail(EINVAL);
        return 0;
    };
    HEAP.tend_pool(found)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_wait(pool: *mut Pool, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise: a pool, or null.
    let Some(found) = (unsafe { named(pool) }) else { return refuse(EINVAL) };
    HEAP.wait_for_squeeze(found, u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_page_pool_stats(pool: *mut Pool, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's promise: a pool, or null.
    let stats = unsafe { named(pool) }.map(|pool| HEAP.pool_stats(pool));
    let answer = stats.map(|stats| Stats {
        pages: [stats.idle_pages, stats.in_flight_pages],
        counts: [stats.gets, stats.misses, stats.squeezes, stats.squeezed_pages, stats.misses_after_squeeze],
    });
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, answer) }
}
