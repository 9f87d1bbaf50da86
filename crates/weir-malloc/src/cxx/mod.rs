//! C++ `operator new` and `operator delete`, by their mangled names; which form calls which.

mod delete;
mod new;
mod throw;

use crate::first;
use core::alloc::Layout;
use core::ptr::null_mut;
use weir_linux::process::malloc;

/// Allocates for an operator, aligned. Null where the alignment is no power of two, or memory is refused.
fn alloc_aligned(size: usize, align: usize) -> *mut u8 {
    match Layout::from_size_align(size, align) {
        Ok(layout) if first::is_anothers() => first::alloc(layout),
        Ok(layout) => malloc::counted_alloc_aligned(layout),
        Err(_) => null_mut(),
    }
}
