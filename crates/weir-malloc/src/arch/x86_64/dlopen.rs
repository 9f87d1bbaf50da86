//! How `dlopen` goes on to libc's, as if that had been called.

/// The body of a function `(file, mode)`: jumps to what `$choose` returns for the mode, with the mode that it returns.
macro_rules! go_on {
    ($choose:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_def_cfa_offset 16",
            "push rsi",
            ".cfi_def_cfa_offset 24",
            "sub rsp, 8",
            ".cfi_def_cfa_offset 32",
            "mov edi, esi",
            "call {choose}",
            "add rsp, 8",
            ".cfi_def_cfa_offset 24",
            "pop rsi",
            ".cfi_def_cfa_offset 16",
            "pop rdi",
            ".cfi_def_cfa_offset 8",
            "mov esi, edx",
            "jmp rax",
            ".cfi_endproc",
            choose = sym $choose,
        )
    };
}
pub(crate) use go_on;
