//! A call of a program's code that may panic or throw, without the standard library.
//!
//! `std::panic::catch_unwind` would need `std`, which the preloaded library must not have. So the call is made from a
//! few lines of assembly whose unwind table names a personality routine of Weir's. The unwinder asks that routine,
//! which says that whatever comes ends here. It catches panics of Rust and exceptions of C++ alike.
//!
//! An exception of C++ is ended as `catch (...)` does, where the loader found the C++ runtime. A panic of Rust is not freed: only
//! the runtime that made it could. Rust's counts of panics stay as they are. So `std::thread::panicking` is true on this thread
//! from now on, and the thread ends soon if another can take its place.
//!
//! Forced unwinding, by which `pthread_exit` and cancellation end a thread, passes through: no landing of Rust's is on its way. What
//! must not be left so is called by [`uncancelled`]. That costs more than [`catch`] does.
//!
//! In a program without an unwinder, or with `panic = "abort"`, nothing is thrown, and a panic ends the process.

use crate::os::symbol::weak_symbol;
use crate::os::thread_block::is_own_thread;

weak_symbol!(
    /// The unwinder's function (libgcc_s or libunwind), by which a personality routine says where to go on.
    set_ip = "_Unwind_SetIP": unsafe extern "C" fn(*mut u8, usize)
);
weak_symbol!(
    /// Its function by which a personality routine gives a register to where it goes on.
    set_register = "_Unwind_SetGR": unsafe extern "C" fn(*mut u8, i32, usize)
);
weak_symbol!(
    /// libc's function by which a thread says whether it may be cancelled now.
    set_cancel_state = "pthread_setcancelstate" in libc of "GLIBC_2.2.5": unsafe extern "C" fn(i32, *mut i32) -> i32
);
weak_symbol!(begin_catch = "__cxa_begin_catch": unsafe extern "C" fn(*mut u8) -> *mut u8);
weak_symbol!(end_catch = "__cxa_end_catch": unsafe extern "C" fn());

/// The register of a landing in which what was thrown is, by its number in unwind tables: rax, or x0.
const THROWN: i32 = 0;
/// The last letters of the classes of C++'s exceptions ("GNUCC++", "CLNGC++"). A byte behind them says how it was thrown.
const CXX: u64 = 0x43_2b_2b;

/// What a function is called with: as many words as both processors pass in registers. Those that it does not take are zero.
pub type Arguments = [usize; 6];

/// A function that may unwind.
pub type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Something was thrown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thrown;

unsafe extern "C-unwind" {
    /// Calls the function with the arguments and stores what it returns; 1, and what was thrown, if it was left by unwinding.
    fn weir_catch(function: Function, arguments: *const Arguments, out: *mut usize) -> u32;
    /// Where `weir_catch` goes on then.
    fn weir_catch_landing();
}

crate::arch::catch::define_catch!(personality);

/// The unwinder asks this for the frame of `weir_catch`: in its first pass whether what is thrown ends here, in the
/// second to go there.
unsafe extern "C" fn personality(_version: i32, actions: i32, _class: u64, thrown: *mut u8, context: *mut u8) -> i32 {
    const SEARCH_PHASE: i32 = 1;
    const HANDLER_FRAME: i32 = 4;
    const FORCE_UNWIND: i32 = 8;
    const HANDLER_FOUND: i32 = 6;
    const INSTALL_CONTEXT: i32 = 7;
    const CONTINUE_UNWIND: i32 = 8;
    match set_ip().zip(set_register()) {
        Some((set_ip, set_register)) if actions & FORCE_UNWIND == 0 => {
            if actions & SEARCH_PHASE != 0 {
                return HANDLER_FOUND;
            }
            if actions & HANDLER_FRAME == 0 {
                return CONTINUE_UNWIND;
            }
            // SAFETY: the unwinder's functions, with the context that the unwinder gave for this frame.
            unsafe {
                set_register(context, THROWN, thrown as usize);
                set_ip(context, weir_catch_landing as *const () as usize);
            }
            INSTALL_CONTEXT
        }
        _ => CONTINUE_UNWIND,
    }
}

