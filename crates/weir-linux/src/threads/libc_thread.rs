//! Threads that libc makes: for a program's own code, which may need thread-local storage, or block.
//!
//! Only a thread of libc's can make one, where the program may allocate: `pthread_create` allocates, and takes locks of
//! libc's.

use crate::os::signals::set_signal_mask;
use crate::os::symbol::weak_symbol;

weak_symbol!(
    /// libc's function, if the program has it.
    pthread_create = "pthread_create" in libc of "GLIBC_2.2.5":
        unsafe extern "C" fn(*mut usize, *const u8, extern "C" fn(*mut u8) -> *mut u8, *mut u8) -> i32
);
weak_symbol!(
    /// libc's function: the thread's memory is freed when it ends, and nothing joins it.
    pthread_detach = "pthread_detach" in libc of "GLIBC_2.2.5": unsafe extern "C" fn(usize) -> i32
);

/// The function that a thread runs.
pub type Body = extern "C" fn(*mut u8) -> *mut u8;

/// Signals that such a thread does not block (bit `n - 1` is signal `n`). A program may block a signal in all its threads after
/// this one was made, and wait for it with `sigwait`. Were it open here, it would be taken from the program. SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
/// SIGSEGV and SIGSYS are about what the thread itself does: blocked, they would end the process past the program's handlers. By
/// 32 to 34 libc cancels threads and changes the user of all of them: blocked, `setuid` would wait for ever.
const OPEN: u64 = bits(&[4, 5, 6, 7, 8, 11, 31, 32, 33, 34]);

const fn bits(signals: &[u32]) -> u64 {
    let (mut bits, mut i) = (0, 0);
    while i < signals.len() {
        bits |= 1 << (signals[i] - 1);
        i += 1;
    }
    bits
}

/// Starts a thread, which blocks all signals but those of [`OPEN`]; `false`: libc has none to offer.
///
/// # Safety
/// `argument` is what `body` takes, on any thread, for as long as it runs.
pub unsafe fn spawn(body: Body, argument: *mut u8) -> bool {
    let Some(create) = pthread_create() else { return false };
    // The new thread begins with the mask of this moment.
    let before = set_signal_mask(!OPEN);
    let mut thread = 0;
    // SAFETY: libc's function of this type; the caller answers for the argument.
    let made = unsafe { create(&mut thread, core::ptr::null(), body, argument) } == 0;
    if let Ok(before) = before {
        let _ = set_signal_mask(before);
    }
    if let (true, Some(detach)) = (made, pthread_detach()) {
        // SAFETY: libc's function of this type; the thread was made here, and nothing else detaches or joins it.
        unsafe { detach(thread) };
    }
    made
}
