//! The heap across `fork`.
//!
//! `fork` copies one thread and every lock. So the forking thread takes all the heap's locks first, in rank
//! order, and both sides let go afterwards: the child finds every list whole. glibc does this for its own malloc
//! only; ours has to ask.
//!
//! Handlers run `prepare` in reverse order of registration, and `parent` and `child` in order. The earlier ours are
//! registered, the later is our `prepare` and the earlier our `parent` and `child`: the handlers of others may then
//! allocate.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::heap::HEAP;
use crate::{background, node_worker, stats_page, taker, weak_symbol};

type Handler = extern "C" fn();

weak_symbol!(
    /// glibc exports this one from its shared library; its `pthread_atfork` is only in the static part.
    glibc_register = "__register_atfork":
        unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int
);
weak_symbol!(
    /// The standard's name, which musl exports.
    posix_register = "pthread_atfork": unsafe extern "C" fn(Handler, Handler, Handler) -> c_int
);

/// Right before libc forks: takes every lock of the heap, unless a signal handler that interrupted the heap forks.
/// `parent` or `child` always follow, on this thread.
extern "C" fn prepare() {
    HEAP.freeze();
}

extern "C" fn parent() {
    // SAFETY: follows `prepare` on the same thread, in the parent.
    unsafe { HEAP.thaw() };
}

/// In the child there is no background thread, and the counters are to be a page of its own.
extern "C" fn child() {
    stats_page::leave_parents();
    // SAFETY: follows `prepare`, and this is the child's only thread.
    unsafe { HEAP.thaw_child() }
    background::forget();
    node_worker::forget();
    taker::forget();
}

/// Registers the handlers. Refusal is ignored: it leaves a heap that works until a threaded program forks.
pub(crate) fn register() {
    // SAFETY: the handlers live as long as the process (a library with this code in it may not be unloaded). The null
    // handle says that they belong to no library, so that they are not taken off while the process ends either.
    unsafe {
        if let Some(register) = glibc_register() {
            register(prepare, parent, child, null_mut());
        } else if let Some(register) = posix_register() {
            register(prepare, parent, child);
        }
    }
}
