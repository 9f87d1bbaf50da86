//! The probes by which tracers hear of samples of the heap profile: OpenTelemetry's `otel_memory:alloc(pointer, size, weight)`
//! and `otel_memory:free(pointer)`. `weight` is the bytes of all allocations that the sample stands for.
//!
//! Each is an instruction that does nothing, until a tracer puts a breakpoint over it; a note in the file says where it is, and
//! in which registers its arguments are (SystemTap's notes, version 3, which bpftrace, perf and OpenTelemetry's profiler read).
//! A tracer that attaches raises the probe's semaphore, which it finds by the same note; while that is 0 the instruction is not
//! reached either.

use core::arch::{global_asm, naked_asm};
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// One probe's note: its instruction, the base by which a prelinked file is recognised, its semaphore, its names and arguments.
macro_rules! note {
    ($place:literal, $semaphore:literal, $name:literal, $arguments:literal) => {
        global_asm!(
            ".pushsection .note.stapsdt, \"\", @note",
            ".balign 4",
            ".long 8, 703f - 702f, 3",
            ".asciz \"stapsdt\"",
            "702:",
            concat!(".quad ", $place),
            ".quad _.stapsdt.base",
            concat!(".quad ", $semaphore),
            ".asciz \"otel_memory\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "703:",
            ".balign 4",
            ".popsection",
            ".pushsection .probes, \"aw\", @progbits",
            ".balign 2",
            concat!(".hidden ", $semaphore),
            concat!(".globl ", $semaphore),
            concat!(".type ", $semaphore, ", @object"),
            concat!(".size ", $semaphore, ", 2"),
            concat!($semaphore, ":"),
            ".zero 2",
            ".popsection",
        );
    };
}

global_asm!(
    ".pushsection .stapsdt.base, \"aGR\", @progbits, .stapsdt.base, comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base:",
    ".space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

note!("weir_probe_alloc", "otel_memory_alloc_semaphore", "alloc", "8@%rdi 8@%rsi 8@%rdx");
note!("weir_probe_free", "otel_memory_free_semaphore", "free", "8@%rdi");

unsafe extern "C" {
    static otel_memory_alloc_semaphore: AtomicU16;
    static otel_memory_free_semaphore: AtomicU16;
}

/// Its first instruction is the probe, which finds its arguments where a call puts them.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn weir_probe_alloc(block: usize, size: usize, weight: u64) {
    naked_asm!(".hidden weir_probe_alloc", "nop", "ret")
}

/// As the other.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn weir_probe_free(block: usize) {
    naked_asm!(".hidden weir_probe_free", "nop", "ret")
}

/// A sampled block of `size` bytes was allocated, which stands for `weight` bytes.
pub fn alloc(block: usize, size: usize, weight: u64) {
    // SAFETY: a word of this library's, which tracers write whole and this process only reads.
    if unsafe { otel_memory_alloc_semaphore.load(Relaxed) } != 0 {
        weir_probe_alloc(block, size, weight);
    }
}

/// A sampled block is freed.
pub fn free(block: usize) {
    // SAFETY: as in `alloc`.
    if unsafe { otel_memory_free_semaphore.load(Relaxed) } != 0 {
        weir_probe_free(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_return_with_and_without_a_tracer() {
        for count in [0, 1, 0] {
            // SAFETY: words of this library's; only this test writes them.
            unsafe {
                otel_memory_alloc_semaphore.store(count, Relaxed);
                otel_memory_free_semaphore.store(count, Relaxed);
            }
            alloc(4096, 100, 512 << 10);
            free(4096);
        }
    }
}
