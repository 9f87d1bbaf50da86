//! How a failed `new` throws from a library that cannot.
//!
//! C++ says: while there is a new-handler, call it and try again; without one, throw `std::bad_alloc`. Both the
//! handler and the throw send an exception up through our frames, and a Rust function compiled with
//! `panic = "abort"` must not let one pass. So this part is not Rust: a few lines of assembly whose unwind tables
//! the C++ runtime walks like those of any C function. The Rust operators end in a call of it as their last act, which
//! the optimiser makes a jump. Then no frame of theirs is left at all. Without optimisation the frame is there, has its
//! unwind table and no landing pad, and is walked through like one of C.
//!
//! A nothrow `new` promises to throw nothing, also where its handler throws. So its slow path has the two things that a
//! C++ function with `catch (...)` has. One is a table that names a landing pad (the "language-specific data", written
//! out below). The other is the C++ runtime's personality routine, which reads the table. Where there is no C++ runtime,
//! nothing is thrown. A nothrow `new` whose throwing form is the program's own calls that from a frame of the same kind.
//!
//! `libstdc++` is never linked: the loader looks its functions up weakly. For a C++ library that was opened at run time
//! into a scope of its own, `dlsym` finds them in the moment of failure.

use crate::arch::throw::define_throwing;
use crate::cxx::alloc_aligned;
use crate::next_symbol::{lookup, next_dlopen};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use weir_linux::messages;
use weir_linux::os::catch;
use weir_linux::weak_symbol;

type GetHandler = extern "C" fn() -> *mut c_void;

weak_symbol!(
    /// `std::get_new_handler()`.
    get_new_handler = "_ZSt15get_new_handlerv": GetHandler
);
weak_symbol!(
    /// `std::__throw_bad_alloc()`, in libstdc++ and in libc++.
    throw_bad_alloc = "_ZSt17__throw_bad_allocv": extern "C" fn() -> !
);
weak_symbol!(
    /// The routine that the unwinder calls for each C++ frame; its slot is what the frame of a nothrow `new` names.
    personality = "__gxx_personality_v0": *const c_void
);

unsafe extern "C" {
    /// The slow path of a throwing `new`: returns a block, or leaves by an exception, or ends the process.
    pub safe fn weir_new_or_throw(size: usize, align: usize) -> *mut u8;
    /// The slow path of a nothrow `new`: returns a block, or null, also where a handler throws. Only where the C++
    /// runtime was opened into a scope of its own, out of the loader's sight, does its exception pass through.
    pub safe fn weir_new_or_null(size: usize, align: usize) -> *mut u8;
    /// Calls the throwing `new` whose address is in `rax` (`x16`) with the arguments it finds, and returns null where it
    /// throws. Only for assembly to jump to.
    pub fn weir_call_or_null();
}

define_throwing!(caught, current_handler, retry, thrower);

extern "C" fn retry(size: usize, align: usize) -> *mut u8 {
    alloc_aligned(size, align)
}

/// Ends an exception that a nothrow `new` caught.
extern "C" fn caught(exception: *mut c_void) {
    // SAFETY: what a landing pad was given.
    if !unsafe { catch::end_exception(exception.cast()) } {
        messages::no_end_of_catch();
    }
}

/// The new-handler that is set now, or null. An alignment that is no power of two is refused whatever the handler does.
extern "C" fn current_handler(align: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return null_mut();
    }
    if let Some(get) = get_new_handler() {
        return get();
    }
    let found = in_local_scope(c"_ZSt15get_new_handlerv".to_bytes_with_nul());
    if found.is_null() {
        return null_mut();
    }
    // SAFETY: by the Itanium C++ ABI this name is `std::new_handler std::get_new_handler() noexcept`.
    let get: GetHandler = unsafe { core::mem::transmute(found) };
    get()
}

/// The function that throws `std::bad_alloc`. Without a C++ runtime nothing could catch it either.
extern "C" fn thrower() -> *const c_void {
    if let Some(throw) = throw_bad_alloc() {
        return throw as *const c_void;
    }
    let found = in_local_scope(c"_ZSt17__throw_bad_allocv".to_bytes_with_nul());
    if found.is_null() {
        messages::no_cxx_runtime();
    }
    found
}

/// A C++ runtime's function when the runtime is loaded, but not where the loader looked for us.
fn in_local_scope(name: &[u8]) -> *mut c_void {
    const RTLD_LAZY: c_int = 1;
    const RTLD_NOLOAD: c_int = 4;
    let (Some(open), Some(lookup)) = (next_dlopen(), lookup()) else { return null_mut() };
    for runtime in [c"libstdc++.so.6", c"libc++.so.1"] {
        // SAFETY: both strings end in zero, and NOLOAD only finds what is loaded. The handle is kept: an exception
        // is about to run in that library. No lock of the heap is held, so the loader may allocate.
        let found = unsafe {
            let library = open(runtime.as_ptr().cast(), RTLD_LAZY | RTLD_NOLOAD);
            if library.is_null() { null_mut() } else { lookup(library, name.as_ptr()) }
        };
        if !found.is_null() {
            return found;
        }
    }
    null_mut()
}
