//! The handler of the signals that a wrong access raises.
//!
//! It is set while guarding is on, and stands before what was there. If the address is in the pool it says what it knows, on a
//! stack of Weir's, as the program's stack for signals may be too small. In each case it then does what would have been done
//! without it. It calls the program's handler, as it was to be called. Or it sets the default action and returns to the
//! instruction, which then ends the process, with a core file of that instruction.
//!
//! A handler that the program sets later takes this one's place, and is left alone.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use super::{own_stack, report, slots};
use crate::arch;
use crate::os::process::{getpid, gettid};
use crate::os::signals::tgkill;
use crate::os::signals::{self as signal, Action, DEFAULT, IGNORE, ON_STACK, RESET, SIGBUS, SIGINFO, SIGSEGV};

/// One signal's handler as it was before.
struct Before {
    signal: u32,
    action: UnsafeCell<Action>,
    /// The action was kept, and the handler put before it.
    is_known: AtomicBool,
}

// SAFETY: the action is written before the handler is installed, by the one thread that switches (see `TURN`), and only read
// after.
unsafe impl Sync for Before {}

const fn before(signal: u32) -> Before {
    let action = UnsafeCell::new(Action::NONE);
    Before { signal, action, is_known: AtomicBool::new(false) }
}

static BEFORE: [Before; 2] = [before(SIGSEGV), before(SIGBUS)];
/// A thread is switching.
static TURN: AtomicBool = AtomicBool::new(false);
/// The last address that was reported: a handler of the program's may return to the same instruction without end.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// `siginfo_t`: where the code is, and the address of a fault.
const CODE: usize = 8;
const ADDRESS: usize = 16;

type Handler = unsafe extern "C" fn(i32, *mut u8, *mut u8);
type PlainHandler = unsafe extern "C" fn(i32);

/// Puts the handler before those that are there, or takes it away, where it is still the one in force.
pub(super) fn set_installed(is_wanted: bool) {
    // A second thread that switches leaves it to the first: the caller looks at the setting again.
    if TURN.swap(true, SeqCst) {
        return;
    }
    BEFORE.iter().for_each(|one| if is_wanted { install(one) } else { remove(one) });
    TURN.store(false, SeqCst);
}

/// In a forked child: the thread that switched is not there, unless it is this one, in a signal's handler.
pub(super) fn leave_parents() {
    TURN.store(false, SeqCst);
}

fn is_ours(action: &Action) -> bool {
    action.handler == handle as *const () as usize
}

fn install(before: &Before) {
    // Known: ours is in force, or the program has put one of its own in its place. That may call the one that it found, which
    // was ours, so that ours must not come before it again.
    if before.is_known.load(SeqCst) {
        return;
    }
    let Ok(now) = signal::action(before.signal) else { return };
    if is_ours(&now) {
        // A thread of this process's parent had come so far as the fork came.
        return before.is_known.store(true, SeqCst);
    }
    // SAFETY: this thread alone switches. A handler of ours that began before it was taken away may read one or the other
    // action, both of the program's.
    unsafe { *before.action.get() = now };
    // As the program's would be called; on the stack for signals, if there is none.
    let flags = if matches!(now.handler, DEFAULT | IGNORE) { ON_STACK } else { now.flags & !RESET };
    let ours = Action::new(handle as *const () as usize, flags, now.mask);
    // SAFETY: the handler takes no lock and allocates nothing, so it may come at any instruction; the library stays.
    let is_set = unsafe { signal::set_action(before.signal, &ours) }.is_ok();
    before.is_known.store(is_set, SeqCst);
}

fn remove(before: &Before) {
    let is_in_force = signal::action(before.signal).is_ok_and(|now| is_ours(&now));
    if is_in_force && before.is_known.swap(false, SeqCst) {
        // SAFETY: what the program had set.
        let _ = unsafe { signal::set_action(before.signal, &*before.action.get()) };
    }
}

/// A wrong access.
struct Fault {
    at: usize,
    is_write: Option<bool>,
}

/// Says what is known of a [`Fault`], by its address.
extern "C" fn say(fault: usize) {
    // SAFETY: `handle` alone calls this, with a fault of its own.
    let fault = unsafe { &*core::ptr::with_exposed_provenance::<Fault>(fault) };
    report::fault(slots::nearest(fault.at), fault.at, fault.is_write);
}

/// # Safety
/// Called by the kernel, for one of the two signals.
unsafe extern "C" fn handle(number: i32, info: *mut u8, context: *mut u8) {
    // SAFETY: the kernel's structures, at the offsets that its ABI has.
    let (code, at) = unsafe { (info.add(CODE).cast::<i32>().read(), info.add(ADDRESS).cast::<usize>().read()) };
    let is_fault = code > 0;
    if is_fault && slots::owns(at) && REPORTED.swap(at, Relaxed) != at {
        // SAFETY: the kernel's context of this signal, which came for an access.
        let fault = Fault { at, is_write: unsafe { arch::signal::is_write(context) } };
        // SAFETY: the function takes a fault, which outlives the call, and does not unwind.
        unsafe { own_stack::call(say, (&raw const fault).expose_provenance()) };
    }
    // SAFETY: the kernel's arguments.
    unsafe { go_on(number, info, context, is_fault) }
}

/// Does what would have been done without the handler.
///
/// # Safety
/// The arguments are those of a handler of one of the two signals.
unsafe fn go_on(number: i32, info: *mut u8, context: *mut u8, is_fault: bool) {
    let Some(before) = BEFORE.iter().find(|one| one.signal == number as u32) else { return };
    // SAFETY: written before the handler was installed.
    let action = unsafe { *before.action.get() };
    if action.handler == IGNORE && !is_fault {
        return;
    }
    let is_default = matches!(action.handler, DEFAULT | IGNORE);
    if is_default || action.flags & RESET != 0 {
        // SAFETY: the default action.
        let _ = unsafe { signal::set_action(before.signal, &Action::NONE) };
    }
    if is_default {
        // A fault comes again, as the instruction is executed again. A signal that was sent is sent again: it is blocked until
        // this handler returns.
        if !is_fault {
            let _ = tgkill(getpid(), gettid(), before.signal);
        }
    } else if action.flags & SIGINFO != 0 {
        // SAFETY: the program's handler of three arguments, with the kernel's.
        unsafe { core::mem::transmute::<usize, Handler>(action.handler)(number, info, context) }
    } else {
        // SAFETY: the program's handler of one argument.
        unsafe { core::mem::transmute::<usize, PlainHandler>(action.handler)(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_process_that_was_switching_can_switch() {
        let [one, _] = &BEFORE;
        let in_force = || is_ours(&signal::action(one.signal).unwrap());
        set_installed(true);
        // The copy of a thread's work that had installed the handler, and not noted it.
        TURN.store(true, SeqCst);
        one.is_known.store(false, SeqCst);
        set_installed(false);
        assert!(in_force(), "another thread's turn");
        leave_parents();
        set_installed(true);
        // SAFETY: nothing switches meanwhile.
        assert!(one.is_known.load(SeqCst) && !is_ours(unsafe { &*one.action.get() }), "it would call itself");
        set_installed(false);
        assert!(!in_force());
    }
}
