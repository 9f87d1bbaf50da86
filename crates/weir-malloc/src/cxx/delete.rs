//! C++ `operator delete`, by its mangled names. Sizes and alignments are not trusted: see `names`.
//!
//! Two forms free the block. Each other one jumps to the form that the standard says it calls, which may be the
//! program's own: see `cxx::new`.

use crate::arch::fast_path::free;
use crate::arch::jump::{jump_by_table, third_to_second};
use crate::first;
use core::ffi::c_void;
use weir::heap;

/// What the fast path did not free. Where the program has a `malloc` of its own the block may be that one's.
#[cold]
unsafe extern "C" fn slow(block: *mut u8) {
    if first::frees(block) {
        // SAFETY: the caller's promise: null, or a block that is not used any more.
        unsafe { first::free(block) }
    } else {
        // SAFETY: the same, checked by the heap.
        unsafe { heap::free(block) }
    }
}

/// Exports one form of `operator delete` that frees the block, whatever else it is passed.
macro_rules! delete {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = $doc]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8 $(, $argument: $type)*) {
            free!(slow)
        }
    )*};
}

/// Exports one form of `operator delete` that goes on to another, after the instructions in brackets, if any.
macro_rules! delete_as {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),*) -> $next:ident $([$before:expr])?;)*) => {$(
        #[doc = $doc]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8, $($argument: $type),*) {
            jump_by_table!($next $(, [$before])?)
        }
    )*};
}

delete! {
    "`operator delete(void*)`"
    _ZdlPv();
    "`operator delete(void*, std::align_val_t)`"
    _ZdlPvSt11align_val_t(_align: usize);
}

delete_as! {
    "`operator delete[](void*)`"
    _ZdaPv() -> _ZdlPv;
    "`operator delete(void*, const std::nothrow_t&)`"
    _ZdlPvRKSt9nothrow_t(_tag: *const c_void) -> _ZdlPv;
    "`operator delete[](void*, const std::nothrow_t&)`"
    _ZdaPvRKSt9nothrow_t(_tag: *const c_void) -> _ZdaPv;
    "`operator delete(void*, std::size_t)`"
    _ZdlPvm(_size: usize) -> _ZdlPv;
    "`operator delete[](void*, std::size_t)`"
    _ZdaPvm(_size: usize) -> _ZdaPv;
    "`operator delete[](void*, std::align_val_t)`"
    _ZdaPvSt11align_val_t(_align: usize) -> _ZdlPvSt11align_val_t;
    "`operator delete(void*, std::align_val_t, const std::nothrow_t&)`"
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void) -> _ZdlPvSt11align_val_t;
    "`operator delete[](void*, std::align_val_t, const std::nothrow_t&)`"
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void) -> _ZdaPvSt11align_val_t;
    "`operator delete(void*, std::size_t, std::align_val_t)`"
    _ZdlPvmSt11align_val_t(_size: usize, _align: usize) -> _ZdlPvSt11align_val_t [third_to_second!()];
    "`operator delete[](void*, std::size_t, std::align_val_t)`"
    _ZdaPvmSt11align_val_t(_size: usize, _align: usize) -> _ZdaPvSt11align_val_t [third_to_second!()];
}
