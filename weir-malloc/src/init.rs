//! The constructor: once, after relocation, before any code of the program.
//!
//! The heap works before this runs: the loader itself allocates, and other libraries' constructors may come
//! first when two ask to be first. Here it learns the environment and is told about `fork`.

use core::ffi::c_int;

// The loader passes `argc, argv, envp` to initialisers on glibc, and nothing on musl: see `environment`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const u8, *const *const u8) = constructor;

unsafe extern "C" {
    /// The process's environment, in every libc. Null before libc's own initialiser has run.
    static environ: *const *const u8;
}

extern "C" fn constructor(_argc: c_int, _argv: *const *const u8, envp: *const *const u8) {
    // SAFETY: the loader runs a constructor once, single-threaded, with the process's environment.
    unsafe { weir::heap::init(environment(envp)) };
    crate::fork::register();
}

/// The environment: libc's if it is set, else what the loader passed. musl's loader passes nothing (the argument
/// registers hold leftovers) but has set `environ` by now; glibc's passes it and may set `environ` after us.
fn environment(passed: *const *const u8) -> *const *const u8 {
    // SAFETY: `environ` is libc's pointer variable; no other thread exists yet that could write it.
    let known = unsafe { environ };
    if known.is_null() { passed } else { known }
}
