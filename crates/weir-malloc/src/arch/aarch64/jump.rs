//! Jumps to other forms of C++'s operators, and `dlopen`'s; and functions by name, wherever they are.

/// The body of a function that goes on to `$next` with its arguments. The way is the global offset table, where the loader
/// put the first definition in the process. In brackets what comes first: assembly.
macro_rules! jump_by_table {
    ($next:path $(, [$($before:expr),*])?) => {
        core::arch::naked_asm!(
            // All of it in one line of the cache.
            ".p2align 4",
            ".cfi_startproc",
            $($($before,)*)?
            "adrp x16, :got:{next}",
            "ldr x16, [x16, :got_lo12:{next}]",
            "br x16",
            ".cfi_endproc",
            next = sym $next,
        )
    };
}

/// The first definition of `$function` in the process: the program's own, or this one. From the global offset table. It is
/// written by its name: as an operand, it may become another function with the same body, under that one's name.
macro_rules! first_in_process {
    ($function:ident) => {{
        let first: *const ();
        // SAFETY: a load from a table that the loader filled and that stays as it is.
        unsafe {
            core::arch::asm!(
                concat!("adrp {first}, :got:", stringify!($function)),
                concat!("ldr {first}, [{first}, :got_lo12:", stringify!($function), "]"),
                first = out(reg) first,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        first
    }};
}

/// The body of a function that goes on to `$next`, of this library. In brackets what comes first, and its operands.
macro_rules! jump {
    ($next:path, [$($before:expr),*] $(, $operand:ident = sym $symbol:path)*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $($before,)*
            "b {next}",
            ".cfi_endproc",
            next = sym $next,
            $($operand = sym $symbol,)*
        )
    };
}

/// Goes on to the form `$form`, catching what it throws, unless it is ours, that is `$ours`. The arguments are kept.
macro_rules! unless_ours {
    ($form:literal, $ours:literal) => {
        concat!(
            "adrp x16, :got:",
            $form,
            "\nldr x16, [x16, :got_lo12:",
            $form,
            "]\n",
            "adrp x17, ",
            $ours,
            "\nadd x17, x17, :lo12:",
            $ours,
            "\ncmp x16, x17\nb.eq 70f\nb {call_or_null}\n70:",
        )
    };
}

/// Puts the third argument into the second's place.
macro_rules! third_to_second {
    () => {
        "mov x1, x2"
    };
}

pub(crate) use {first_in_process, jump, jump_by_table, third_to_second, unless_ours};
