//! The restartable sections: pops from and pushes to the calling CPU's buckets.
//!
//! Each section reads the CPU's index and everything derived from it inside, and ends with its one committing store. It
//! never writes the area's read-only fields and keeps nothing derived from them. `rseq.rs` says where the index is.
//!
//! A section that is aborted begins again, but each thread's fourth abort makes it give up. It then ends as on a bucket that is
//! empty or full, and the slow path does without that bucket. A debugger that steps through a section (`stepi`, `record`, a
//! watchpoint in software) aborts it at each instruction, so that it would never end. Elsewhere a section in thousands is
//! aborted. One in four of those takes the slow path, which costs less than the switch that aborted it.

use core::arch::asm;
use weir_core::base::units::Class;
use weir_core::platform::cpu_table::{END_OFFSET, PUSHES_OFFSET, Pushed, Table};

use crate::arch::words::{ABORTS, DELTA, ID};

/// The signature that the kernel finds before an abort address.
pub const SIGNATURE: u32 = 0x5305_3053;

/// The beginning of every section, here and in fast paths written by hand: announces it and leaves the CPU's slab in the second
/// register. The arguments are
///
/// - the instructions that set the first register to the area's distance from the thread pointer;
/// - the first register, the second, and the second's lower half;
/// - the register with the table's address;
/// - what is done where the section gives up, with all that it was given untouched.
///
/// The text needs two operands: `id` (the symbol [`ID`]) and `aborts` (the number [`ABORTS`]). The section ends at the label
/// `63`, where the caller puts it.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! section {
    ($area:literal, $scratch:literal, $slab:literal, $slab32:literal, $table:literal, $give_up:literal) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n.balign 32\n66:\n.long 0, 0\n.quad 62f, 63f - 62f, 64f\n.popsection\n",
            // The signature that the kernel requires before an abort address, made the operand of a trapping `ud1`.
            ".pushsection __rseq_failure, \"ax\"\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n64:\n",
            "mov ", $scratch, ", [rip + weir_thread_block@GOTTPOFF]\n",
            "inc dword ptr fs:[", $scratch, " + {aborts}]\n",
            "test byte ptr fs:[", $scratch, " + {aborts}], 3\njnz 65f\n",
            $give_up, "\n.popsection\n",
            "65:\n", $area, "\n",
            "lea ", $slab, ", [rip + 66b]\n",
            "mov fs:[", $scratch, " + 8], ", $slab, "\n",
            "62:\nmov ", $slab, ", [rip + {id}]\n",
            "mov ", $slab32, ", fs:[", $scratch, " + ", $slab, "]\n",
            "mov ", $slab, ", [", $table, " + ", $slab, "*8]\n"
        )
    };
}

/// [`section!`] of the sections here. Register names: `c` is scratch, `t` the CPU's slab.
#[rustfmt::skip]
macro_rules! begin {
    ($give_up:literal) => {
        section!(
            "mov {c}, [rip + weir_thread_block@GOTTPOFF]\nadd {c}, [rip + {delta}]",
            "{c}", "{t}", "{t:e}", "{table}", $give_up
        )
    };
}

/// Pops an object of `class`; null when the bucket is empty. The bucket's address has a register of its own, here and in
/// [`push`]: with an index in its place, the load of `current` waits longer for the store before it.
///
/// # Safety
/// The table's entries point to slabs that live on.
#[inline(always)]
pub unsafe fn pop(table: &Table, class: Class) -> *mut u8 {
    let object: *mut u8;
    // SAFETY: a section as described above; the slot below `current` is an object or the zero word.
    unsafe {
        asm!(
            begin!("xor {object:e}, {object:e}\njmp 63f"),
            "lea {bucket}, [{t} + {class}*8]",
            "mov {c:e}, dword ptr [{bucket}]",
            "mov {object}, [{t} + {c}*8 - 8]",
            "test {object}, {object}",
            "jz 63f",
            "dec {c:e}",
            "mov dword ptr [{bucket}], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, bucket = out(reg) _, object = out(reg) object,
            table = in(reg) table, class = in(reg) class.index(),
            delta = sym DELTA, id = sym ID, aborts = const ABORTS,
            options(nostack),
        );
    }
    object
}

