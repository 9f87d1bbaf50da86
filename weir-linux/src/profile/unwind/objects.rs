//! Which program or library an address lies in, and where its unwind table is.
//!
//! glibc answers since 2.35 without a lock (`_dl_find_object`, made for unwinders, safe in signal handlers).
//! `dl_iterate_phdr`, which all have, takes the loader's lock.

use crate::os::weak_symbol::weak_symbol;
use core::ffi::c_void;

/// glibc's `struct dl_find_object` of x86-64 (`dlfcn.h`).
#[repr(C)]
#[derive(Default)]
pub struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

weak_symbol!(
    find_object = "_dl_find_object": unsafe extern "C" fn(*const c_void, *mut Found) -> i32
);

/// A loaded object that has an unwind table.
pub(super) struct Object {
    /// Where its memory ends.
    pub end: usize,
    /// Where its memory begins.
    pub start: usize,
    /// Its `.eh_frame_hdr`.
    pub header: usize,
}

/// The object that `pc` lies in.
pub(super) fn find(pc: usize) -> Option<Object> {
    let mut found = Found::default();
    // SAFETY: glibc's function; it fills the structure, and only compares the address.
    if unsafe { find_object()?(pc as *const c_void, &mut found) } != 0 || found.eh_frame == 0 {
        return None;
    }
    Some(Object { start: found.map_start, end: found.map_end, header: found.eh_frame })
}
