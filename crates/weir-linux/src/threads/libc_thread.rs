//! Threads that libc makes: for a program's own code, which may need thread-local storage, or block.
//!
//! Only a thread of libc's can make one, where the program may allocate: `pthread_create` allocates, and takes locks of
//! libc's.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::os::futex::{is_readable, word_before_list};
use crate::os::process::{getpid, gettid};
use crate::os::signals::{set_signal_mask, tgkill};
use crate::os::symbol::weak_symbol;
use crate::os::tasks::unbind;

weak_symbol!(
    /// libc's function, if the program has it.
    pthread_create = "pthread_create" in libc of "GLIBC_2.2.5":
        unsafe extern "C" fn(*mut usize, *const u8, extern "C" fn(*mut u8) -> *mut u8, *mut u8) -> i32
);
weak_symbol!(
    /// libc's function: the thread's memory is freed when it ends, and nothing joins it.
    pthread_detach = "pthread_detach" in libc of "GLIBC_2.2.5": unsafe extern "C" fn(usize) -> i32
);
weak_symbol!(
    /// libc's function: the address of its record of the calling thread, at least in glibc.
    pthread_self = "pthread_self" in libc of "GLIBC_2.2.5": unsafe extern "C" fn() -> usize
);

/// The function that a thread runs. It begins with [`unbind_here`].
pub type Body = extern "C" fn(*mut u8) -> *mut u8;

/// Signals that such a thread does not block (bit `n - 1` is signal `n`). A program may block a signal in all its threads after
/// this one was made, and wait for it with `sigwait`. Were it open here, it would be taken from the program.
///
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and SIGSYS are about what the thread itself does: blocked, they would end the
/// process past the program's handlers. By 32 to 34 libc cancels threads and changes the user of all of them: blocked, `setuid`
/// would wait for ever.
const OPEN: u64 = bits(&[4, 5, 6, 7, 8, 11, 31, 32, 33, 34]);

const fn bits(signals: &[u32]) -> u64 {
    let (mut bits, mut i) = (0, 0);
    while i < signals.len() {
        bits |= 1 << (signals[i] - 1);
        i += 1;
    }
    bits
}

/// Starts a thread, which blocks all signals but those of [`OPEN`]; `false`: libc has none to offer. It does not keep what its
/// maker is bound to. If that spins on its CPU at a real-time priority, the thread would never run.
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
    if let (true, Some(id)) = (made, id_of(thread)) {
        unbind(id);
    }
    if let (true, Some(detach)) = (made, pthread_detach()) {
        // SAFETY: libc's function of this type; the thread was made here, and nothing else detaches or joins it.
        unsafe { detach(thread) };
    }
    made
}

/// By the new thread: where the libc is another its maker does not know its id.
pub fn unbind_here() {
    unbind(gettid());
}

/// The id of a thread that was made and not detached, by libc's name for it. It may not have run yet. The kernel has written the
/// id into glibc's record of the thread, at the same place in each. `None`: it is another libc, or the thread has ended.
fn id_of(thread: usize) -> Option<u32> {
    // SAFETY: libc's function of this type.
    let own = unsafe { pthread_self()?() };
    let word = word_before_list(gettid())?;
    if id_at(word)? != gettid() {
        return None;
    }
    let id = id_at(thread.wrapping_add(word.wrapping_sub(own)))?;
    // Whatever `thread` is: it must be one of this process.
    (id != 0 && tgkill(getpid(), id, 0).is_ok()).then_some(id)
}

/// The word at an address, if it can be read.
fn id_at(address: usize) -> Option<u32> {
    if !address.is_multiple_of(align_of::<AtomicU32>()) || !is_readable(address) {
        return None;
    }
    // SAFETY: the kernel has read it. It lies in the record of a thread that is this one, or is not detached yet.
    Some(unsafe { &*(address as *const AtomicU32) }.load(Relaxed))
}
