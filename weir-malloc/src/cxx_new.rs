//! C++ `operator new`, by its mangled names: ordinary and array, with and without an alignment, throwing and not.
//!
//! A program may replace any of the forms, and the standard says which form each other one then calls: a program that
//! defines `operator new(std::size_t)` and `operator delete(void*)` has all unaligned ones go through its two. So only
//! these two and their aligned twins allocate and free; the derived forms jump through the global offset table, which
//! the loader filled with the first definition in the process: the program's, or this one. One jump costs less than a
//! look.
//!
//! A nothrow form has to catch what the program's form throws, but must not throw where the form is ours: there may be
//! no C++ runtime to throw with, or one out of the loader's sight. So it looks whether the table names ours.
//! (A program at a fixed address that takes an operator's address puts a stub of its own there, and is taken for one
//! that replaces it: ours then throws, and is caught.)

use crate::cxx_throw::{weir_call_or_null, weir_new_or_null, weir_new_or_throw};
use crate::fast_path::{allocate, round_up};
use core::ffi::c_void;
use weir_linux::process::counted_calls;

/// What `operator new` without an alignment promises: `__STDCPP_DEFAULT_NEW_ALIGNMENT__`.
const DEFAULT_ALIGN: usize = 16;

// The calls of the slow paths stay the last act of each function, so that they become jumps: see `cxx_throw`.

#[cold]
extern "C" fn throwing_slow(size: usize) -> *mut u8 {
    let block = counted_calls::alloc_slow(size);
    if block.is_null() { weir_new_or_throw(size, DEFAULT_ALIGN) } else { block }
}

#[cold]
extern "C" fn nothrow_slow(size: usize) -> *mut u8 {
    let block = counted_calls::alloc_slow(size);
    if block.is_null() { weir_new_or_null(size, DEFAULT_ALIGN) } else { block }
}

extern "C" fn throwing_aligned(size: usize, align: usize) -> *mut u8 {
    let block = counted_calls::alloc_aligned(align, size);
    if block.is_null() { weir_new_or_throw(size, align) } else { block }
}

extern "C" fn nothrow_aligned(size: usize, align: usize) -> *mut u8 {
    let block = counted_calls::alloc_aligned(align, size);
    if block.is_null() { weir_new_or_null(size, align) } else { block }
}

/// Within a function: a second name for its beginning, which means this one, also where another library has the first
/// name.
macro_rules! ours {
    ($name:literal) => {
        concat!(".globl ", $name, "\n.hidden ", $name, "\n", $name, ":")
    };
}

/// Goes on to the form `$form`, catching what it throws, unless it is ours, that is `$ours`. The arguments are kept.
macro_rules! unless_ours {
    ($form:literal, $ours:literal) => {
        concat!(
            "mov rax, [rip + ",
            $form,
            "@GOTPCREL]\n",
            "lea rdx, [rip + ",
            $ours,
            "]\n",
            "cmp rax, rdx\n",
            "jne {call_or_null}",
        )
    };
}

/// `operator new(std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znwm(size: usize) -> *mut u8 {
    allocate!(throwing_slow, [ours!("weir_ours_new")])
}

/// `operator new[](std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znam(size: usize) -> *mut u8 {
    core::arch::naked_asm!(
        // All of it in one cache line, as for `operator delete`.
        ".p2align 4",
        ".cfi_startproc",
        ours!("weir_ours_new_array"),
        "jmp qword ptr [rip + _Znwm@GOTPCREL]",
        ".cfi_endproc",
    )
}

/// `operator new(std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    allocate!(
        nothrow_slow,
        [ours!("weir_ours_new_nothrow"), unless_ours!("_Znwm", "weir_ours_new")],
        call_or_null = sym weir_call_or_null
    )
}

/// `operator new[](std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        unless_ours!("_Znam", "weir_ours_new_array"),
        // The array form is ours, and goes on to the plain one, as the plain nothrow form does.
        "jmp weir_ours_new_nothrow",
        ".cfi_endproc",
        call_or_null = sym weir_call_or_null,
    )
}

/// `operator new(std::size_t, std::align_val_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ours!("weir_ours_new_aligned"),
        // Its own form without an alignment, not by name: the standard has no such call.
        round_up!("rsi", "rdi", "1", []),
        "jmp weir_ours_new",
        ".cfi_endproc",
        other = sym throwing_aligned,
        sizes = sym weir_linux::platform::rseq::FAST_SIZES,
    )
}

/// `operator new[](std::size_t, std::align_val_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    core::arch::naked_asm!(
        ".p2align 4",
        ".cfi_startproc",
        ours!("weir_ours_new_array_aligned"),
        "jmp qword ptr [rip + _ZnwmSt11align_val_t@GOTPCREL]",
        ".cfi_endproc",
    )
}

/// `operator new(std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ours!("weir_ours_new_aligned_nothrow"),
        unless_ours!("_ZnwmSt11align_val_t", "weir_ours_new_aligned"),
        "jmp {allocate}",
        ".cfi_endproc",
        call_or_null = sym weir_call_or_null,
        allocate = sym nothrow_aligned,
    )
}

/// `operator new[](std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        unless_ours!("_ZnamSt11align_val_t", "weir_ours_new_array_aligned"),
        "jmp weir_ours_new_aligned_nothrow",
        ".cfi_endproc",
        call_or_null = sym weir_call_or_null,
    )
}