/// Calls `function`.
///
/// # Safety
/// The function may be called with these arguments. If it throws, no value that is being left may be needed again.
pub unsafe fn catch(function: Function, arguments: Arguments) -> Result<usize, Thrown> {
    let mut out = 0;
    // SAFETY: the caller's promise of the function; both places outlive the call.
    let thrown = unsafe { weir_catch(function, &arguments, &mut out) };
    if thrown == 0 {
        return Ok(out);
    }
    let exception = out as *mut u8;
    // SAFETY: what the unwinder throws begins with its class.
    if unsafe { exception.cast::<u64>().read() } >> 8 & 0xff_ffff == CXX {
        // SAFETY: an exception of C++ that ended here. Where there is no runtime it stays as it is.
        _ = unsafe { end_exception(exception) };
    }
    Err(Thrown)
}

/// Calls a function of the program's. If another thread cancels this one meanwhile, that takes effect afterwards.
pub fn uncancelled<R>(f: impl FnOnce() -> R) -> R {
    const DISABLE: i32 = 1;
    // libc has no record of a thread of Weir's own.
    let Some(set) = set_cancel_state().filter(|_| !is_own_thread()) else { return f() };
    let mut before = DISABLE;
    // SAFETY: libc's function, by its name, and a place for the state.
    unsafe { set(DISABLE, &mut before) };
    let result = f();
    // SAFETY: libc's function, and a state that it gave. It takes null for the place of the old one.
    unsafe { set(before, core::ptr::null_mut()) };
    result
}

/// Ends an exception that was caught. `false`: the C++ runtime's functions for that are not there.
///
/// # Safety
/// It came to a landing, and is ended once.
pub unsafe fn end_exception(exception: *mut u8) -> bool {
    let (Some(begin), Some(end)) = (begin_catch(), end_catch()) else { return false };
    // SAFETY: by the Itanium C++ ABI, what a landing pad does with the exception it is given.
    unsafe {
        begin(exception);
        end();
    }
    true
}

/// Calls a closure.
pub fn catch_closure<R>(f: impl FnOnce() -> R) -> Result<R, Thrown> {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C-unwind" fn call<F: FnOnce() -> R, R>(
        at: usize,
        _: usize,
        _: usize,
        _: usize,
        _: usize,
        _: usize,
    ) -> usize {
        // SAFETY: `catch_closure` passed its own `Call` of these types, which it does not use meanwhile.
        let call = unsafe { &mut *(at as *mut Call<F, R>) };
        if let Some(f) = call.f.take() {
            call.result = Some(f());
        }
        0
    }
    fn pair<F: FnOnce() -> R, R>(_: &Call<F, R>) -> Function {
        call::<F, R>
    }
    let mut this = Call { f: Some(f), result: None };
    let function = pair(&this);
    // SAFETY: `call` of the types of `this`, which outlives the call.
    unsafe { catch(function, [&raw mut this as usize, 0, 0, 0, 0, 0]) }?;
    this.result.ok_or(Thrown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn what_a_function_returns_comes_back() {
        unsafe extern "C-unwind" fn digits(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
            [a, b, c, d, e, f].iter().rev().fold(0, |number, digit| 10 * number + digit)
        }
        // SAFETY: any arguments do.
        assert_eq!(unsafe { catch(digits, [1, 2, 3, 4, 5, 6]) }, Ok(654_321));
        assert_eq!(catch_closure(|| "text"), Ok("text"));
    }

    #[test]
    fn a_panic_ends_here_and_values_on_its_way_are_dropped() {
        static DROPS: AtomicU32 = AtomicU32::new(0);
        struct Counted;
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Relaxed);
            }
        }
        for round in 1..=3 {
            let end = std::thread::spawn(|| {
                let kept = [1u64, 2, 3].map(std::hint::black_box);
                let result = catch_closure(|| {
                    let _counted = Counted;
                    std::panic::panic_any(7);
                });
                (result, kept)
            });
            assert_eq!(end.join().unwrap(), (Err(Thrown), [1, 2, 3]));
            assert_eq!(DROPS.load(Relaxed), round);
        }
    }
}
