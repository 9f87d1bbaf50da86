//! The I/O ports, and PCI configuration space behind two of them.

use core::arch::asm;

use weir_guest::pci::{ConfigSpace, Function};

/// Writes a byte to a port.
///
/// # Safety
/// The write does what the caller wants and nothing to memory that is in use.
pub unsafe fn write8(port: u16, value: u8) {
    // SAFETY: as the caller promises.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}

/// Reads a byte from a port.
///
/// # Safety
/// As [`write8`].
pub unsafe fn read8(port: u16) -> u8 {
    let value;
    // SAFETY: as the caller promises.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes 32 bits to a port.
///
/// # Safety
/// As [`write8`].
pub unsafe fn write32(port: u16, value: u32) {
    // SAFETY: as the caller promises.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) }
}

/// Reads 32 bits from a port.
///
/// # Safety
/// As [`write8`].
pub unsafe fn read32(port: u16) -> u32 {
    let value;
    // SAFETY: as the caller promises.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) };
    value
}

/// PCI configuration space by the address and data ports of every PC.
pub struct ConfigPorts;

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

fn select(at: Function, offset: u8) {
    let function = u32::from(at.bus) << 16 | u32::from(at.device) << 11 | u32::from(at.function) << 8;
    // SAFETY: chooses a register and does nothing else.
    unsafe { write32(ADDRESS, 1 << 31 | function | u32::from(offset & !3)) }
}

impl ConfigSpace for ConfigPorts {
    fn read(&self, function: Function, offset: u8) -> u32 {
        select(function, offset);
        // SAFETY: configuration registers can be read without effect.
        unsafe { read32(DATA) }
    }

    fn write(&self, function: Function, offset: u8, value: u32) {
        select(function, offset);
        // SAFETY: the driver of the function decides what it writes there.
        unsafe { write32(DATA, value) }
    }
}
