//! The fast paths of `malloc`, `new`, `free` and `delete`, written by hand.
//!
//! They are what [`weir::heap::alloc`] and [`weir::heap::free`] do when nothing is missing, in the fewest instructions. A
//! compiler neither shares one register between the table of CPUs and the table of classes, nor leaves from the middle of a
//! section. Nor does it fold loads of atomics into what uses them. Whatever does not go smoothly (large, empty, full, foreign,
//! freed twice) jumps to a slow path in Rust with the arguments untouched. The slow path does all of it again from the start.
//! `tests/fast_path/instructions.rs` holds them to their length.
//!
//! While the heap profile samples, no size is below the first bound. An allocation then jumps behind the function's end, where
//! it counts its size off the thread's countdown, and back unless that fell below 0. A slow path finds small sizes counted.
//!
//! Registers: `rdi` the argument, `rsi` a free's class, `rdx` the heap's table, `rcx` an allocation's class and a
//! free's slot, `r10` the class's bucket, `r8` and `rax` scratch. A section that is sent back to its start finds all
//! it needs: none of the registers set before it is written inside it.
//!
//! The bucket's address has a register of its own. With an index in its place, the load of `current` waits for the store before
//! it: an Intel Xeon takes 1.4 times as long for `malloc` and `free` in turn (`docs/design/fast-path.md`).

/// The body of a function `(size, ...) -> block`; `$slow` has the signature `extern "C" fn(usize) -> *mut u8`. After it there may
/// be three more parts. Assembly to begin with comes first, which leaves the size alone, then that assembly's operands. What to
/// end with comes last: the block is in `rax` there.
macro_rules! allocate {
    ($slow:path $(, [$($before:expr),*] $(, $operand:ident = sym $symbol:path)* $(; $($end:literal),*)?)?) => {
        core::arch::naked_asm!(
            // The function's section, and so its beginning, is aligned as its strictest part: a pair of cache lines, which hold
            // most of it. Where it began at other lines, runs of one size took up to 1.17 times as long, by what lay before it.
            ".p2align 7",
            ".cfi_startproc",
            $($($before,)*)?
            "cmp rdi, [rip + {sizes}]",
            "jae 71f",
            "72:",
            "lea rdx, [rip + {heap} + {table}]",
            "lea ecx, [rdi + {round}]",
            "shr ecx, {shift}",
            "movzx ecx, byte ptr [rdx + rcx + {classes}]",
            weir_linux::section!("mov r8, [rip + {area}]", "r8", "rsi", "esi", "rdx", "jmp {slow}"),
            "lea r10, [rsi + rcx*8]",
            "mov r8d, dword ptr [r10]",
            "mov rax, [rsi + r8*8 - 8]",
            "test rax, rax",
            "jz {slow}",
            "dec r8d",
            "mov dword ptr [r10], r8d",
            "63:",
            $($($($end,)*)?)?
            "ret",
            // Too large; or the heap profile samples, and the size is taken off the thread's countdown.
            "71:",
            "cmp rdi, [rip + {sampled}]",
            "jae {slow}",
            "mov rax, [rip + weir_thread_block@GOTTPOFF]",
            "lea rcx, [rdi + 1]",
            "sub qword ptr fs:[rax + {countdown}], rcx",
            "jns 72b",
            "jmp {slow}",
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
            round = const weir_linux::platform::fast_path::MIN_ALIGN - 1,
            shift = const weir_linux::platform::fast_path::MIN_ALIGN.ilog2(),
            table = const weir_linux::platform::fast_path::TABLE,
            classes = const weir_linux::platform::fast_path::CLASSES,
        )
    };
}

