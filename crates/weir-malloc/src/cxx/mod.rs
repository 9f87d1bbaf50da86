//! C++ `operator new` and `operator delete`, by their mangled names; which form calls which.

mod delete;
mod new;
mod throw;

use crate::first;
use weir_linux::process::malloc;

/// Allocates for an operator, aligned. Null where the alignment is no power of two, or memory is refused.
fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    if align.is_power_of_two() && first::is_anothers() {
        first::alloc(align, size)
    } else {
        malloc::counted_alloc_aligned(align, size)
    }
}
