//! The end of the process, if Weir itself is at fault.
//!
//! The library is built with `panic = "abort"`, as the workspace's profiles say, and then needs no standard library.
//! Under a profile that unwinds, as when the published package is built by itself, the standard library's handler
//! stands in. A panic ends the process there too, at the first C function.
#![cfg(panic = "abort")]

use core::panic::PanicInfo;
use weir_linux::messages;

/// Names the place of the broken assumption. The message itself is left out: formatting it could panic again.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("an unknown place", 0), |place| (place.file(), place.line()));
    messages::internal_error(file, line)
}

// Frames that call a program's function name the personality routine of Rust's unwinder, as the prebuilt `core` does. Exceptions
// end before they come there (`weir_linux::os::catch`). What passes is libc's forced unwinding, by which a cancelled thread ends:
// with `panic = "abort"` no frame has anything to drop. The routine must not be exported: a program that links Rust's own `std`
// dynamically has the real one.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    crate::arch::panic::go_on_unwinding!()
);
