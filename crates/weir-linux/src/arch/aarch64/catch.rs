//! A call of a function that may unwind.

/// Defines `weir_catch` and `weir_catch_landing` (`os/catch.rs`), whose frame `$personality` is asked about.
macro_rules! define_catch {
    ($personality:path) => {
        core::arch::global_asm!(
            ".text",
            ".globl weir_catch",
            ".hidden weir_catch",
            ".type weir_catch, @function",
            ".p2align 4",
            "weir_catch:",
            ".cfi_startproc",
            // DW_EH_PE_pcrel | DW_EH_PE_sdata4
            ".cfi_personality 0x1b, {personality}",
            "stp x29, x30, [sp, -32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "str x19, [sp, 16]",
            ".cfi_offset x19, -16",
            "mov x19, x2",
            "mov x9, x0",
            "mov x10, x1",
            "ldp x0, x1, [x10]",
            "ldp x2, x3, [x10, 16]",
            "ldp x4, x5, [x10, 32]",
            "blr x9",
            "str x0, [x19]",
            "mov w0, wzr",
            "60:",
            "ldr x19, [sp, 16]",
            "ldp x29, x30, [sp], 32",
            ".cfi_remember_state",
            ".cfi_restore x19",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_def_cfa_offset 0",
            "ret",
            ".cfi_restore_state",
            ".globl weir_catch_landing",
            ".hidden weir_catch_landing",
            "weir_catch_landing:",
            // What was thrown is in x0.
            "str x0, [x19]",
            "mov w0, 1",
            "b 60b",
            ".cfi_endproc",
            ".size weir_catch, . - weir_catch",
            personality = sym $personality,
        );
    };
}
pub(crate) use define_catch;
