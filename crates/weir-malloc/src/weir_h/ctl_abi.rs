//! `weir.h`'s `weir_ctl`: settings and figures by name, in the shape of jemalloc's `mallctl`. The header is the
//! documentation.

use crate::errno::{EINVAL, ENOENT, EPERM, ERANGE};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use weir::heap::{self, Usage};
use weir::settings::{self, SettingErrorKind};

/// The prefix of a figure's name; all others are settings.
const STATS: &str = "stats.";

/// How a figure is read.
type Figure = fn(&Usage) -> usize;

/// The figures that can be read, by their names behind [`STATS`].
const FIGURES: [(&str, Figure); 10] = [
    ("live_bytes", |usage| usage.live_bytes),
    ("idle_bytes", |usage| usage.idle_bytes),
    ("fragmented_bytes", |usage| usage.fragmented_bytes),
    ("merged_bytes", |usage| usage.merged_bytes),
    ("metadata_bytes", |usage| usage.metadata_bytes),
    ("untouched_bytes", |usage| usage.untouched_bytes),
    ("resident_bytes", Usage::resident_bytes),
    ("mapped_bytes", |usage| usage.mapped_bytes),
    ("mapped_count", |usage| usage.mapped_count),
    ("address_space_bytes", |usage| usage.address_space_bytes),
];

/// Bytes of every value.
const VALUE: usize = size_of::<u64>();

/// The thing that a name stands for.
enum Node<'a> {
    Setting(&'a str),
    Figure(Figure),
}

impl Node<'_> {
    fn find(name: &str) -> Option<Node<'_>> {
        if let Some(figure) = name.strip_prefix(STATS) {
            return FIGURES.iter().find(|(name, _)| *name == figure).map(|(_, read)| Node::Figure(*read));
        }
        settings::get(name).is_ok().then_some(Node::Setting(name))
    }

    fn read(&self) -> u64 {
        match self {
            // It was found by this name.
            Node::Setting(name) => settings::get(name).unwrap_or(0),
            Node::Figure(read) => read(&heap::usage()) as u64,
        }
    }
}

/// All arguments are looked at before anything is done, so that a refused call has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_ctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *const c_void,
    new_len: usize,
) -> c_int {
    if name.is_null() || (!old.is_null() && old_len.is_null()) || new.is_null() != (new_len == 0) {
        return EINVAL;
    }
    // SAFETY: the caller's promise: a C string.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return ENOENT };
    let Some(node) = Node::find(name) else { return ENOENT };
    // SAFETY: the caller's promise: null, or a length that may be read and written.
    if let Some(len) = unsafe { old_len.as_mut() }
        && core::mem::replace(len, VALUE) != VALUE
        && !old.is_null()
    {
        return EINVAL;
    }
    let before = node.read();
    if !new.is_null() {
        let Node::Setting(name) = node else { return EPERM };
        if new_len != VALUE {
            return EINVAL;
        }
        // SAFETY: the caller's promise: so many bytes, which need not be aligned.
        let value = unsafe { new.cast::<u64>().read_unaligned() };
        match settings::set_number(name, value).map_err(|error| error.kind()) {
            Ok(()) => {}
            Err(SettingErrorKind::OutOfRange) => return ERANGE,
            Err(_) => return EINVAL,
        }
    }
    if !old.is_null() {
        // SAFETY: the caller's promise: as many bytes as `*old_len` said, which were enough.
        unsafe { old.cast::<u64>().write_unaligned(before) };
    }
    0
}
