//! How `dlopen` goes on to libc's, as if that had been called.

/// The body of a function `(file, mode)`: jumps to what `$choose` returns for the mode, with the mode that it returns.
macro_rules! go_on {
    ($choose:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, -32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "str x0, [sp, 16]",
            "mov w0, w1",
            "bl {choose}",
            "mov x16, x0",
            "ldr x0, [sp, 16]",
            "ldp x29, x30, [sp], 32",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_def_cfa_offset 0",
            "br x16",
            ".cfi_endproc",
            choose = sym $choose,
        )
    };
}
pub(crate) use go_on;
