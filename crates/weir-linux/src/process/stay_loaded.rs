//! A library with the heap inside stays loaded, whatever `dlclose` says: libc keeps handlers of the heap's for `fork`, Weir's
//! threads run its code, the kernel reads a section's descriptor in it, and blocks of the program's lie in its windows.
//!
//! `libweir.so` is linked with `-z nodelete`. A crate cannot have that done to a program's own library, so such a library asks the
//! loader as it is loaded. It does so in a constructor, not at the first allocation:
//! - The thread that runs a constructor holds the loader's lock already. A first allocation would take the lock, and might wait
//!   for a constructor that waits for the allocating thread.
//! - `dlopen` allocates. A first allocation may be in a signal handler that interrupted libc's `malloc`.
//! - No thread of Weir's is there yet, and no handler for `fork`.
//!
//! Whatever the program began with is never unloaded: its own file, and all that is linked or preloaded. There the constructor
//! does no more than to find its object in the loader's list. musl unloads nothing, and static programs have no loader.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::NonNull;

use crate::os::symbol::{self, LibcSymbol, weak_symbol};

weak_symbol!(
    /// By its address the loader's list shows which object this is. The linker defines it, but not in a static program.
    own = "_DYNAMIC": NonNull<u8>
);

/// glibc's `Dl_info` (`dlfcn.h`).
#[repr(C)]
struct Info {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

type InfoOf = unsafe extern "C" fn(*const c_void, *mut Info) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

// In a library of their own (libdl) before glibc 2.34. A reference by name would have a version, and in `libweir.so` it would be
// that library's own `dlopen`.
static INFO_OF: LibcSymbol = LibcSymbol::new(c"dladdr");
static OPEN: LibcSymbol = LibcSymbol::new(c"dlopen");

/// Has the loader keep the object that this code is in. Where it cannot, `dlclose` unloads the object as any other: before glibc
/// 2.34, where the program has libdl by way of another library alone.
pub(super) extern "C" fn stay_loaded() {
    const RTLD_NOW: c_int = 2;
    const RTLD_NOLOAD: c_int = 4;
    const RTLD_NODELETE: c_int = 0x1000;
    if own().is_none_or(|own| symbol::is_of_the_beginning(own.as_ptr())) {
        return;
    }
    let (Some(info_of), Some(open)) = (INFO_OF.address(), OPEN.address()) else { return };
    let (info_of, open) = (info_of as *const (), open as *const ());
    // SAFETY: libc's functions of these names, which have these types.
    let (info_of, open) = unsafe { (transmute::<*const (), InfoOf>(info_of), transmute::<*const (), Open>(open)) };
    let mut info = MaybeUninit::<Info>::uninit();
    // SAFETY: any address may be asked for; what is known of it is written to `info`.
    if unsafe { info_of(stay_loaded as *const c_void, info.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: the call succeeded. The name is the loader's own string, by which the loader finds the object in the caller's
    // namespace before it looks for a file. Nothing new is loaded. The handle is never closed.
    let handle = unsafe { open(info.assume_init_ref().file, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) };
    // Not a jump: the loader knows the namespace by the address to which its function returns.
    core::hint::black_box(handle);
}