/// The body of a function `(block, ...)`; `$slow` has the signature `unsafe extern "C" fn(*mut u8)`.
macro_rules! free {
    ($slow:path) => {
        core::arch::naked_asm!(
            // As an allocation's.
            ".p2align 7",
            ".cfi_startproc",
            "mov rax, rdi",
            "sub rax, [rip + {heap} + {base}]",
            "shr rax, {page_shift}",
            "cmp rax, [rip + {heap} + {top}]",
            "jae {slow}",
            "mov rsi, [rip + {heap} + {map}]",
            "movzx esi, byte ptr [rsi + rax]",
            "lea rdx, [rip + {heap} + {table}]",
            weir_linux::section!("mov r8, [rip + {area}]", "r8", "rax", "eax", "rdx", "jmp {slow}"),
            "lea r10, [rax + rsi*8]",
            "mov ecx, dword ptr [r10]",
            "cmp [rax + rcx*8 - 8], rdi",
            "je {slow}",
            "cmp ecx, dword ptr [r10 + {end}]",
            "jae {slow}",
            "inc dword ptr [rax + rsi*4 + {pushes}]",
            "mov [rax + rcx*8], rdi",
            "inc ecx",
            "mov dword ptr [r10], ecx",
            "63:",
            "ret",
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

/// Assembly that makes, of a size in `$size` and an alignment in `$align`, a size in `rdi` whose class is aligned so. The
/// alignment is at most a page and a power of two. The result is the size, rounded up to a multiple of the alignment. For a
/// class's objects are all multiples of a power of two. Those of a class whose power is the smaller one have just that size.
/// Whatever else goes to `{other}` as it came: other alignments, no size, sizes without a fast path (all of them, while
/// allocations are counted). `$least` is the least alignment; `rax` is scratch, `$align` is lost.
macro_rules! round_up {
    ($align:literal, $size:literal, $least:literal, [$($before_loss:literal),*]) => {
        concat!(
            // From the least to a page.
            "lea rax, [", $align, " - ", $least, "]\ncmp rax, 4096 - ", $least, "\nja {other}\n",
            // A power of two.
            "lea rax, [", $align, " - 1]\ntest ", $align, ", rax\njnz {other}\n",
            "test ", $size, ", ", $size, "\njz {other}\n",
            "cmp ", $size, ", [rip + {sizes}]\njae {other}\n",
            $($before_loss, "\n",)*
            "add rax, ", $size, "\nneg ", $align, "\nand rax, ", $align, "\nmov rdi, rax",
        )
    };
}

/// The body of a function of a size and an alignment, in the order that is named. What `malloc`'s fast path can do goes on to
/// `$next`, a name of this library's of a function of a size; all else to `$other`. In brackets assembly to begin with.
macro_rules! allocate_aligned {
    (align, size, $($rest:tt)*) => {
        $crate::arch::fast_path::allocate_aligned!("rdi", "rsi", $($rest)*)
    };
    (size, align, $($rest:tt)*) => {
        $crate::arch::fast_path::allocate_aligned!("rsi", "rdi", $($rest)*)
    };
    ($align:literal, $size:literal, $other:path, $next:literal, [$($before:expr),*]) => {
        core::arch::naked_asm!(
            $($before,)*
            ".cfi_startproc",
            $crate::arch::fast_path::round_up!($align, $size, "1", []),
            concat!("jmp ", $next),
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
            // The fast path leaves `r9` alone.
            [$crate::arch::fast_path::round_up!("rsi", "rdx", "8", ["mov r9, rdi"])],
            other = sym $crate::c_abi::posix_memalign;
            "mov [r9], rax", "xor eax, eax"
        )
    };
}

/// `posix_memalign`, when its fast path failed: the size is rounded up in `rdi`, `out` is in `r9`.
#[unsafe(naked)]
pub extern "C" fn posix_memalign_slow(size: usize) -> *mut u8 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rsi, r9",
        "jmp {slow}",
        ".cfi_endproc",
        slow = sym crate::c_abi::posix_memalign_slow,
    )
}

pub(crate) use {allocate, allocate_aligned, free, round_up, store_aligned};
