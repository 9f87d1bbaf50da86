//! A stack for what is said of a wrong access.
//!
//! That takes 7 KiB, and is said on the stack of a signal's handler. A program may have given its handlers 4 KiB, and below them
//! lies its own memory.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::arch;
use crate::os::signals::set_signal_mask;

/// Bytes: what is needed without optimisation too.
const SIZE: usize = 32 << 10;

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; SIZE]>);

// SAFETY: one thread uses it at a time (`IS_TAKEN`).
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; SIZE]));
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls a function on the stack, unless another thread is on it: of errors at one time one is told. Signals are blocked
/// meanwhile, and nothing is called where they cannot be. A handler would begin at the top of the program's stack for signals,
/// where the caller's frames are.
///
/// # Safety
/// The function does not unwind, and may be called with the argument.
pub(super) unsafe fn call(function: extern "C" fn(usize), argument: usize) {
    if IS_TAKEN.swap(true, Acquire) {
        return;
    }
    if let Ok(before) = set_signal_mask(u64::MAX) {
        let top = STACK.0.get().addr() + SIZE;
        // SAFETY: this thread alone has the stack, whose top is a multiple of 16; the caller answers for the function.
        unsafe { arch::signal::call_on_stack(top, function, argument) };
        let _ = set_signal_mask(before);
    }
    IS_TAKEN.store(false, Release);
}

/// In a forked child: a thread that was on the stack is not there.
pub(super) fn leave_parents() {
    IS_TAKEN.store(false, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn note_place(place: usize) {
        let here = 0u8;
        // SAFETY: the test's word.
        unsafe { *(place as *mut usize) = (&raw const here).addr() };
        // Another call meanwhile is left out.
        // SAFETY: the function may be called at any time.
        unsafe { call(never, 0) };
    }

    extern "C" fn never(_: usize) {
        std::process::abort();
    }

    #[test]
    fn a_function_runs_on_the_stack_and_its_caller_goes_on() {
        let bottom = STACK.0.get().addr();
        for _ in 0..2 {
            let mut place = 0usize;
            // SAFETY: it writes the word that it is given.
            unsafe { call(note_place, (&raw mut place).expose_provenance()) };
            assert!((bottom..bottom + SIZE).contains(&place));
        }
        assert_eq!(set_signal_mask(0), Ok(0));
    }
}
