//! glibc's second names for the same functions.
//!
//! Programs that wrap malloc call the wrapped one by these names. A block from one name may be freed by the
//! other, so both have to be ours.

use crate::{c_abi, glibc_abi};
use core::ffi::c_int;

/// Exports `$alias` with the signature and the behaviour of `$module::$name`.
macro_rules! alias {
    ($($alias:ident = $module:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("The same as `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise is that of the function by its first name.
            #[allow(unused_unsafe)]
            unsafe { $module::$name($($argument),*) }
        }
    )*};
}

alias! {
    __libc_malloc = c_abi::malloc(size: usize) -> *mut u8;
    __libc_free = c_abi::free(block: *mut u8);
    __libc_calloc = c_abi::calloc(count: usize, size: usize) -> *mut u8;
    __libc_realloc = c_abi::realloc(block: *mut u8, size: usize) -> *mut u8;
    __libc_reallocarray = c_abi::reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8;
    __libc_memalign = c_abi::memalign(align: usize, size: usize) -> *mut u8;
    __libc_valloc = c_abi::valloc(size: usize) -> *mut u8;
    __libc_pvalloc = c_abi::pvalloc(size: usize) -> *mut u8;
    __libc_mallopt = glibc_abi::mallopt(parameter: c_int, value: c_int) -> c_int;
    __libc_mallinfo = glibc_abi::mallinfo() -> glibc_abi::MallInfo;
    __posix_memalign = c_abi::posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int;
    __malloc_usable_size = c_abi::malloc_usable_size(block: *mut u8) -> usize;
}
