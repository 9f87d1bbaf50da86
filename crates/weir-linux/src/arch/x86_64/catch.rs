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
            "push rbx",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbx, -16",
            "mov rbx, rdx",
            "mov rax, rdi",
            "mov r10, rsi",
            "mov rdi, [r10]",
            "mov rsi, [r10 + 8]",
            "mov rdx, [r10 + 16]",
            "mov rcx, [r10 + 24]",
            "mov r8, [r10 + 32]",
            "mov r9, [r10 + 40]",
            "call rax",
            "mov [rbx], rax",
            "xor eax, eax",
            "pop rbx",
            ".cfi_remember_state",
            ".cfi_def_cfa_offset 8",
            "ret",
            ".cfi_restore_state",
            ".globl weir_catch_landing",
            ".hidden weir_catch_landing",
            "weir_catch_landing:",
            // What was thrown is in rax.
            "mov [rbx], rax",
            "mov eax, 1",
            "pop rbx",
            ".cfi_def_cfa_offset 8",
            "ret",
            ".cfi_endproc",
            ".size weir_catch, . - weir_catch",
            personality = sym $personality,
        );
    };
}
pub(crate) use define_catch;
