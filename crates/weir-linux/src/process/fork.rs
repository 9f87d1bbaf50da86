//! libc's side of `fork`: its handlers, and the locks that it takes after them.
//!
//! `fork` copies one thread and every lock. So the forking thread takes all the heap's locks first, in rank order, and
//! both sides release them afterwards. The child finds every list whole. glibc does this for its own malloc only; other
//! heaps must register handlers. The handlers themselves are in `heap.rs`.
//!
//! Handlers run `prepare` in reverse order of registration, and `parent` and `child` in order. The earlier ours are
//! registered, the later is our `prepare` and the earlier our `parent` and `child`. So the handlers of others may
//! allocate, and take locks under which their other threads allocate.
//!
//! libc takes locks of its own after all handlers. A thread that allocates under one of those waits for the frozen
//! heap, and `fork` for the thread. So each such lock is to be taken before the heap's.
//! - glibc's list of streams, under which `fflush(NULL)` writes, and a stream's writer may allocate. The functions that
//!   lock it are exported by every glibc since 2.2.5, and the lock is recursive: `prepare` takes it first.
//! - glibc's name service database (2.33 and later): nothing is allocated under its lock. A changed `nsswitch.conf` is
//!   read with the lock released.
//! - glibc's list of `popen` streams, in releases of 2026: `popen` allocates under it when it has to close the streams
//!   of others in the child. Neither it nor musl's list of streams can be taken from outside: see `fork_freeze.rs`.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::os::symbol::weak_symbol;
use crate::os::tasks::is_one_to_libc;

/// A function that libc calls around `fork`.
pub(super) type Handler = extern "C" fn();

weak_symbol!(
    /// glibc exports this one from its shared library; its `pthread_atfork` is only in the static part.
    glibc_register = "__register_atfork":
        unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int
);
weak_symbol!(
    /// The standard's name, which musl exports.
    posix_register = "pthread_atfork" in libc: unsafe extern "C" fn(Handler, Handler, Handler) -> c_int
);

weak_symbol!(list_lock = "_IO_list_lock": unsafe extern "C" fn());
weak_symbol!(list_unlock = "_IO_list_unlock": unsafe extern "C" fn());
weak_symbol!(
    /// Releases the lock, whichever thread held it and however often.
    list_reset = "_IO_list_resetlock": unsafe extern "C" fn()
);

/// glibc's list of streams: how often `prepare` holds its lock, which is more than once where a signal handler forks
/// that interrupted a fork. Only its holder writes it.
struct Streams(AtomicU32);

static STREAMS: Streams = Streams(AtomicU32::new(0));

impl Streams {
    /// Takes the lock, but not in a process of one thread: glibc does not take it there either, nor reset it in the
    /// child. A signal handler that forks may have interrupted its holder, which goes on in the child and releases it
    /// there.
    fn lock(&self) {
        if let (Some(lock), Some(_), Some(_), false) = (list_lock(), list_unlock(), list_reset(), is_one_to_libc()) {
            // SAFETY: libc's function of this type; the lock is recursive.
            unsafe { lock() };
            self.0.store(self.0.load(Relaxed) + 1, Relaxed);
        }
    }

    /// In the parent: undoes [`Streams::lock`].
    fn unlock(&self) {
        let held = self.0.load(Relaxed);
        if let (Some(unlock), 1..) = (list_unlock(), held) {
            self.0.store(held - 1, Relaxed);
            // SAFETY: libc's function of this type; `lock` took it on this thread, and no other thread gets past `lock`
            // meanwhile.
            unsafe { unlock() };
        }
    }

    /// In the child: glibc has reset the lock by now, so giving it back would leave it with a count of minus one. Reset
    /// a second time it is the same.
    fn reset(&self) {
        if let (Some(reset), 1..) = (list_reset(), self.0.swap(0, Relaxed)) {
            // SAFETY: libc's function of this type; the child has one thread.
            unsafe { reset() };
        }
    }
}

/// Takes the lock of glibc's list of streams, before the heap's locks are taken.
pub(super) fn lock_streams() {
    STREAMS.lock();
}

/// In the parent: undoes [`lock_streams`].
pub(super) fn unlock_streams() {
    STREAMS.unlock();
}

/// In the child: undoes [`lock_streams`].
pub(super) fn reset_streams() {
    STREAMS.reset();
}

/// Registers handlers. Refusal is ignored: it leaves a heap that works until a threaded program forks.
///
/// # Safety
/// The handlers live as long as the process: a library with this code in it may not be unloaded.
pub(super) unsafe fn register(prepare: Handler, parent: Handler, child: Handler) {
    // SAFETY: libc's functions of these types, and handlers that stay, as the caller promises. The null handle says
    // that they belong to no library, so that they are not taken off while the process ends either.
    unsafe {
        if let Some(register) = glibc_register() {
            register(prepare, parent, child, null_mut());
        } else if let Some(register) = posix_register() {
            register(prepare, parent, child);
        }
    }
}
