//! The names under which C finds malloc's functions: each function's first name and glibc's second ones. What `weir.h` declares
//! has its name where it is written.
//!
//! Programs that wrap malloc call the wrapped one by a second name. A block from one name may be freed by the other, so all of
//! them have to be ours. No exported function calls another. A call by name would go to the first definition in the process, such
//! as that very wrapper, and never return. There are three exceptions. The standard says which of C++'s operators calls which by
//! name, and programs count on it: see `cxx::new`. As in glibc `reallocarray` calls `realloc` by name. And C23's `free_sized` and
//! `free_aligned_sized` call `free` so.

use crate::arch::fast_path::{allocate, allocate_aligned, free, store_aligned};
use crate::arch::jump::{first_in_process, jump_by_table};
use crate::c_abi;
use crate::glibc_abi::{self, MallInfo, MallInfo2};
use core::ffi::{c_int, c_void};

/// Exports a function, of the signature in brackets, under each of the names given.
macro_rules! export {
    ($($($name:ident)+ = $module:ident::$function:ident $signature:tt;)*) => {
        $($(export!(@one $name $module $function $signature);)+)*
    };
    (@one $name:ident $module:ident $function:ident [($($argument:ident: $type:ty),*) $(-> $result:ty)?]) => {
        #[doc = concat!("See `", stringify!($module), "::", stringify!($function), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise is that of the C function of this name.
            #[allow(unused_unsafe, reason = "some of them promise nothing")]
            unsafe { $module::$function($($argument),*) }
        }
    };
}

/// Exports `malloc` under each of the names given, and with a hidden name each, by which it is this one, whatever else a
/// process has.
macro_rules! export_malloc {
    ($($name:ident $hidden:literal)*) => {$(
        /// `malloc`. Of no bytes: a block of its own.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut u8 {
            allocate!(c_abi::malloc_slow, [concat!(".globl ", $hidden, "\n.hidden ", $hidden, "\n", $hidden, ":")])
        }
    )*};
}

export_malloc!(malloc "weir_ours_malloc" __libc_malloc "weir_ours_libc_malloc");

/// Exports `memalign` under the names given, with `$other` for what its fast path leaves. For an alignment which a size class
/// gives, that path is `malloc`'s.
macro_rules! export_memalign {
    ($($name:ident = $other:ident;)*) => {$(
        #[doc = concat!("See `c_abi::", stringify!($other), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(align: usize, size: usize) -> *mut u8 {
            allocate_aligned!(align, size, c_abi::$other, "weir_ours_malloc", [".p2align 5"])
        }
    )*};
}

export_memalign! {
    aligned_alloc = aligned_alloc;
    memalign = memalign;
    __libc_memalign = memalign;
}

/// Exports `posix_memalign` under the names given.
macro_rules! export_posix_memalign {
    ($($name:ident)*) => {$(
        /// See `c_abi::posix_memalign`.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: *mut *mut u8, align: usize, size: usize) -> c_int {
            store_aligned!()
        }
    )*};
}

export_posix_memalign!(posix_memalign __posix_memalign);

/// Exports `free` under each of the names given.
macro_rules! export_free {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`. Null is allowed; `errno` is kept.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8) {
            free!(c_abi::free_slow)
        }
    )*};
}

export_free!(free __libc_free cfree);

/// Exports C23's other forms of `free`, which go on to the first `free` of the process.
macro_rules! export_sized_free {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`. As glibc's it is the first `free` of the process, and trusts no size.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8, $($argument: $type),*) {
            jump_by_table!(free)
        }
    )*};
}

export_sized_free! {
    free_sized(_size: usize);
    free_aligned_sized(_align: usize, _size: usize);
}

/// Exports `reallocarray` under each of the names given.
macro_rules! export_reallocarray {
    ($($name:ident)*) => {$(
        /// See `c_abi::reallocarray`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8, count: usize, size: usize) -> *mut u8 {
            let first = first_in_process!(realloc);
            // SAFETY: what goes by this name in a process has this type.
            let first = unsafe { core::mem::transmute::<*const (), c_abi::Realloc>(first) };
            // SAFETY: the caller's promise is that of the C function of this name.
            unsafe { c_abi::reallocarray(block, count, size, first) }
        }
    )*};
}

export_reallocarray!(reallocarray __libc_reallocarray);

export! {
    calloc __libc_calloc = c_abi::calloc [(count: usize, size: usize) -> *mut u8];
    realloc __libc_realloc = c_abi::realloc [(block: *mut u8, size: usize) -> *mut u8];
    valloc __libc_valloc = c_abi::valloc [(size: usize) -> *mut u8];
    pvalloc __libc_pvalloc = c_abi::pvalloc [(size: usize) -> *mut u8];
    malloc_usable_size __malloc_usable_size = c_abi::malloc_usable_size [(block: *mut u8) -> usize];

    malloc_trim = glibc_abi::malloc_trim [(pad: usize) -> c_int];
    mallinfo __libc_mallinfo = glibc_abi::mallinfo [() -> MallInfo];
    mallinfo2 = glibc_abi::mallinfo2 [() -> MallInfo2];
    malloc_info = glibc_abi::malloc_info [(options: c_int, stream: *mut c_void) -> c_int];
    malloc_stats = glibc_abi::malloc_stats [()];
    mallopt __libc_mallopt = glibc_abi::mallopt [(parameter: c_int, value: c_int) -> c_int];
}
