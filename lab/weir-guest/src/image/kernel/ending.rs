//! The end of the guest, good or bad, and what the compiler wants to be there for a bad one.

use core::panic::PanicInfo;

use super::console::say;
use super::ports::write32;

/// QEMU's `isa-debug-exit` device: it ends QEMU with status `2 * value + 1`.
const EXIT: u16 = 0xf4;

/// How the guest ended.
#[derive(Clone, Copy)]
pub enum End {
    /// QEMU ends with status 33.
    Good = 0x10,
    /// QEMU ends with status 35.
    Bad = 0x11,
}

/// Ends the guest; without the device for it, it stands still.
pub fn exit(end: End) -> ! {
    // SAFETY: the port of the exit device, or of nothing.
    unsafe { write32(EXIT, end as u32) };
    loop {
        // SAFETY: without interrupts this never returns, which is what is wanted.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    say!("error={}", info.message());
    if let Some(at) = info.location() {
        say!("at={}:{}", at.file(), at.line());
    }
    exit(End::Bad)
}

/// The library `core` was compiled for programs that unwind, and its tables name this function. Nothing unwinds here
/// (`panic = "abort"`), so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(End::Bad)
}
