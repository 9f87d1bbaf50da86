//! The functions on memory that the compiler calls by name, and libc has elsewhere. In assembly, so that none of
//! them is compiled into a call of itself.

use core::arch::asm;

/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) len % 8,
            inout("rcx") len / 8 => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: as the caller promises; the first byte written is not read later.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: as the caller promises; from the last byte on, each is read before it is written.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") len => _, inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    let pattern = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    // SAFETY: as the caller promises.
    unsafe {
        asm!("rep stosq", "mov rcx, {rest}", "rep stosb", rest = in(reg) len % 8,
            inout("rcx") len / 8 => _, inout("rdi") to => _, in("rax") pattern,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    let (mut a, mut b, mut left) = (a, b, len % 8);
    if len >= 8 {
        let same: u8;
        // SAFETY: as the caller promises; whole words of both.
        unsafe {
            asm!("repe cmpsq", "sete {same}", same = out(reg_byte) same, inout("rcx") len / 8 => _,
                inout("rsi") a, inout("rdi") b, options(nostack, readonly));
        }
        if same == 0 {
            // The pointers are behind the words that differ; the bytes of those decide.
            (a, b, left) = (a.wrapping_sub(8), b.wrapping_sub(8), 8);
        }
    }
    let (mut less, mut differ) = (0u8, 0u8);
    if left > 0 {
        // SAFETY: as above; the bytes that are left, or the word that differs.
        unsafe {
            asm!("repe cmpsb", "setb {less}", "setne {differ}", less = out(reg_byte) less,
                differ = out(reg_byte) differ, inout("rcx") left => _, inout("rsi") a => _, inout("rdi") b => _,
                options(nostack, readonly));
        }
    }
    match (differ, less) {
        (0, _) => 0,
        (_, 0) => 1,
        _ => -1,
    }
}

/// # Safety
/// As `memcmp`; only whether the result is 0 counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { memcmp(a, b, len) }
}
