//! libc's `clone` and `_Fork`, by which a program copies itself past `fork`'s handlers. A copy finds each lock of the heap as it is at
//! that moment, and Weir's background thread may hold one, also where the program has one thread. So what `fork` does around a
//! copy is done here too. A child that shares its parent's memory is no copy: libc's function is called as it is. So it is for
//! two kinds of copies, which are as those of the bare system call. libc's own `fork` comes to its `_Fork`, not to this one.
//!
//! They are not in static programs, as libc's own of the names would be left out there. Nothing stands before the bare system call.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use crate::errno::{ENOSYS, refuse};
use crate::next_symbol::next;
use weir_linux::process::heap::{begin_copy, copy_process, fork_unhandled, shares_memory};

/// The memory is shared, by a thread or a child.
const CLONE_VM: c_int = 0x100;
/// The calling thread sleeps until the child ends or executes a program: the heap would be shut for others as long.
const CLONE_VFORK: c_int = 0x4000;
/// The child has another thread pointer than its parent's thread, by which the heap knows who holds its locks.
const CLONE_SETTLS: c_int = 0x80000;
/// The kernel clears a word of the program's as the child's thread ends.
const CLONE_CHILD_CLEARTID: c_int = 0x20_0000;

/// A child's function.
type Body = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `clone`: behind the argument come the parent's word for the id, the thread pointer, the child's word. Some callers pass fewer.
type Clone = unsafe extern "C" fn(Option<Body>, *mut c_void, c_int, *mut c_void, ...) -> c_int;

/// The next `clone` behind this library's, if the process has one.
pub fn next_clone() -> Option<Clone> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let next = next(c"clone", &FOUND);
    // SAFETY: null, or the function of this name, which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Clone>>(next) }
}

unsafe extern "C" {
    fn fork() -> c_int;
}

type Fork = unsafe extern "C" fn() -> c_int;

/// The next `_Fork` behind this library's, if libc has one: glibc from 2.34 on. Looked up at the start, as a signal handler may be the
/// first to call it.
pub fn next_fork() -> Option<Fork> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let next = next(c"_Fork", &FOUND);
    // SAFETY: null, or the function of this name, which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Fork>>(next) }
}

/// `_Fork` of the standard of 2024, which runs no handlers. Where libc has none it is `fork`, as in programs that look for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    match next_fork() {
        // SAFETY: what the caller promised for it.
        Some(next) => fork_unhandled(|| unsafe { next() }),
        // SAFETY: as for `_Fork`.
        None => unsafe { fork() },
    }
}

/// What a copy is to do.
struct Call {
    body: Body,
    argument: *mut c_void,
    has_word: bool,
}

/// `clone`. The last three are passed on, whether the caller passed them or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    body: Option<Body>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_word: *mut c_void,
    pointer: *mut c_void,
    child_word: *mut c_void,
) -> c_int {
    let Some(next) = next_clone() else { return refuse(ENOSYS) };
    match body {
        Some(body) if flags & (CLONE_VM | CLONE_VFORK | CLONE_SETTLS) == 0 => {
            let call = Call { body, argument, has_word: flags & CLONE_CHILD_CLEARTID != 0 };
            let at = (&raw const call).cast_mut().cast();
            // SAFETY: what the caller promised for it; `begin` finds `call` in the copy of this frame.
            copy_process(|| unsafe { next(Some(begin), stack, flags, at, parent_word, pointer, child_word) })
        }
        _ if flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM => {
            shares_memory();
            // SAFETY: what the caller promised for it.
            unsafe { next(body, stack, flags, argument, parent_word, pointer, child_word) }
        }
        // SAFETY: what the caller promised for it.
        _ => unsafe { next(body, stack, flags, argument, parent_word, pointer, child_word) },
    }
}

/// The beginning of a copy, on its own stack.
unsafe extern "C" fn begin(call: *mut c_void) -> c_int {
    // SAFETY: the call of `clone`, whose frame was copied with all memory.
    let call = unsafe { call.cast::<Call>().read() };
    // SAFETY: this is the only thread of a copy that `copy_process` made.
    unsafe { begin_copy(call.has_word) };
    // SAFETY: the program's function and its argument.
    unsafe { (call.body)(call.argument) }
}
