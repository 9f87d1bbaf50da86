//! Pops from and pushes to the calling CPU's buckets. No restartable sections are written for arm64 yet, so that the
//! platform uses its buckets under their locks. Each function here says what a section says that gave up.

use weir_core::base::units::Class;
use weir_core::platform::cpu_table::{Pushed, Table};

/// The signature that the kernel finds before an abort address.
pub const SIGNATURE: u32 = 0xd428_bc00;
/// Sections are written for this processor.
pub const THERE_ARE_ANY: bool = false;

/// Pops an object of `class`: the bucket seems empty.
///
/// # Safety
/// As on every processor: the table's entries point to slabs that live on.
pub unsafe fn pop(_table: &Table, _class: Class) -> *mut u8 {
    core::ptr::null_mut()
}

/// Pushes an object: the bucket seems full.
///
/// # Safety
/// As [`pop`].
pub unsafe fn push(_table: &Table, _class: Class, _object: *mut u8) -> Pushed {
    Pushed::Full
}

/// Pops some objects: none.
///
/// # Safety
/// As [`pop`].
pub unsafe fn pop_batch(_table: &Table, _class: Class, _objects: &mut [*mut u8]) -> usize {
    0
}

/// Pushes some objects: none.
///
/// # Safety
/// As [`pop`].
pub unsafe fn push_batch(_table: &Table, _class: Class, _objects: &[*mut u8]) -> usize {
    0
}
