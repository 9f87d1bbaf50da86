//! A frame's registers by the numbers that unwind tables use, and the library's own code.

use core::ops::Range;

/// Registers that a frame is described by, in the order of the ABI's DWARF numbers. They are rax, rdx, rcx, rbx, rsi,
/// rdi, rbp, rsp, r8 to r15, and the return address, which stands for rip.
pub const COUNT: usize = 17;
/// The frame pointer.
pub const FRAME_POINTER: usize = 6;
/// The stack pointer.
pub const SP: usize = 7;
/// The return address, which stands for the instruction pointer.
pub const PC: usize = 16;
/// Registers besides the frame pointer that a function keeps for its caller.
pub const KEPT: [u16; 5] = [3, 12, 13, 14, 15];
/// A call puts the return address into the word below the caller's frame.
pub const RETURN_ADDRESS_IS_BELOW_FRAME: bool = true;

/// Whose additions to DWARF unwind tables have.
pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
/// Addresses of programs end here with page tables of four levels; code lies below with five as well.
pub const END_OF_CODE: usize = 1 << 47;

/// The address that a saved return address stands for.
pub fn plain_address(address: usize) -> usize {
    address
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
        // 17 words, after which the stack is aligned to 16 for the call.
        "sub rsp, 136",
        ".cfi_adjust_cfa_offset 136",
        "mov [rsp], rax",
        "mov [rsp + 8], rdx",
        "mov [rsp + 16], rcx",
        "mov [rsp + 24], rbx",
        "mov [rsp + 32], rsi",
        "mov [rsp + 40], rdi",
        "mov [rsp + 48], rbp",
        "lea rax, [rsp + 144]",
        "mov [rsp + 56], rax",
        "mov [rsp + 64], r8",
        "mov [rsp + 72], r9",
        "mov [rsp + 80], r10",
        "mov [rsp + 88], r11",
        "mov [rsp + 96], r12",
        "mov [rsp + 104], r13",
        "mov [rsp + 112], r14",
        "mov [rsp + 120], r15",
        "mov rax, [rsp + 136]",
        "mov [rsp + 128], rax",
        "mov rax, rdx",
        "mov rdx, rsp",
        "call rax",
        "add rsp, 136",
        ".cfi_adjust_cfa_offset -136",
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
            "lea {begin}, [rip + __ehdr_start]",
            "lea {end}, [rip + etext]",
            begin = out(reg) begin, end = out(reg) end,
            options(nomem, nostack, pure, preserves_flags),
        );
    }
    begin..end
}
