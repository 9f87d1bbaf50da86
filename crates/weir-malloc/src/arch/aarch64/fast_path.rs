//! The fast paths of `malloc`, `new`, `free` and `delete`: none is written for arm64 yet. Each call goes to its slow path in
//! Rust, which does all of it.

/// The body of a function `(size, ...) -> block`; `$slow` has the signature `extern "C" fn(usize) -> *mut u8`. What
/// follows it is assembly to begin with, which leaves the size alone, and that assembly's operands.
macro_rules! allocate {
    ($slow:path $(, [$($before:expr),*] $(, $operand:ident = sym $symbol:path)*)?) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $($($before,)*)?
            "b {slow}",
            ".cfi_endproc",
            slow = sym $slow,
            $($($operand = sym $symbol,)*)?
        )
    };
}

/// The body of a function `(block, ...)`.
macro_rules! free {
    () => {
        core::arch::naked_asm!(".cfi_startproc", "b {slow}", ".cfi_endproc", slow = sym $crate::c_abi::free_slow)
    };
}

/// The body of a function of a size and an alignment, in either order: `$other` does it. In brackets assembly to begin with.
macro_rules! allocate_aligned {
    ($first:ident, $second:ident, $other:path, $next:literal, [$($before:expr),*]) => {
        core::arch::naked_asm!($($before,)* ".cfi_startproc", "b {other}", ".cfi_endproc", other = sym $other)
    };
}

/// The body of `posix_memalign`.
macro_rules! store_aligned {
    () => {
        core::arch::naked_asm!(
            ".cfi_startproc", "b {slow}", ".cfi_endproc",
            slow = sym $crate::c_abi::posix_memalign,
        )
    };
}

pub(crate) use {allocate, allocate_aligned, free, store_aligned};