/// Pushes `object`.
///
/// # Safety
/// As [`pop`]; the object is not null and the caller's.
#[inline(always)]
pub unsafe fn push(table: &Table, class: Class, object: *mut u8) -> Pushed {
    // SAFETY: a section as described above; `current < end` names a slot of the class. The jumps to the labels leave
    // the section before anything is written.
    unsafe {
        asm!(
            begin!("jmp {full}"),
            "lea {bucket}, [{t} + {class}*8]",
            "mov {c:e}, dword ptr [{bucket}]",
            "cmp [{t} + {c}*8 - 8], {object}",
            "je {twice}",
            "cmp {c:e}, dword ptr [{bucket} + {end}]",
            "jae {full}",
            "inc dword ptr [{t} + {class}*4 + {pushes}]",
            "mov [{t} + {c}*8], {object}",
            "inc {c:e}",
            "mov dword ptr [{bucket}], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, bucket = out(reg) _,
            table = in(reg) table, class = in(reg) class.index(), object = in(reg) object,
            pushes = const PUSHES_OFFSET, end = const END_OFFSET,
            twice = label { return Pushed::Twice },
            full = label { return Pushed::Full },
            delta = sym DELTA, id = sym ID, aborts = const ABORTS,
            options(nostack),
        );
    }
    Pushed::Done
}

/// Pops up to `objects.len()`; returns how many.
///
/// # Safety
/// As [`pop`].
pub unsafe fn pop_batch(table: &Table, class: Class, objects: &mut [*mut u8]) -> usize {
    let n: usize;
    // SAFETY: the section reads slots below `current`, which are objects or the zero word at the bottom. It writes at most
    // `objects.len()` of them to the caller's array.
    unsafe {
        asm!(
            begin!("xor {n:e}, {n:e}\njmp 63f"),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "xor {n:e}, {n:e}",
            "67:",
            "cmp {n}, {max}",
            "jae 68f",
            "mov {object}, [{t} + {c}*8 - 8]",
            "test {object}, {object}",
            "jz 68f",
            "mov [{out} + {n}*8], {object}",
            "inc {n:e}",
            "dec {c:e}",
            "jmp 67b",
            "68:",
            "test {n:e}, {n:e}",
            "jz 63f",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, object = out(reg) _, n = out(reg) n,
            table = in(reg) table, class = in(reg) class.index(), out = in(reg) objects.as_mut_ptr(), max = in(reg) objects.len(),
            delta = sym DELTA, id = sym ID, aborts = const ABORTS,
            options(nostack),
        );
    }
    n
}

/// Pushes the first of `objects`, as many as fit; returns how many.
///
/// # Safety
/// As [`push`].
pub unsafe fn push_batch(table: &Table, class: Class, objects: &[*mut u8]) -> usize {
    let n: usize;
    // SAFETY: the section writes slots from `current` up to `end`, which are free until the store of `current` commits,
    // and reads at most `objects.len()` objects.
    unsafe {
        asm!(
            begin!("xor {n:e}, {n:e}\njmp 63f"),
            "mov {c:e}, dword ptr [{t} + {class}*8]",
            "mov {end:e}, dword ptr [{t} + {class}*8 + {end_at}]",
            "xor {n:e}, {n:e}",
            "67:",
            "cmp {n}, {max}",
            "jae 68f",
            "cmp {c:e}, {end:e}",
            "jae 68f",
            "mov {object}, [{from} + {n}*8]",
            "mov [{t} + {c}*8], {object}",
            "inc {n:e}",
            "inc {c:e}",
            "jmp 67b",
            "68:",
            "test {n:e}, {n:e}",
            "jz 63f",
            "mov dword ptr [{t} + {class}*8], {c:e}",
            "63:",
            t = out(reg) _, c = out(reg) _, end = out(reg) _, object = out(reg) _, n = out(reg) n,
            table = in(reg) table, class = in(reg) class.index(), from = in(reg) objects.as_ptr(), max = in(reg) objects.len(),
            end_at = const END_OFFSET, delta = sym DELTA, id = sym ID, aborts = const ABORTS,
            options(nostack),
        );
    }
    n
}
