//! A frame's registers by the numbers that unwind tables use, and the library's own code.

use core::ops::Range;

/// Registers that a frame is described by, in the order of the ABI's DWARF numbers: x0 to x30, and sp. The register x30
/// has the return address. That stands for the instruction pointer too, as each frame that calls has saved it.
pub const COUNT: usize = 32;
/// The frame pointer.
pub const FRAME_POINTER: usize = 29;
/// The stack pointer.
pub const SP: usize = 31;
/// The return address, which stands for the instruction pointer.
pub const PC: usize = 30;
/// Registers besides the frame pointer that a function keeps for its caller.
pub const KEPT: [u16; 5] = [19, 20, 21, 22, 23];
/// A call puts the return address into the word below the caller's frame.
pub const RETURN_ADDRESS_IS_BELOW_FRAME: bool = false;

/// Whose additions to DWARF unwind tables have.
pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
/// Addresses of programs end here.
pub const END_OF_CODE: usize = 1 << 48;

/// The address that a saved return address stands for: above the 48 bits of addresses there may be its signature.
pub fn plain_address(address: usize) -> usize {
    address & ((1 << 48) - 1)
}

/// Calls `walk` with the two arguments and the registers, [`COUNT`] words, as they will be when this function has returned.
///
/// # Safety
/// `walk` may be called with these arguments.
#[unsafe(naked)]
pub unsafe extern "C" fn with_registers(
    frames: *mut usize,
    capacity: usize,
    walk: unsafe extern "C" fn(*mut usize, usize, *mut usize) -> usize,
) -> usize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub sp, sp, 272",
        ".cfi_def_cfa_offset 272",
        "stp x29, x30, [sp, 256]",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "stp x0, x1, [sp, 0]",
        "stp x2, x3, [sp, 16]",
        "stp x4, x5, [sp, 32]",
        "stp x6, x7, [sp, 48]",
        "stp x8, x9, [sp, 64]",
        "stp x10, x11, [sp, 80]",
        "stp x12, x13, [sp, 96]",
        "stp x14, x15, [sp, 112]",
        "stp x16, x17, [sp, 128]",
        "stp x18, x19, [sp, 144]",
        "stp x20, x21, [sp, 160]",
        "stp x22, x23, [sp, 176]",
        "stp x24, x25, [sp, 192]",
        "stp x26, x27, [sp, 208]",
        "stp x28, x29, [sp, 224]",
        "add x9, sp, 272",
        "stp x30, x9, [sp, 240]",
        "add x29, sp, 256",
        "mov x9, x2",
        "mov x2, sp",
        "blr x9",
        "ldp x29, x30, [sp, 256]",
        "add sp, sp, 272",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

/// The code of the library, or of the program that it is linked into, by the linker's own symbols.
pub fn own_code() -> Range<usize> {
    let (begin, end): (usize, usize);
    // SAFETY: two addresses; the symbols are hidden, so that they are this library's and not the program's.
    unsafe {
        core::arch::asm!(
            ".hidden __ehdr_start", ".hidden etext",
            "adrp {begin}, __ehdr_start",
            "add {begin}, {begin}, :lo12:__ehdr_start",
            "adrp {end}, etext",
            "add {end}, {end}, :lo12:etext",
            begin = out(reg) begin, end = out(reg) end,
            options(nomem, nostack, pure, preserves_flags),
        );
    }
    begin..end
}
