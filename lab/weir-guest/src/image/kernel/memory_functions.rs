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
/// `memcmp`'s: both are readable for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: both are read within their length.
    let word =
        |at: usize| unsafe { (a.add(at).cast::<u64>().read_unaligned(), b.add(at).cast::<u64>().read_unaligned()) };
    let same = (0..len / 8 * 8).step_by(8).take_while(|&at| word(at).0 == word(at).1).count() * 8;
    // SAFETY: as above. Volatile, so that the loop is not taken for a call of this function.
    let bytes = (same..len).map(|at| unsafe { (a.add(at).read_volatile(), b.add(at).read_volatile()) });
    bytes.map(|(a, b)| i32::from(a) - i32::from(b)).find(|difference| *difference != 0).unwrap_or(0)
}

/// # Safety
/// As `memcmp`; only whether the result is 0 counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { memcmp(a, b, len) }
}
