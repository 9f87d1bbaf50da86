//! The console: the first serial port. Lines that a program is to read begin with `weir-guest:`.

use core::fmt::{self, Write};

use super::ports::{read8, write8};

const PORT: u16 = 0x3f8;
const LINE_STATUS: u16 = PORT + 5;
const RECEIVED: u8 = 1;
const CAN_SEND: u8 = 1 << 5;

/// The serial port.
pub struct Console;

/// Sets the port up: 115200 baud, 8 data bits, no interrupts, queues on.
pub fn init() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        // SAFETY: the serial port's own registers.
        unsafe { write8(PORT + register, value) };
    }
}

fn status() -> u8 {
    // SAFETY: the serial port's own register.
    unsafe { read8(LINE_STATUS) }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while status() & CAN_SEND == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: the serial port's own register.
            unsafe { write8(PORT, byte) };
        }
        Ok(())
    }
}

/// Waits for a byte.
pub fn read() -> u8 {
    while status() & RECEIVED == 0 {
        core::hint::spin_loop();
    }
    // SAFETY: the serial port's own register.
    unsafe { read8(PORT) }
}

/// Writes one line for whoever runs the guest.
macro_rules! say {
    ($($what:tt)*) => {{
        use core::fmt::Write as _;
        // The console never fails.
        let _ = writeln!($crate::kernel::console::Console, "weir-guest: {}", format_args!($($what)*));
    }};
}
pub(crate) use say;
