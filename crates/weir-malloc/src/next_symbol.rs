//! Functions that stand behind this library's own of the same name, and `dlsym`, which finds them.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
#[cfg(not(target_feature = "crt-static"))]
use weir_linux::os::symbol;
use weir_linux::weak_symbol;

weak_symbol!(lookup = "dlsym" of "GLIBC_2.2.5": unsafe extern "C" fn(*mut c_void, *const u8) -> *mut c_void);

/// The next function of a name; null where the process has none.
///
/// Before glibc 2.34 `dlsym` is in a library of its own (libdl), which many programs do not load. There the objects' tables of
/// names are read. In a static program nothing is behind a function: libc's own of the name is left out.
pub fn next(name: &CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    let known = found.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = look_behind(name);
    found.store(next, Relaxed);
    next
}

#[cfg(not(target_feature = "crt-static"))]
fn look_behind(name: &CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    unsafe extern "C" {
        /// By its address the loader's list shows which object is this library. The linker defines it.
        #[link_name = "_DYNAMIC"]
        static OWN: u8;
    }
    // SAFETY: libc's function of this type, and a C string.
    let next = lookup().map_or(null_mut(), |dlsym| unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) });
    if !next.is_null() {
        return next;
    }
    symbol::next(name, &raw const OWN).map_or(null_mut(), |address| address as *mut c_void)
}

#[cfg(target_feature = "crt-static")]
fn look_behind(_name: &CStr) -> *mut c_void {
    null_mut()
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
