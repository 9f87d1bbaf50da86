//! The first instructions. A PVH loader enters in 32-bit mode without paging. Rust is entered in 64-bit mode,
//! with the first 4 GiB mapped to themselves, a stack, and SSE switched on. The host target's code uses SSE.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use super::paging::{FIRST_TABLES, ROOT, Table};

/// Bytes of stack. The deepest path (a severe balance in a build without optimisation) takes a tenth of it.
const STACK: usize = 256 << 10;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK]>);
// SAFETY: the only CPU's stack; nothing in Rust names its contents.
unsafe impl Sync for Stack {}
static BOOT_STACK: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Null, 64-bit code. Data segments are not needed in 64-bit mode.
#[repr(C, align(16))]
struct Segments([u64; 2]);
static SEGMENTS: Segments = Segments([0, 0x00af_9a00_0000_ffff]);

const _: () = assert!(size_of::<Table>() == 4096);

global_asm!(
    // Type 18 of the name "Xen": the physical address of a 32-bit entry point.
    ".pushsection .note.pvh, \"a\", @note",
    ".balign 4",
    ".long 4, 8, 18",
    ".asciz \"Xen\"",
    ".quad weir_guest_start",
    ".popsection",
    ".pushsection .text.start, \"ax\", @progbits",
    ".code32",
    ".global weir_guest_start",
    "weir_guest_start:",
    "cli",
    "cld",
    "mov esp, offset {stack} + {stack_len}",
    // Four tables of 512 pages of 2 MiB, one directory over them, one root.
    "mov eax, offset {tables}",
    "mov dword ptr [{root}], eax",
    "or dword ptr [{root}], 3",
    "mov edi, eax",
    "add eax, 0x1003",
    "mov ecx, 4",
    "2: mov dword ptr [edi], eax",
    "add eax, 0x1000",
    "add edi, 8",
    "dec ecx",
    "jnz 2b",
    "mov edi, offset {tables} + 0x1000",
    "mov eax, 0x83",
    "mov ecx, 4 * 512",
    "3: mov dword ptr [edi], eax",
    "add eax, 0x200000",
    "add edi, 8",
    "dec ecx",
    "jnz 3b",
    "mov eax, offset {root}",
    "mov cr3, eax",
    // Physical address extension, SSE and its exceptions.
    "mov eax, cr4",
    "or eax, 0x620",
    "mov cr4, eax",
    // Long mode.
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, 0x100",
    "wrmsr",
    // Paging and native floating point; no emulation, no lazy switching.
    "mov eax, cr0",
    "and eax, 0xfffffff3",
    "or eax, 0x80000022",
    "mov cr0, eax",
    "sub esp, 8",
    "mov word ptr [esp], {segments_len} - 1",
    "mov dword ptr [esp + 2], offset {segments}",
    "lgdt [esp]",
    "add esp, 8",
    "push 8",
    "mov eax, offset weir_guest_start64",
    "push eax",
    "retf",
    ".code64",
    "weir_guest_start64:",
    "xor eax, eax",
    "mov ds, eax",
    "mov es, eax",
    "mov ss, eax",
    "mov fs, eax",
    "mov gs, eax",
    "mov edi, ebx",
    "mov esp, offset {stack} + {stack_len}",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    ".popsection",
    stack = sym BOOT_STACK,
    stack_len = const STACK,
    root = sym ROOT,
    tables = sym FIRST_TABLES,
    segments = sym SEGMENTS,
    segments_len = const size_of::<Segments>(),
    start = sym super::start::start,
);
