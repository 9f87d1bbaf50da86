//! Functions that stand behind this library's own of the same name, and `dlsym`, which finds them.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use weir_linux::weak_symbol;

weak_symbol!(lookup = "dlsym" of "GLIBC_2.2.5": unsafe extern "C" fn(*mut c_void, *const u8) -> *mut c_void);

/// The next function of a name; null where the process has no `dlsym`, or no such function.
pub fn next(name: &CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    let known = found.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: libc's function of this type, and a C string.
    let next = lookup().map_or(null_mut(), |dlsym| unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) });
    found.store(next, Relaxed);
    next
}

/// `dlopen`.
pub type Open = unsafe extern "C" fn(*const u8, c_int) -> *mut c_void;

/// The next `dlopen` behind this library's (`deepbind`), if the process has one.
pub fn next_dlopen() -> Option<Open> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let next = next(c"dlopen", &FOUND);
    // SAFETY: null, or the function of this name, which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Open>>(next) }
}
