//! The constructor: once, after relocation, before any code of the program. And its counterpart at the end.
//!
//! The heap works before this runs: the loader itself allocates, and other libraries' constructors may come
//! first when two are marked to be first. Here the environment is read, and the handlers for `fork` are registered.
//! They come first of all (the library is marked `initfirst`), so other libraries' handlers may allocate freely.

use core::ffi::c_int;

// On glibc the loader passes `argc, argv, envp` to initialisers, which may set `environ` after us. On musl it passes
// nothing (the argument registers hold leftovers), but it has set `environ` by now. Where `environ` is set, it counts.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const u8, *const *const u8) = constructor;

// The heap's first use may come before, and waits for this constructor (`weir_linux::process::heap::on_first_use`). Weak, as the
// reference is: optimised across crates both are in one file.
core::arch::global_asm!(
    ".pushsection .rodata.weir_has_constructor,\"a\",@progbits",
    ".weak weir_has_constructor",
    ".hidden weir_has_constructor",
    "weir_has_constructor: .byte 1",
    ".popsection",
);

extern "C" fn constructor(_argc: c_int, argv: *const *const u8, envp: *const *const u8) {
    // SAFETY: the loader runs a constructor once, single-threaded, with the process's arguments and environment. On
    // musl what it passes is not used, as sanitizers' shared runtimes are for glibc alone.
    unsafe { weir_linux::process::environment::reexec::without_weir_if_sanitized(argv, envp) };
    crate::first::look();
    // SAFETY: `envp` is the loader's array on glibc; on musl it is not looked at, as libc's own `environ` is set.
    unsafe { weir_linux::process::heap::init(envp) };
    crate::interposed::look_up();
    let _ = crate::next_symbol::next_dlopen();
    #[cfg(not(target_feature = "crt-static"))]
    let _ = (crate::clone::next_clone(), crate::clone::next_fork());
    crate::interposed::hear_advice();
}

// A process that is killed, or ends by `_exit`, leaves its counters as they were published last.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn destructor() {
    weir_linux::process::heap::finish();
}
