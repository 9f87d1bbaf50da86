//! `weir.h`'s zones. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, fail, refuse};
use crate::misuse::WrongCall;
use crate::weir_h::handle::{Handle, Home, Named, named, retire};
use crate::weir_h::structs::tell;
use crate::weir_h::zone_runs::{PAGE, Runs};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use weir::Fd;
use weir::heap;
use weir::zone::{self, MAX_RUN, OfflineError, ZoneError};

/// `weir_zone`.
pub struct Zone {
    zone: zone::Zone,
    /// The words of [`Runs`], a block of their own.
    runs: NonNull<AtomicU64>,
}

impl Named for Zone {
    const KIND: usize = 0x7765_6972_007a_6f6e;
    const WRONG: WrongCall = WrongCall::NoZone;
}

/// `struct weir_zone_usage`.
pub type Usage = [usize; 5];

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_create(kind: c_uint, len: usize, fd: c_int) -> *mut Handle<Zone> {
    let made = match kind {
        0 => zone::Zone::anonymous(len),
        // SAFETY: the caller's promises: the descriptor is open, or is refused (EBADF); C sees the zone's memory by pointers
        // alone.
        1 => unsafe { zone::Zone::from_memfd(Fd::borrow_raw(fd), len) },
        2 => zone::Zone::hugetlb(len),
        3 => zone::Zone::locked(len),
        _ => return fail(EINVAL).cast(),
    };
    let zone = match made {
        Ok(zone) => zone,
        Err(ZoneError::Os(why)) => return fail(why.errno()).cast(),
        Err(_) => return fail(EINVAL).cast(),
    };
    let Some(home) = Home::new() else { return fail(ENOMEM).cast() };
    let runs = heap::alloc_zeroed(Runs::words(len / PAGE) * size_of::<AtomicU64>()).cast::<AtomicU64>();
    match NonNull::new(runs) {
        Some(runs) => home.hand_out(Zone { zone, runs }),
        None => fail(ENOMEM).cast(),
    }
}

/// The zone behind a pointer, for a cache whose entries are to lie in it.
///
/// # Safety
/// Null, or a zone, which lives as long as the reference is used.
pub unsafe fn borrowed(zone: *mut Handle<Zone>) -> Option<&'static zone::Zone> {
    // SAFETY: the caller's promise.
    unsafe { named(zone) }.map(|zone: &'static Zone| &zone.zone)
}

impl Zone {
    fn runs(&self) -> Runs<'_> {
        let pages = self.zone.size() / PAGE;
        // SAFETY: `weir_zone_create` made a block of so many words, all zero, which lives as long as the zone.
        Runs::new(unsafe { core::slice::from_raw_parts(self.runs.as_ptr(), Runs::words(pages)) })
    }

    /// Gives the run of `size` bytes to C, and notes it; null with ENOMEM if there is none.
    fn hand_out(&self, run: Option<zone::Pages<'_>>, size: usize) -> *mut c_void {
        let Some(run) = run else { return fail(ENOMEM).cast() };
        let at = run.into_raw().as_ptr().cast::<c_void>();
        if let Some(first) = self.page(at, size) {
            self.runs().add(first, size.div_ceil(PAGE));
        }
        at
    }

    /// Number of the page at `at`, where all of the `bytes` there are the zone's.
    fn page(&self, at: *mut c_void, bytes: usize) -> Option<usize> {
        let (start, size) = (self.zone.as_ptr().addr().get(), self.zone.size());
        let offset = at.addr().checked_sub(start)?;
        let fits = offset.is_multiple_of(PAGE) && offset < size && bytes <= size - offset;
        fits.then_some(offset / PAGE)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_destroy(zone: *mut Handle<Zone>) -> c_int {
    if zone.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a zone.
    let Some(found) = (unsafe { named(zone) }) else { return refuse(EINVAL) };
    // In a forked child nothing of a parent's zone is handed out, and what was stays the parent's.
    if found.zone.usage().used_bytes > 0 && !found.zone.is_foreign() {
        return refuse(EBUSY);
    }
    // SAFETY: created by `weir_zone_create`, and given up by the caller.
    let Zone { zone, runs } = unsafe { retire(zone) };
    drop(zone);
    // SAFETY: made by `weir_zone_create`; the zone was its only user.
    unsafe { heap::free(runs.as_ptr().cast()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_alloc(zone: *mut Handle<Zone>, size: usize, align: usize) -> *mut c_void {
    let align = align.max(1);
    let is_valid = (1..=MAX_RUN).contains(&size) && align.is_power_of_two() && align <= MAX_RUN;
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| is_valid) else { return fail(EINVAL).cast() };
    found.hand_out(found.zone.alloc_aligned(size, align), size)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_alloc_first(zone: *mut Handle<Zone>, size: usize) -> *mut c_void {
    let is_valid = (1..=MAX_RUN).contains(&size);
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| is_valid) else { return fail(EINVAL).cast() };
    found.hand_out(found.zone.alloc_first(size), size)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_free(zone: *mut Handle<Zone>, pages: *mut c_void, size: usize) -> c_int {
    let Some(at) = NonNull::new(pages.cast::<u8>()) else { return 0 };
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| (1..=MAX_RUN).contains(&size)) else { return refuse(EINVAL) };
    let len = size.next_multiple_of(PAGE);
    if !found.page(pages, len).is_some_and(|first| found.runs().remove(first, len / PAGE)) {
        return refuse(EINVAL);
    }
    // SAFETY: a run that `weir_zone_alloc` gave, whole, which the caller gives up; it is forgotten, so it is not freed again.
    drop(unsafe { found.zone.pages_from_raw(NonNull::slice_from_raw_parts(at, len)) });
    0
}

/// The answer to C of a change of a range's use.
fn answer(result: Option<Result<(), OfflineError>>) -> c_int {
    match result {
        Some(Ok(())) => 0,
        Some(Err(OfflineError::InUse { .. })) => refuse(EBUSY),
        _ => refuse(EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_offline(zone: *mut Handle<Zone>, offset: usize, len: usize) -> c_int {
    let end = offset.checked_add(len);
    // SAFETY: the caller's promise: a zone, or null.
    answer(unsafe { named(zone) }.zip(end).map(|(found, end)| found.zone.offline(offset..end)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_online(zone: *mut Handle<Zone>, offset: usize, len: usize) -> c_int {
    let end = offset.checked_add(len);
    // SAFETY: the caller's promise: a zone, or null.
    answer(unsafe { named(zone) }.zip(end).map(|(found, end)| found.zone.online(offset..end)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_base(zone: *mut Handle<Zone>) -> *mut c_void {
    // SAFETY: the caller's promise: a zone, or null.
    match unsafe { named(zone) } {
        Some(found) => found.zone.as_ptr().as_ptr().cast(),
        None => fail(EINVAL).cast(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_zone_usage(zone: *mut Handle<Zone>, out: *mut Usage, size: usize) -> c_int {
    // SAFETY: the caller's promise: a zone, or null.
    let answer = unsafe { named(zone) }.map(|found| {
        let usage = found.zone.usage();
        let is_reported = found.zone.is_reported().into();
        [usage.bytes, usage.used_bytes, usage.idle_bytes, usage.offline_bytes, is_reported]
    });
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, answer) }
}

#[unsafe(no_mangle)]
pub extern "C" fn weir_set_reporting(on: c_int) {
    // A setting that is there, and a value in its range.
    let _ = weir::settings::set_number("report", (on != 0).into());
}
