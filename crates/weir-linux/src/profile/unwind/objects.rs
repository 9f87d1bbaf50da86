//! Which program or library an address lies in, and where its unwind table is.
//!
//! glibc answers since 2.35 without a lock (`_dl_find_object`, made for unwinders, safe in signal handlers).
//! `dl_iterate_phdr`, which all have, takes the loader's lock.

use crate::os::symbol::LibcSymbol;
use core::ffi::{CStr, c_char, c_void};

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

static FIND_OBJECT: LibcSymbol = LibcSymbol::new(c"_dl_find_object");

/// A loaded object that has an unwind table.
pub(super) struct Object {
    /// Where the memory begins that its unwind tables lie in.
    pub start: usize,
    /// Where that memory ends.
    pub end: usize,
    /// The object's `.eh_frame_hdr`.
    pub header: usize,
}

/// The object that `pc` lies in, as glibc knows it.
fn found(pc: usize) -> Option<Found> {
    let mut found = Found::default();
    // SAFETY: glibc's function of this name has this type.
    let find = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(*const c_void, *mut Found) -> i32>(FIND_OBJECT.address()?)
    };
    // SAFETY: the function fills the structure, and only compares the address.
    let is_missing = unsafe { find(pc as *const c_void, &mut found) } != 0;
    (!is_missing).then_some(found)
}

/// The object that `pc` lies in, if it has an unwind table.
///
/// Where there is a hole between a program's segments, glibc tells of the segment alone that the address is in. The unwind
/// tables lie in another one then, and it is that one which counts: nothing but the tables is read.
pub(super) fn find(pc: usize) -> Option<Object> {
    let of_code = found(pc).filter(|found| found.eh_frame != 0)?;
    let header = of_code.eh_frame;
    let is_whole = (of_code.map_start..of_code.map_end).contains(&header);
    let of_tables = if is_whole { of_code } else { found(header).filter(|found| found.eh_frame == header)? };
    Some(Object { start: of_tables.map_start, end: of_tables.map_end, header })
}

/// Where in a file an address is.
pub(crate) struct Place {
    /// The file's name, as the loader has it.
    pub name: &'static [u8],
    /// The offset that the file's own addresses have there.
    pub offset: usize,
}

/// The beginning of glibc's `struct link_map` (`link.h`).
#[repr(C)]
struct LinkMap {
    load_address: usize,
    name: *const c_char,
}

/// The place of `pc`, to be shown; `None`: in no object that is loaded now.
pub(crate) fn place(pc: usize) -> Option<Place> {
    let found = found(pc).filter(|found| found.link_map != 0)?;
    // SAFETY: the loader's record of an object that is loaded. One that another thread closes just now may be gone. A
    // last message about the program's error takes that into account as little as the loader's own do.
    let map = unsafe { &*(found.link_map as *const LinkMap) };
    // SAFETY: a string of the loader's, of the same object.
    let name = if map.name.is_null() { b"" } else { unsafe { CStr::from_ptr(map.name) }.to_bytes() };
    let name = if name.is_empty() { b"the program" } else { name };
    Some(Place { name, offset: pc.wrapping_sub(map.load_address) })
}
