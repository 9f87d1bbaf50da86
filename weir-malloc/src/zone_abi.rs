//! `weir.h`'s zones. The header is the documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EBUSY, EINVAL, ENOMEM, fail};
use crate::weir_abi::fill;
use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr::{NonNull, null_mut};
use weir::heap;
use weir::zone::{BLOCK, ZoneError};

/// `weir_zone`: what C has in hands.
pub struct Zone(weir::zone::Zone);

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
        0 => weir::zone::Zone::anonymous(len),
        1 => weir::zone::Zone::from_memfd(fd, len),
        2 => weir::zone::Zone::hugetlb(len),
        3 => weir::zone::Zone::locked(len),
        _ => return fail(EINVAL).cast(),
    };
    match made {
        Ok(zone) => {
            let home = heap::alloc(size_of::<Zone>()).cast::<Zone>();
            if home.is_null() {
                drop(zone);
                return fail(ENOMEM).cast();
            }
            // SAFETY: fresh, and of that size.
            unsafe { home.write(Zone(zone)) };
            home
        }
        Err(ZoneError::Length) => fail(EINVAL).cast(),
        Err(ZoneError::Refused(why)) => fail(why.0).cast(),
    }
}

/// # Safety
/// Null, or a zone that was created and not destroyed.
unsafe fn named<'a>(zone: *mut Zone) -> Option<&'a weir::zone::Zone> {
    // SAFETY: as the caller promises.
    unsafe { zone.as_ref() }.map(|zone| &zone.0)
}

fn refuse(why: c_int) -> c_int {
    fail(why);
    -1
}

/// `weir_zone_destroy`.
pub unsafe fn destroy(zone: *mut Zone) -> c_int {
    // SAFETY: the caller's promise.
    let Some(inner) = (unsafe { named(zone) }) else { return 0 };
    if inner.usage().used > 0 {
        return refuse(EBUSY);
    }
    // SAFETY: created by `create`, and given up by the caller.
    unsafe {
        zone.drop_in_place();
        heap::free(zone.cast());
    }
    0
}

/// `weir_zone_alloc`.
pub unsafe fn alloc(zone: *mut Zone, size: usize, align: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let taken = unsafe { named(zone) }.and_then(|zone| zone.take(size, align.max(1)));
    taken.map_or_else(|| fail(ENOMEM).cast(), |(at, _)| at.as_ptr().cast())
}

/// `weir_zone_free`.
pub unsafe fn free(zone: *mut Zone, pages: *mut c_void, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(zone), Some(at)) = (unsafe { named(zone) }, NonNull::new(pages.cast::<u8>())) else {
        return if pages.is_null() { 0 } else { refuse(EINVAL) };
    };
    // SAFETY: the caller gives the pages up.
    if unsafe { zone.give(at, size) }.is_ok() { 0 } else { refuse(EINVAL) }
}

/// Numbers of the blocks from `offset`.
fn blocks(offset: usize, len: usize) -> Option<core::ops::Range<u32>> {
    let end = offset.checked_add(len)?;
    (offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK))
        .then(|| (offset / BLOCK).min(u32::MAX as usize) as u32..(end / BLOCK).min(u32::MAX as usize) as u32)
}

/// `weir_zone_offline`.
pub unsafe fn offline(zone: *mut Zone, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    match (unsafe { named(zone) }, blocks(offset, len)) {
        (Some(zone), Some(blocks)) => zone.offline(blocks).map_or_else(|_| refuse(EBUSY), |()| 0),
        _ => refuse(EINVAL),
    }
}

/// `weir_zone_online`.
pub unsafe fn online(zone: *mut Zone, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    match (unsafe { named(zone) }, blocks(offset, len)) {
        (Some(zone), Some(blocks)) => {
            zone.online(blocks);
            0
        }
        _ => refuse(EINVAL),
    }
}

/// `weir_zone_base`.
pub unsafe fn base(zone: *mut Zone) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { named(zone) }.map_or(null_mut(), |zone| zone.range().0.as_ptr().cast())
}

/// `weir_zone_usage`.
pub unsafe fn usage(zone: *mut Zone, out: *mut Usage, size: usize) -> c_int {
    const PAGE: usize = 4096;
    // SAFETY: the caller's promise.
    let Some(zone) = (unsafe { named(zone) }) else { return refuse(EINVAL) };
    let usage = zone.usage();
    let answer = Usage {
        bytes: usage.pages * PAGE,
        used_bytes: usage.used * PAGE,
        idle_bytes: usage.idle * PAGE,
        offline_bytes: usage.closed * PAGE,
        is_reported: zone.is_reported().into(),
    };
    if out.is_null() || size == 0 {
        return refuse(EINVAL);
    }
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { fill(out.cast(), size, &answer) };
    0
}

/// `weir_set_reporting`.
pub fn set_reporting(on: c_int) {
    weir::set_reporting(on != 0);
}
