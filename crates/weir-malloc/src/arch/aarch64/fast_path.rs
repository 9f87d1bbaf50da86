//! The fast paths of `malloc`, `new`, `free` and `delete`, written by hand: what the file for x86-64 says holds here too.
//!
//! Registers: `x0` the argument, `x2` the heap's table, `x3` the class, `x7` where `posix_memalign` stores its block, `x9` to
//! `x15` scratch. Of these `x10` is the CPU's slab, `x11` the address of the class's header and `w12` its `current`.
//! A section that is sent back to its start finds all it needs: none of the registers set before it is written inside it.
//!
//! Conditional branches reach 1 MiB only, so that they lead to a branch behind the function's end.
//!
//! *Memory order.* An allocation loads the bound of its sizes with acquire order. A thread that sees the bound so sees what
//! [`weir_linux::platform::fast_path::rseq::enable`] stored before it: where the area is, and which field has the index. A free
//! needs no such load. Its block came from an allocation after that, and the program handed it on with order of its own.

/// Bytes from the table's address to the classes: what one instruction adds, and what is left for the index.
pub(crate) const CLASSES_HIGH: usize = weir_linux::platform::fast_path::CLASSES / 4096;
/// What is added to a size before it is divided: it rounds up, and is the rest of the way to the classes.
pub(crate) const ROUND: usize = {
    use weir_linux::platform::fast_path::{CLASSES, MIN_ALIGN};
    MIN_ALIGN - 1 + CLASSES % 4096 * MIN_ALIGN
};

/// The body of a function `(size, ...) -> block`; `$slow` has the signature `extern "C" fn(usize) -> *mut u8`. After it there may
/// be more parts. Assembly to begin with comes first, which leaves the size alone, then that assembly's operands. What to end
/// with follows: the block is in `x0` there. Last comes what lies behind the function's end.
macro_rules! allocate {
    ($slow:path $(, [$($before:expr),*] $(, $operand:ident = sym $symbol:path)* $(; [$($end:literal),*], $behind:literal)?)?) => {
        core::arch::naked_asm!(
            // As on x86-64: a function begins at a line of the cache.
            ".p2align 6",
            ".cfi_startproc",
            $($($before,)*)?
            "adrp x9, {sizes}",
            "add x9, x9, :lo12:{sizes}",
            "ldar x9, [x9]",
            "cmp x0, x9",
            "b.hs 71f",
            "72:",
            "adrp x2, {heap} + {table}",
            "add x2, x2, :lo12:{heap} + {table}",
            "add w3, w0, {round}",
            "lsr w3, w3, {shift}",
            "add x9, x2, {classes}, lsl 12",
            "ldrb w3, [x9, x3]",
            weir_linux::section!("adrp x9, {area}\nldr x9, [x9, :lo12:{area}]", "x9", "x10", "w10", "x2", "b {slow}"),
            "add x11, x10, x3, lsl 3",
            "ldr w12, [x11]",
            "sub w12, w12, 1",
            "ldr x13, [x10, w12, uxtw 3]",
            "cbz x13, 73f",
            "str w12, [x11]",
            "63:",
            "mov x0, x13",
            $($($($end,)*)?)?
            "ret",
            // Too large; or the heap profile samples, and the size is taken off the thread's countdown.
            "71:",
            "adrp x9, {sampled}",
            "add x9, x9, :lo12:{sampled}",
            "ldar x9, [x9]",
            "cmp x0, x9",
            "b.hs 73f",
            "adrp x9, :gottprel:weir_thread_block",
            "ldr x9, [x9, :gottprel_lo12:weir_thread_block]",
            "mrs x10, tpidr_el0",
            "add x9, x9, x10",
            "ldr x10, [x9, {countdown}]",
            "sub x10, x10, x0",
            "subs x10, x10, 1",
            "str x10, [x9, {countdown}]",
            "b.pl 72b",
            "73:",
            "b {slow}",
            $($($behind,)?)?
            ".cfi_endproc",
            slow = sym $slow,
            sampled = sym weir_linux::platform::fast_path::rseq::SAMPLED_SIZES,
            countdown = const weir_linux::os::thread_block::COUNTDOWN,
            $($($operand = sym $symbol,)*)?
            heap = sym weir_linux::process::heap::HEAP,
            area = sym weir_linux::platform::fast_path::rseq::AREA,
            id = sym weir_linux::platform::fast_path::rseq::ID,
            aborts = const weir_linux::os::thread_block::ABORTS,
            sizes = sym weir_linux::platform::fast_path::rseq::FAST_SIZES,
            shift = const weir_linux::platform::fast_path::MIN_ALIGN.ilog2(),
            table = const weir_linux::platform::fast_path::TABLE,
            round = const $crate::arch::fast_path::ROUND,
            classes = const $crate::arch::fast_path::CLASSES_HIGH,
        )
    };
}

