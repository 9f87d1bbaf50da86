//! The heap across `fork`.
//!
//! `fork` copies one thread and every lock. So the forking thread takes all the heap's locks first, in rank
//! order, and both sides let go afterwards: the child finds every list whole. glibc does this for its own malloc
//! only; ours has to ask.
//!
//! Handlers run `prepare` in reverse order of registration, and `parent` and `child` in order. Registered first
//! (the library is marked `initfirst`), ours is the last `prepare` and the first `parent` and `child`: other
//! libraries' handlers may allocate freely.

use crate::weak::weak;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

type Handler = extern "C" fn();

weak!(
    /// glibc exports this one from its shared library; its `pthread_atfork` is only in the static part.
    glibc_register = "__register_atfork":
        unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int
);
weak!(
    /// The standard's name, which musl exports.
    posix_register = "pthread_atfork": unsafe extern "C" fn(Handler, Handler, Handler) -> c_int
);

extern "C" fn prepare() {
    // SAFETY: libc calls this right before it forks; `parent` or `child` always follow, on this thread.
    unsafe { weir::heap::fork_prepare() }
}

extern "C" fn parent() {
    // SAFETY: follows `prepare` on the same thread, in the parent.
    unsafe { weir::heap::fork_parent() }
}

extern "C" fn child() {
    // SAFETY: follows `prepare` in the child, whose only thread is this one.
    unsafe { weir::heap::fork_child() }
}

/// Registers the handlers. Refusal is ignored: it leaves a heap that works until a threaded program forks.
pub fn register() {
    // SAFETY: the handlers live as long as the process (`nodelete`). The null handle says that they belong to no
    // library, so that they are never taken off at an unload.
    unsafe {
        if let Some(register) = glibc_register() {
            register(prepare, parent, child, null_mut());
        } else if let Some(register) = posix_register() {
            register(prepare, parent, child);
        }
    }
}
