//! C++ `operator delete`, by its mangled names. Sizes and alignments are not trusted: see `names`.

use crate::fast_path::free;
use core::ffi::c_void;

/// Exports one form of `operator delete`; whatever else it is passed, it frees the block.
macro_rules! delete {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = $doc]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8 $(, $argument: $type)*) {
            free!()
        }
    )*};
}

delete! {
    "`operator delete(void*)`"
    _ZdlPv();
    "`operator delete[](void*)`"
    _ZdaPv();
    "`operator delete(void*, const std::nothrow_t&)`"
    _ZdlPvRKSt9nothrow_t(_tag: *const c_void);
    "`operator delete[](void*, const std::nothrow_t&)`"
    _ZdaPvRKSt9nothrow_t(_tag: *const c_void);
    "`operator delete(void*, std::size_t)`"
    _ZdlPvm(_size: usize);
    "`operator delete[](void*, std::size_t)`"
    _ZdaPvm(_size: usize);
    "`operator delete(void*, std::align_val_t)`"
    _ZdlPvSt11align_val_t(_align: usize);
    "`operator delete[](void*, std::align_val_t)`"
    _ZdaPvSt11align_val_t(_align: usize);
    "`operator delete(void*, std::align_val_t, const std::nothrow_t&)`"
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void);
    "`operator delete[](void*, std::align_val_t, const std::nothrow_t&)`"
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void);
    "`operator delete(void*, std::size_t, std::align_val_t)`"
    _ZdlPvmSt11align_val_t(_size: usize, _align: usize);
    "`operator delete[](void*, std::size_t, std::align_val_t)`"
    _ZdaPvmSt11align_val_t(_size: usize, _align: usize);
}
