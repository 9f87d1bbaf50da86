//! The thread that takes objects down: it calls the `fini` of objects whose slabs are to go back.
//!
//! The background thread must not: libc does not know of it, and a program's code may want thread-local storage, or
//! block. Nor may a thread of the program's that just happens to free something: it may hold what `fini` waits for.
//! So the first cache with a `fini` has libc make a thread. Where libc has none to offer, and in a forked child until
//! it makes another such cache, objects are taken down by `weir_trim` and where their cache is destroyed.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

use crate::os::process::{futex_wait, futex_wake, gettid, set_thread_name};
use crate::process::heap::HEAP;
use crate::weak_symbol;

const ABSENT: u32 = 0;
const STARTED: u32 = 1;

static STATE: AtomicU32 = AtomicU32::new(ABSENT);
/// 1: there is something to take down.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// The thread's id.
static ID: AtomicU32 = AtomicU32::new(0);
/// 1: the thread is to return.
static IS_OVER: AtomicU32 = AtomicU32::new(0);

weak_symbol!(
    /// libc's function, if the program has it.
    pthread_create = "pthread_create":
        unsafe extern "C" fn(*mut usize, *const u8, extern "C" fn(*mut u8) -> *mut u8, *mut u8) -> i32
);

/// Starts the thread if there is none. To be called where the program may allocate.
pub fn start() {
    let Some(create) = pthread_create() else { return };
    if STATE.compare_exchange(ABSENT, STARTED, AcqRel, Acquire).is_err() {
        return;
    }
    // With the caller's mask: a program whose other threads have all ended is to be ended by signals still.
    let mut thread = 0;
    // SAFETY: libc's function of this type; nobody joins it.
    let refused = unsafe { create(&mut thread, core::ptr::null(), run, core::ptr::null_mut()) } != 0;
    if refused {
        STATE.store(ABSENT, Release);
    }
}

/// Objects wait to be taken down. May be called from anywhere.
pub(crate) fn notify() {
    if WANTED.swap(1, AcqRel) == 0 {
        let _ = futex_wake(&WANTED, 1);
    }
}

/// In a forked child: the thread is not there.
pub(crate) fn forget() {
    ID.store(0, Release);
    STATE.store(ABSENT, Release);
}

/// The thread's id; 0 where there is none.
pub(crate) fn id() -> u32 {
    ID.load(Acquire)
}

/// The program has no thread left: the thread returns, and libc ends the process, of which it knows no other thread.
pub(crate) fn end() {
    IS_OVER.store(1, Release);
    WANTED.store(1, Release);
    let _ = futex_wake(&WANTED, 1);
}

extern "C" fn run(_: *mut u8) -> *mut u8 {
    let _ = set_thread_name(c"weir-fini");
    ID.store(gettid(), Release);
    loop {
        while WANTED.swap(0, AcqRel) == 0 {
            let _ = futex_wait(&WANTED, 0, None);
        }
        if IS_OVER.load(Acquire) != 0 {
            return core::ptr::null_mut();
        }
        HEAP.run_finalizers();
    }
}
