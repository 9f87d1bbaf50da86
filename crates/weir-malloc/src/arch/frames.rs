//! What C++'s exceptions need of a function in assembly, the same on all processors: how it begins and ends, and the tables of one
//! in which they end.

/// Defines these macros of the assembler's:
///
/// - `weir_begin`, `weir_end`: a function of this name;
/// - `weir_open`, `weir_closed`: an exception passes its frame, or ends there. The unwinder finds the routine, by way of its slot,
///   and the table through 32-bit distances;
/// - `weir_catch_all`: that table. One call site, from the function's begin to its landing pad, the last label 4, with one action:
///   catch all.
macro_rules! frame_macros {
    () => {
        r#"
        .macro weir_begin name
        .globl \name
        .hidden \name
        .type \name, @function
        .p2align 4
        \name:
        .cfi_startproc
        .endm
        .macro weir_end name
        .cfi_endproc
        .size \name, . - \name
        .endm
        .macro weir_open name
        .endm
        .macro weir_closed name
        .cfi_personality 0x9b, weir_weak___gxx_personality_v0
        .cfi_lsda 0x1b, .Lcatch_all_\name
        .endm
        .macro weir_catch_all name
        .pushsection .gcc_except_table, "a", @progbits
        .balign 4
        .Lcatch_all_\name: .byte 0xff, 0x03
        .uleb128 9f - 6f
        6: .byte 0x01
        .uleb128 8f - 7f
        7: .uleb128 0
        .uleb128 4b - \name
        .uleb128 4b - \name
        .uleb128 1
        8: .byte 1, 0
        .balign 4
        .long 0
        9:
        .popsection
        .endm
        "#
    };
}
pub(crate) use frame_macros;
