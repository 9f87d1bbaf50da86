//! `weir.h`'s zones. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, fail, refuse};
use crate::misuse::{WrongCall, misuse};
use crate::weir_h::weir_abi::fill;
use crate::weir_h::zone_runs::{PAGE, Runs};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicU64;
use weir::Fd;
use weir::heap;
use weir::zone::{self, MAX_RUN, OfflineError, ZoneError};

/// First word of a zone, while there is one.
const IS_ZONE: usize = 0x7765_6972_007a_6f6e;

/// `weir_zone`, to which C has a pointer.
pub struct Zone {
    /// [`IS_ZONE`].
    kind: usize,
    zone: zone::Zone,
    /// The words of [`Runs`], a block of their own.
    runs: NonNull<AtomicU64>,
}

/// `struct weir_zone_usage`.
#[repr(C)]
pub struct Usage {
    bytes: usize,
    used_bytes: usize,
    idle_bytes: usize,
    offline_bytes: usize,
    is_reported: usize,
}

/// `weir_zone_create`.
pub unsafe fn create(kind: c_uint, len: usize, fd: c_int) -> *mut Zone {
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
    let runs = NonNull::new(heap::alloc_zeroed(Runs::words(len / PAGE) * size_of::<AtomicU64>()).cast::<AtomicU64>());
    let home = NonNull::new(heap::alloc(size_of::<Zone>()).cast::<Zone>());
    let (Some(runs), Some(home)) = (runs, home) else {
        // SAFETY: blocks of this function's, or null.
        unsafe {
            heap::free(runs.map_or(null_mut(), |at| at.as_ptr().cast()));
            heap::free(home.map_or(null_mut(), |at| at.as_ptr().cast()));
        }
        return fail(ENOMEM).cast();
    };
    // SAFETY: fresh, and of that size.
    unsafe { home.write(Zone { kind: IS_ZONE, zone, runs }) };
    home.as_ptr()
}

/// The zone behind a pointer of the program's, where it is one.
///
/// # Safety
/// Null, or readable memory.
unsafe fn named<'a>(zone: *mut Zone) -> Option<&'a Zone> {
    // SAFETY: the caller's promise; a destroyed zone's first word is another.
    let found = unsafe { zone.as_ref() }?;
    if found.kind != IS_ZONE {
        misuse(WrongCall::NoZone, zone.addr());
        return None;
    }
    Some(found)
}

/// The zone behind a pointer, for a cache whose entries are to lie in it.
///
/// # Safety
/// Null, or a zone, which lives as long as the reference is used.
pub unsafe fn borrowed(zone: *mut Zone) -> Option<&'static zone::Zone> {
    // SAFETY: the caller's promise.
    unsafe { named(zone) }.map(|zone: &'static Zone| &zone.zone)
}

impl Zone {
    fn runs(&self) -> Runs<'_> {
        let pages = self.zone.size() / PAGE;
        // SAFETY: `create` made a block of so many words, all zero, which lives as long as the zone.
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

/// `weir_zone_destroy`.
pub unsafe fn destroy(zone: *mut Zone) -> c_int {
    if zone.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a zone.
    let Some(found) = (unsafe { named(zone) }) else { return refuse(EINVAL) };
    // In a forked child nothing of a parent's zone is handed out, and what was stays the parent's.
    if found.zone.usage().used_bytes > 0 && !found.zone.is_foreign() {
        return refuse(EBUSY);
    }
    // SAFETY: created by `create`, and given up by the caller.
    unsafe {
        let runs = found.runs;
        // Volatile, as nothing reads it before the block is freed, and a second call of this function after.
        (&raw mut (*zone).kind).write_volatile(0);
        (&raw mut (*zone).zone).drop_in_place();
        heap::free(runs.as_ptr().cast());
        heap::free(zone.cast());
    }
    0
}

/// `weir_zone_alloc`.
pub unsafe fn alloc(zone: *mut Zone, size: usize, align: usize) -> *mut c_void {
    let align = align.max(1);
    let is_valid = (1..=MAX_RUN).contains(&size) && align.is_power_of_two() && align <= MAX_RUN;
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| is_valid) else { return fail(EINVAL).cast() };
    found.hand_out(found.zone.alloc_aligned(size, align), size)
}

/// `weir_zone_alloc_first`.
pub unsafe fn alloc_first(zone: *mut Zone, size: usize) -> *mut c_void {
    let is_valid = (1..=MAX_RUN).contains(&size);
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| is_valid) else { return fail(EINVAL).cast() };
    found.hand_out(found.zone.alloc_first(size), size)
}

/// `weir_zone_free`.
pub unsafe fn free(zone: *mut Zone, pages: *mut c_void, size: usize) -> c_int {
    let Some(at) = NonNull::new(pages.cast::<u8>()) else { return 0 };
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| (1..=MAX_RUN).contains(&size)) else { return refuse(EINVAL) };
    let len = size.next_multiple_of(PAGE);
    if !found.page(pages, len).is_some_and(|first| found.runs().remove(first, len / PAGE)) {
        return refuse(EINVAL);
    }
    // SAFETY: a run that `alloc` gave, whole, which the caller gives up; it is forgotten, so it is not freed again.
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

/// `weir_zone_offline`.
pub unsafe fn offline(zone: *mut Zone, offset: usize, len: usize) -> c_int {
    let end = offset.checked_add(len);
    // SAFETY: the caller's promise: a zone, or null.
    answer(unsafe { named(zone) }.zip(end).map(|(found, end)| found.zone.offline(offset..end)))
}

/// `weir_zone_online`.
pub unsafe fn online(zone: *mut Zone, offset: usize, len: usize) -> c_int {
    let end = offset.checked_add(len);
    // SAFETY: the caller's promise: a zone, or null.
    answer(unsafe { named(zone) }.zip(end).map(|(found, end)| found.zone.online(offset..end)))
}

/// `weir_zone_base`.
pub unsafe fn base(zone: *mut Zone) -> *mut c_void {
    // SAFETY: the caller's promise: a zone, or null.
    match unsafe { named(zone) } {
        Some(found) => found.zone.as_ptr().as_ptr().cast(),
        None => fail(EINVAL).cast(),
    }
}

/// `weir_zone_usage`.
pub unsafe fn usage(zone: *mut Zone, out: *mut Usage, size: usize) -> c_int {
    // SAFETY: the caller's promise: a zone, or null.
    let Some(found) = (unsafe { named(zone) }).filter(|_| !out.is_null() && size > 0) else { return refuse(EINVAL) };
    let usage = found.zone.usage();
    let answer = Usage {
        bytes: usage.bytes,
        used_bytes: usage.used_bytes,
        idle_bytes: usage.idle_bytes,
        offline_bytes: usage.offline_bytes,
        is_reported: found.zone.is_reported().into(),
    };
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { fill(out.cast(), size, &answer) };
    0
}

/// `weir_set_reporting`.
pub fn set_reporting(on: c_int) {
    // A setting that is there, and a value in its range.
    let _ = weir::settings::set_number("report", (on != 0).into());
}
