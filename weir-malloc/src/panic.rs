//! The end of the process, if Weir itself is at fault.
//!
//! The library is built with `panic = "abort"`, as the workspace's profiles say, and then needs no standard library. Under a
//! profile that unwinds, as when the published package is built by itself, the standard library's handler stands in; a panic
//! ends the process there too, at the first C function.

#[cfg(panic = "abort")]
use crate::fatal::INTERNAL;
use crate::fatal::Message;
use crate::text::Text;
#[cfg(panic = "abort")]
use core::panic::PanicInfo;

unsafe extern "C" {
    safe fn abort() -> !;
}

/// Says one line on standard error and aborts. For failures after which no promise can be kept.
#[cold]
pub fn die(message: &Message) -> ! {
    let mut line = Text::<256>::new();
    line.str("weir: ").str(message.what).str(": ").str(message.remedy).str("\n");
    line.to_stderr();
    abort()
}

/// Names the place of the broken assumption. The message itself is left out: formatting it could panic again.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut line = Text::<512>::new();
    line.str("weir: ").str(INTERNAL.what);
    if let Some(place) = info.location() {
        line.str(" at ").str(place.file()).str(":").number(place.line() as usize);
    }
    line.str(": ").str(INTERNAL.remedy).str("\n");
    line.to_stderr();
    abort()
}

// Unoptimised, the prebuilt `core` refers to the personality routine of Rust's unwinder. It is never called
// (`panic = "abort"`), and it must not be exported: a program that links Rust's own `std` dynamically has the
// real one.
#[cfg(panic = "abort")]
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:", "ud2");