/// The body of a function `(block, ...)`; `$slow` has the signature `unsafe extern "C" fn(*mut u8)`.
macro_rules! free {
    ($slow:path) => {
        core::arch::naked_asm!(
            // As an allocation's.
            ".p2align 6",
            ".cfi_startproc",
            "adrp x2, {heap} + {base}",
            "add x2, x2, :lo12:{heap} + {base}",
            "ldr x9, [x2]",
            "sub x9, x0, x9",
            "lsr x9, x9, {page_shift}",
            "ldr x10, [x2, {top} - {base}]",
            "cmp x9, x10",
            "b.hs 73f",
            "ldr x10, [x2, {map} - {base}]",
            "ldrb w3, [x10, x9]",
            "adrp x2, {heap} + {table}",
            "add x2, x2, :lo12:{heap} + {table}",
            weir_linux::section!("adrp x9, {area}\nldr x9, [x9, :lo12:{area}]", "x9", "x10", "w10", "x2", "b {slow}"),
            "add x11, x10, x3, lsl 3",
            "ldr w12, [x11]",
            "add x13, x10, x12, lsl 3",
            "ldur x14, [x13, -8]",
            "cmp x14, x0",
            "b.eq 73f",
            "ldr w14, [x11, {end}]",
            "cmp w12, w14",
            "b.hs 73f",
            "add x14, x10, x3, lsl 2",
            "ldr w15, [x14, {pushes}]",
            "add w15, w15, 1",
            "str w15, [x14, {pushes}]",
            "str x0, [x13]",
            "add w12, w12, 1",
            "str w12, [x11]",
            "63:",
            "ret",
            "73:",
            "b {slow}",
            ".cfi_endproc",
            slow = sym $slow,
            heap = sym weir_linux::process::heap::HEAP,
            area = sym weir_linux::platform::fast_path::rseq::AREA,
            id = sym weir_linux::platform::fast_path::rseq::ID,
            aborts = const weir_linux::os::thread_block::ABORTS,
            page_shift = const weir_linux::platform::fast_path::PAGE_SHIFT,
            base = const weir_linux::platform::fast_path::BASE,
            top = const weir_linux::platform::fast_path::TOP,
            map = const weir_linux::platform::fast_path::CLASS_MAP,
            table = const weir_linux::platform::fast_path::TABLE,
            end = const weir_linux::platform::fast_path::END,
            pushes = const weir_linux::platform::fast_path::PUSHES,
        )
    };
}

/// Assembly that makes, of a size in `$size` and an alignment in `$align`, a size in `x0` whose class is aligned so: as on
/// x86-64. Whatever else goes to `74` as it came. `$least` is the least alignment; `$before_loss` is done when nothing else
/// remains.
macro_rules! round_up {
    ($align:literal, $size:literal, $least:literal, [$($before_loss:literal),*]) => {
        concat!(
            // From the least to a page.
            "sub x9, ", $align, ", ", $least, "\ncmp x9, 4096 - ", $least, "\nb.hi 74f\n",
            // A power of two.
            "sub x9, ", $align, ", 1\ntst ", $align, ", x9\nb.ne 74f\n",
            "cbz ", $size, ", 74f\n",
            "adrp x10, {sizes}\nldr x10, [x10, :lo12:{sizes}]\ncmp ", $size, ", x10\nb.hs 74f\n",
            $($before_loss, "\n",)*
            "add x10, ", $size, ", x9\nbic x0, x10, x9",
        )
    };
}

/// The body of a function of a size and an alignment, in the order that is named. What `malloc`'s fast path can do goes on to
/// `$next`, a name of this library's of a function of a size; all else to `$other`. In brackets assembly to begin with.
macro_rules! allocate_aligned {
    (align, size, $($rest:tt)*) => {
        $crate::arch::fast_path::allocate_aligned!("x0", "x1", $($rest)*)
    };
    (size, align, $($rest:tt)*) => {
        $crate::arch::fast_path::allocate_aligned!("x1", "x0", $($rest)*)
    };
    ($align:literal, $size:literal, $other:path, $next:literal, [$($before:expr),*]) => {
        core::arch::naked_asm!(
            $($before,)*
            ".cfi_startproc",
            $crate::arch::fast_path::round_up!($align, $size, "1", []),
            concat!("b ", $next),
            "74:",
            "b {other}",
            ".cfi_endproc",
            other = sym $other,
            sizes = sym weir_linux::platform::fast_path::rseq::FAST_SIZES,
        )
    };
}

/// The body of `posix_memalign`.
macro_rules! store_aligned {
    () => {
        $crate::arch::fast_path::allocate!(
            $crate::arch::fast_path::posix_memalign_slow,
            [$crate::arch::fast_path::round_up!("x1", "x2", "8", ["mov x7, x0"])],
            other = sym $crate::c_abi::posix_memalign;
            ["str x0, [x7]", "mov w0, wzr"],
            "74:\nb {other}"
        )
    };
}

/// `posix_memalign`, when its fast path failed: the size is rounded up in `x0`, `out` is in `x7`.
#[unsafe(naked)]
pub extern "C" fn posix_memalign_slow(size: usize) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x1, x7",
        "b {slow}",
        ".cfi_endproc",
        slow = sym crate::c_abi::posix_memalign_slow,
    )
}

pub(crate) use {allocate, allocate_aligned, free, round_up, store_aligned};
