//! The restartable sections: pops from and pushes to the calling CPU's buckets.
//!
//! Each section reads the CPU's index and everything derived from it inside, and ends with its one committing store. It
//! never writes the area's read-only fields and keeps nothing derived from them. `rseq.rs` says where the index is.
//!
//! A section that is aborted begins again, but each thread's fourth abort makes it give up. It then ends as on a bucket that is
//! empty or full. The section for x86-64 says why: a debugger's steps abort each section.
//!
//! # Memory order
//!
//! A section has no barrier, although arm64 may reorder its loads and stores:
//!
//! - What runs next on the CPU sees all that was done before on that CPU, in its order: an interrupt is precise. So slots are
//!   there for whoever sees the committed `current`. Where the kernel moves an `mm_cid` to another CPU, it has a barrier.
//! - Another thread touches the slab after the fence alone. That interrupts each CPU, which is a barrier there.
//! - The table's entry is stored with release order. What the slab holds is loaded from an address that depends on the entry.
//!
//! One pair of loads needs order: [`DELTA`] shows libc's area, where [`ID`] has to name a field that the kernel fills. So
//! [`DELTA`] is loaded with acquire order.

use core::arch::asm;
use weir_core::base::units::Class;
use weir_core::platform::cpu_table::{END_OFFSET, PUSHES_OFFSET, Pushed, Table};

use crate::arch::words::{ABORTS, DELTA, ID};

/// The signature that the kernel finds before an abort address: a trapping `brk`.
pub const SIGNATURE: u32 = 0xd428_bc00;

/// The beginning of every section, here and in fast paths written by hand: announces it and leaves the CPU's slab in the second
/// register. The arguments are
///
/// - the instructions that set the first register to the area's distance from the thread pointer;
/// - the first register, the second, and the lower half of the second;
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
            // The signature that the kernel requires before an abort address.
            ".pushsection __rseq_failure, \"ax\"\n.balign 4\n.inst 0xd428bc00\n64:\n",
            "adrp ", $scratch, ", :gottprel:weir_thread_block\n",
            "ldr ", $scratch, ", [", $scratch, ", :gottprel_lo12:weir_thread_block]\n",
            "mrs ", $slab, ", tpidr_el0\n",
            "add ", $scratch, ", ", $scratch, ", ", $slab, "\n",
            // A signal between the two accesses may lose an abort of the count, which decides nothing else.
            "ldr ", $slab32, ", [", $scratch, ", {aborts}]\n",
            "add ", $slab32, ", ", $slab32, ", 1\n",
            "str ", $slab32, ", [", $scratch, ", {aborts}]\n",
            // Conditional branches do not reach from here to the section.
            "tst ", $slab32, ", 3\nb.eq 69f\nb 65f\n",
            "69:\n", $give_up, "\n.popsection\n",
            "65:\n", $area, "\n",
            "mrs ", $slab, ", tpidr_el0\n",
            "add ", $scratch, ", ", $scratch, ", ", $slab, "\n",
            "adrp ", $slab, ", 66b\n",
            "add ", $slab, ", ", $slab, ", :lo12:66b\n",
            "str ", $slab, ", [", $scratch, ", 8]\n",
            "62:\nadrp ", $slab, ", {id}\n",
            "ldr ", $slab, ", [", $slab, ", :lo12:{id}]\n",
            "ldr ", $slab32, ", [", $scratch, ", ", $slab, "]\n",
            "ldr ", $slab, ", [", $table, ", ", $slab, ", lsl 3]\n"
        )
    };
}

/// [`section!`] of the sections here. Register names: `c` is scratch, `t` the CPU's slab.
#[rustfmt::skip]
macro_rules! begin {
    ($give_up:literal) => {
        section!(
            "adrp {c}, :gottprel:weir_thread_block\nldr {c}, [{c}, :gottprel_lo12:weir_thread_block]\n\
             adrp {t}, {delta}\nadd {t}, {t}, :lo12:{delta}\nldar {t}, [{t}]\nadd {c}, {c}, {t}",
            "{c}", "{t}", "{t:w}", "{table}", $give_up
        )
    };
}

