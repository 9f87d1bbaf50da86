//! `dlopen` without `RTLD_DEEPBIND`. A library that is opened with it finds names in itself and in what it needs before it
//! finds them in the program. So it binds `free` to libc's, and the first block that passes between the two kills the
//! process. PHP opens each of its extensions so. AddressSanitizer refuses such calls; here the bit is taken out, unless the
//! setting `deepbind` says otherwise. `dlmopen` is left alone: the libraries of another namespace have a libc of their own,
//! and a heap. With the program's own namespace (`LM_ID_BASE`) it keeps the bit, as LIMITS.md says.
//!
//! It is not in static programs. There libc's own of the name would be left out, and nothing can find it. What a static program
//! opens has a libc of its own as well.
//!
//! libc's function looks at the address that it returns to: the caller's RUNPATH says where libraries are looked for. So
//! it is jumped to, with the caller's stack, not called.

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;

use crate::arch::dlopen::go_on;
use crate::next_symbol::{Open, next_dlopen};
use weir_linux::os::symbol::LibcSymbol;
use weir_linux::platform::statics::TUNABLES;

const RTLD_DEEPBIND: c_int = 8;

/// `dlopen`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const u8, mode: c_int) -> *mut c_void {
    go_on!(choose)
}

/// The function that is jumped to, and the mode that it is given: two words, which a function returns in registers.
#[repr(C)]
struct Choice {
    open: Open,
    mode: u64,
}

extern "C" fn choose(mode: c_int) -> Choice {
    let mode = if TUNABLES.deepbind.get() == 0 { mode & !RTLD_DEEPBIND } else { mode };
    let (open, flag) = next_or_inner();
    Choice { open, mode: u64::from((mode | flag).cast_unsigned()) }
}

/// The next `dlopen`, or what libc has below it, and a flag that this one wants in its mode.
fn next_or_inner() -> (Open, c_int) {
    /// Before glibc 2.34 `dlopen` is in a library of its own. That may come later than this one looks, with the library
    /// that calls it. libc's own use of it is there always. It leaves no text for `dlerror`.
    static INNER: LibcSymbol = LibcSymbol::new(c"__libc_dlopen_mode");
    const INNER_FLAG: c_int = c_int::MIN;
    if let Some(open) = next_dlopen() {
        return (open, 0);
    }
    match INNER.address() {
        // SAFETY: a function of this type where libc exports it.
        Some(inner) => (unsafe { transmute::<usize, Open>(inner) }, INNER_FLAG),
        None => (refuse, 0),
    }
}

unsafe extern "C" fn refuse(_file: *const u8, _mode: c_int) -> *mut c_void {
    null_mut()
}
