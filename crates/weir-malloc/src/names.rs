//! The names under which C finds the functions: each function's first name and glibc's second ones.
//!
//! Programs that wrap malloc call the wrapped one by a second name. A block from one name may be freed by the other, so all of
//! them have to be ours. No exported function calls another. A call by name would go to the first definition in the process, such
//! as that very wrapper, and never return. There are two exceptions. The standard says which of C++'s operators calls which by
//! name, and programs count on it: see `cxx::new`. And `reallocarray` calls `realloc` by name, as glibc's does.

use crate::arch::fast_path::{allocate, allocate_aligned, free, store_aligned};
use crate::arch::jump::first_in_process;
use crate::c_abi;
use crate::glibc_abi::{self, MallInfo, MallInfo2};
use crate::weir_h::handle::Handle;
use crate::weir_h::{
    cache_abi, cache_stats_abi, callback_abi, ctl_abi, evictable_abi, page_pool_abi, weir_abi, zone_abi,
};
use core::ffi::{c_char, c_int, c_uint, c_void};
use weir_linux::process::limit::LimitCallback;
use weir_linux::process::pressure::Message;

/// Exports a function, of the signature in brackets, under each of the names given.
macro_rules! export {
    ($($($name:ident)+ = $module:ident::$function:ident $signature:tt;)*) => {
        $($(export!(@one $name $module $function $signature);)+)*
    };
    (@one $name:ident $module:ident $function:ident [($($argument:ident: $type:ty),*) $(-> $result:ty)?]) => {
        #[doc = concat!("See `", stringify!($module), "::", stringify!($function), "`.")]
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C functions have as many as they have")]
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

/// Exports `free` under each of the names given. What else a form is passed is not used. A program that Weir is preloaded into
/// was never tested with a malloc that relies on it.
macro_rules! export_free {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`. Null is allowed; `errno` is kept.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8 $(, $argument: $type)*) {
            free!()
        }
    )*};
}

export_free! {
    free();
    __libc_free();
    cfree();
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

    weir_version = weir_abi::version [() -> *const u8];
    weir_trim = weir_abi::trim [() -> c_int];
    weir_should_move = weir_abi::should_move [(block: *const u8) -> c_int];
    weir_alloc_to_move = weir_abi::alloc_to_move [(block: *const u8) -> *mut u8];
    weir_free_moved = weir_abi::free_moved [(block: *mut u8)];
    weir_usage = weir_abi::usage [(out: *mut weir_abi::Usage, size: usize) -> c_int];

    weir_ctl = ctl_abi::ctl [(
        name: *const c_char,
        old: *mut c_void,
        old_len: *mut usize,
        new: *const c_void,
        new_len: usize
    ) -> c_int];
    weir_set_reporting = zone_abi::set_reporting [(on: c_int)];

    weir_zone_create = zone_abi::create [(kind: c_uint, len: usize, fd: c_int) -> *mut Handle<zone_abi::Zone>];
    weir_zone_destroy = zone_abi::destroy [(zone: *mut Handle<zone_abi::Zone>) -> c_int];
    weir_zone_alloc = zone_abi::alloc [(zone: *mut Handle<zone_abi::Zone>, size: usize, align: usize) -> *mut c_void];
    weir_zone_alloc_first = zone_abi::alloc_first [(zone: *mut Handle<zone_abi::Zone>, size: usize) -> *mut c_void];
    weir_zone_free = zone_abi::free [(zone: *mut Handle<zone_abi::Zone>, pages: *mut c_void, size: usize) -> c_int];
    weir_zone_offline = zone_abi::offline [(zone: *mut Handle<zone_abi::Zone>, offset: usize, len: usize) -> c_int];
    weir_zone_online = zone_abi::online [(zone: *mut Handle<zone_abi::Zone>, offset: usize, len: usize) -> c_int];
    weir_zone_base = zone_abi::base [(zone: *mut Handle<zone_abi::Zone>) -> *mut c_void];
    weir_zone_usage =
        zone_abi::usage [(zone: *mut Handle<zone_abi::Zone>, out: *mut zone_abi::Usage, size: usize) -> c_int];

    weir_page_pool_create =
        page_pool_abi::create [(name: *const c_char, flags: c_uint) -> *mut page_pool_abi::Pool];
    weir_page_pool_destroy = page_pool_abi::destroy [(pool: *mut page_pool_abi::Pool) -> c_int];
    weir_page_pool_get = page_pool_abi::get [(pool: *mut page_pool_abi::Pool, pages: usize) -> *mut c_void];
    weir_page_pool_get_batch = page_pool_abi::get_batch
        [(pool: *mut page_pool_abi::Pool, pages: usize, runs: *mut *mut c_void, count: usize) -> usize];
    weir_page_pool_put = page_pool_abi::put [(pool: *mut page_pool_abi::Pool, run: *mut c_void)];
    weir_page_pool_put_batch = page_pool_abi::put_batch
        [(pool: *mut page_pool_abi::Pool, runs: *const *mut c_void, count: usize)];
    weir_page_pool_set_max_idle_pages =
        page_pool_abi::set_max_idle_pages [(pool: *mut page_pool_abi::Pool, pages: usize) -> c_int];
    weir_page_pool_set_squeeze_ms =
        page_pool_abi::set_squeeze_ms [(pool: *mut page_pool_abi::Pool, ms: usize) -> c_int];
    weir_page_pool_tend = page_pool_abi::tend [(pool: *mut page_pool_abi::Pool) -> usize];
    weir_page_pool_wait = page_pool_abi::wait [(pool: *mut page_pool_abi::Pool, timeout_ms: c_int) -> c_int];
    weir_page_pool_stats = page_pool_abi::stats
        [(pool: *mut page_pool_abi::Pool, out: *mut page_pool_abi::Stats, size: usize) -> c_int];

    weir_evictable_create =
        evictable_abi::create [(options: *const evictable_abi::Options, size: usize) -> *mut evictable_abi::Cache];
    weir_evictable_destroy = evictable_abi::destroy [(cache: *mut evictable_abi::Cache) -> c_int];
    weir_evictable_get = evictable_abi::get
        [(cache: *mut evictable_abi::Cache, key: *const c_void, key_size: usize) -> *mut c_void];
    weir_evictable_prepare = evictable_abi::prepare
        [(cache: *mut evictable_abi::Cache, key: *const c_void, key_size: usize, size: usize) -> *mut c_void];
    weir_evictable_publish =
        evictable_abi::publish [(cache: *mut evictable_abi::Cache, entry: *mut c_void) -> c_int];
    weir_evictable_cancel = evictable_abi::cancel [(cache: *mut evictable_abi::Cache, entry: *mut c_void)];
    weir_evictable_release = evictable_abi::release [(cache: *mut evictable_abi::Cache, entry: *mut c_void)];
    weir_evictable_key = evictable_abi::key
        [(cache: *mut evictable_abi::Cache, entry: *mut c_void, size: *mut usize) -> *const c_void];
    weir_evictable_value = evictable_abi::value
        [(cache: *mut evictable_abi::Cache, entry: *mut c_void, size: *mut usize) -> *mut c_void];
    weir_evictable_remove = evictable_abi::remove
        [(cache: *mut evictable_abi::Cache, key: *const c_void, key_size: usize) -> c_int];
    weir_evictable_clear = evictable_abi::clear [(cache: *mut evictable_abi::Cache) -> c_int];
    weir_evictable_evict = evictable_abi::evict [(cache: *mut evictable_abi::Cache, bytes: usize) -> usize];
    weir_evictable_relieved = evictable_abi::relieved [(cache: *mut evictable_abi::Cache)];
    weir_evictable_set_max = evictable_abi::set_max [(cache: *mut evictable_abi::Cache, bytes: usize) -> c_int];
    weir_evictable_stats = evictable_abi::stats
        [(cache: *mut evictable_abi::Cache, out: *mut evictable_abi::Stats, size: usize) -> c_int];

    weir_cache_create = cache_abi::create [(
        name: *const c_char,
        size: usize,
        align: usize,
        ctor: Option<cache_abi::Ctor>,
        dtor: Option<cache_abi::Dtor>,
        init: Option<cache_abi::Init>,
        fini: Option<cache_abi::Fini>,
        flags: c_uint
    ) -> *mut Handle<cache_abi::Cache>];
    weir_cache_destroy = cache_abi::destroy [(cache: *mut Handle<cache_abi::Cache>) -> c_int];
    weir_cache_alloc = cache_abi::alloc [(cache: *mut Handle<cache_abi::Cache>) -> *mut u8];
    weir_cache_alloc_arg = cache_abi::alloc_arg [(cache: *mut Handle<cache_abi::Cache>, argument: *mut c_void) -> *mut u8];
    weir_cache_free = cache_abi::free [(cache: *mut Handle<cache_abi::Cache>, object: *mut u8)];
    weir_cache_free_arg =
        cache_abi::free_arg [(cache: *mut Handle<cache_abi::Cache>, object: *mut u8, argument: *mut c_void)];
    weir_cache_alloc_batch =
        cache_abi::alloc_batch [(cache: *mut Handle<cache_abi::Cache>, objects: *mut *mut u8, count: usize) -> usize];
    weir_cache_free_batch =
        cache_abi::free_batch [(cache: *mut Handle<cache_abi::Cache>, objects: *const *mut u8, count: usize)];
    weir_cache_set_limit = cache_abi::set_limit [(cache: *mut Handle<cache_abi::Cache>, objects: usize) -> c_int];
    weir_cache_set_move = cache_abi::set_move
        [(cache: *mut Handle<cache_abi::Cache>, function: Option<cache_abi::Move>, argument: *mut c_void) -> c_int];
    weir_cache_set_reserve = cache_abi::set_reserve [(cache: *mut Handle<cache_abi::Cache>, objects: usize) -> c_int];
    weir_cache_stats =
        cache_stats_abi::stats [(cache: *mut Handle<cache_abi::Cache>, out: *mut cache_stats_abi::Stats, size: usize) -> c_int];
    weir_cache_next = cache_stats_abi::next [(out: *mut cache_stats_abi::Stats, size: usize) -> c_int];

    weir_shrinker_register = callback_abi::shrinker_register [(
        shrinker: *const callback_abi::ShrinkerSpec,
        size: usize
    ) -> *mut callback_abi::Handle];
    weir_unregister = callback_abi::unregister [(callback: *mut callback_abi::Handle) -> c_int];
    weir_callback_stats = callback_abi::stats [(
        callback: *mut callback_abi::Handle,
        out: *mut callback_abi::Stats,
        size: usize
    ) -> c_int];
    weir_pressure_subscribe = callback_abi::pressure_subscribe [(
        level: c_uint,
        callback: Option<callback_abi::PressureCallback>,
        data: *mut c_void,
        queue: *mut callback_abi::WeirQueue
    ) -> *mut callback_abi::Handle];
    weir_pressure_fd =
        callback_abi::pressure_fd [(level: c_uint, callback: *mut *mut callback_abi::Handle) -> c_int];
    weir_pressure_latest = callback_abi::pressure_latest [(out: *mut Message, size: usize) -> c_int];
    weir_queue_create = callback_abi::queue_create [() -> *mut callback_abi::WeirQueue];
    weir_queue_destroy = callback_abi::queue_destroy [(queue: *mut callback_abi::WeirQueue)];
    weir_queue_fd = callback_abi::queue_fd [(queue: *mut callback_abi::WeirQueue) -> c_int];
    weir_queue_serve =
        callback_abi::queue_serve [(queue: *mut callback_abi::WeirQueue, timeout_ms: c_int) -> c_int];
    weir_on_limit = callback_abi::on_limit [(callback: Option<LimitCallback>) -> Option<LimitCallback>];
    weir_resume_after_fork = callback_abi::resume_after_fork [()];
}