/// Pops an object of `class`; null when the bucket is empty.
///
/// # Safety
/// The table's entries point to slabs that live on.
#[inline(always)]
pub unsafe fn pop(table: &Table, class: Class) -> *mut u8 {
    let object: *mut u8;
    // SAFETY: a section as described above; the slot below `current` is an object or the zero word.
    unsafe {
        asm!(
            begin!("mov {object}, xzr\nb 63f"),
            "add {h}, {t}, {class}, lsl 3",
            "ldr {c:w}, [{h}]",
            "sub {c:w}, {c:w}, 1",
            "ldr {object}, [{t}, {c:w}, uxtw 3]",
            "cbz {object}, 63f",
            "str {c:w}, [{h}]",
            "63:",
            t = out(reg) _, c = out(reg) _, h = out(reg) _, object = out(reg) object,
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
            begin!("b {full}"),
            "add {h}, {t}, {class}, lsl 3",
            "ldr {c:w}, [{h}]",
            "add {slot}, {t}, {c}, lsl 3",
            "ldur {s}, [{slot}, -8]",
            "cmp {s}, {object}",
            "b.eq {twice}",
            "ldr {s:w}, [{h}, {end}]",
            "cmp {c:w}, {s:w}",
            "b.hs {full}",
            "add {t}, {t}, {class}, lsl 2",
            "ldr {s:w}, [{t}, {pushes}]",
            "add {s:w}, {s:w}, 1",
            "str {s:w}, [{t}, {pushes}]",
            "str {object}, [{slot}]",
            "add {c:w}, {c:w}, 1",
            "str {c:w}, [{h}]",
            "63:",
            t = out(reg) _, c = out(reg) _, h = out(reg) _, s = out(reg) _, slot = out(reg) _,
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
            begin!("mov {n}, xzr\nb 63f"),
            "add {h}, {t}, {class}, lsl 3",
            "ldr {c:w}, [{h}]",
            "mov {n}, xzr",
            "67:",
            "cmp {n}, {max}",
            "b.hs 68f",
            "sub {s:w}, {c:w}, 1",
            "ldr {object}, [{t}, {s:w}, uxtw 3]",
            "cbz {object}, 68f",
            "str {object}, [{out}, {n}, lsl 3]",
            "add {n}, {n}, 1",
            "mov {c:w}, {s:w}",
            "b 67b",
            "68:",
            "cbz {n}, 63f",
            "str {c:w}, [{h}]",
            "63:",
            t = out(reg) _, c = out(reg) _, h = out(reg) _, s = out(reg) _, object = out(reg) _, n = out(reg) n,
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
            begin!("mov {n}, xzr\nb 63f"),
            "add {h}, {t}, {class}, lsl 3",
            "ldr {c:w}, [{h}]",
            "ldr {end:w}, [{h}, {end_at}]",
            "mov {n}, xzr",
            "67:",
            "cmp {n}, {max}",
            "b.hs 68f",
            "cmp {c:w}, {end:w}",
            "b.hs 68f",
            "ldr {object}, [{from}, {n}, lsl 3]",
            "str {object}, [{t}, {c:w}, uxtw 3]",
            "add {n}, {n}, 1",
            "add {c:w}, {c:w}, 1",
            "b 67b",
            "68:",
            "cbz {n}, 63f",
            "str {c:w}, [{h}]",
            "63:",
            t = out(reg) _, c = out(reg) _, h = out(reg) _, end = out(reg) _, object = out(reg) _, n = out(reg) n,
            table = in(reg) table, class = in(reg) class.index(), from = in(reg) objects.as_ptr(), max = in(reg) objects.len(),
            end_at = const END_OFFSET, delta = sym DELTA, id = sym ID, aborts = const ABORTS,
            options(nostack),
        );
    }
    n
}
