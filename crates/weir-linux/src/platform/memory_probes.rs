//! The probes by which tracers hear of samples of the heap profile: OpenTelemetry's `otel_memory:alloc(pointer, size, weight)`
//! and `otel_memory:free(pointer)`. `weight` is the bytes of all allocations that the sample stands for.
//!
//! Each is an instruction that does nothing, until a tracer puts a breakpoint over it. A note in the file says where it is, and
//! in which registers its arguments are. The notes are SystemTap's, version 3, which bpftrace, perf and OpenTelemetry's profiler
//! read. A tracer that attaches raises the probe's semaphore, which it finds by the same note; while that is 0 the instruction is
//! not reached either.

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

#[cfg(target_arch = "x86_64")]
note!("weir_probe_alloc", "otel_memory_alloc_semaphore", "alloc", "8@%rdi 8@%rsi 8@%rdx");
#[cfg(target_arch = "x86_64")]
note!("weir_probe_free", "otel_memory_free_semaphore", "free", "8@%rdi");
#[cfg(target_arch = "aarch64")]
note!("weir_probe_alloc", "otel_memory_alloc_semaphore", "alloc", "8@x0 8@x1 8@x2");
#[cfg(target_arch = "aarch64")]
note!("weir_probe_free", "otel_memory_free_semaphore", "free", "8@x0");

unsafe extern "C" {
    static otel_memory_alloc_semaphore: AtomicU16;
    static otel_memory_free_semaphore: AtomicU16;
}

/// The probe of allocations: the function's first instruction, which finds its arguments where a call puts them.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn weir_probe_alloc(block: usize, size: usize, weight: u64) {
    naked_asm!(".hidden weir_probe_alloc", "nop", "ret")
}

/// The probe of frees: the function's first instruction.
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

// The registers of x86-64.
#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    /// Findings of a breakpoint at each probe: how often it was reached, and the registers of its arguments.
    static REACHED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    static SEEN: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

    extern "C" fn on_breakpoint(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's description of where this thread was.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let register = |which: i32| registers[which as usize] as usize;
        // The breakpoint is the byte before.
        let is_free = register(libc::REG_RIP) - 1 == weir_probe_free as *const () as usize;
        REACHED[usize::from(is_free)].fetch_add(1, Relaxed);
        let seen = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(register);
        let found: &[usize] = if is_free { &seen[..1] } else { &seen };
        let place = if is_free { &SEEN[3..] } else { &SEEN[..3] };
        place.iter().zip(found).for_each(|(place, &found)| place.store(found, Relaxed));
    }

    /// Puts a breakpoint in the place of a probe's `nop`, as a tracer does.
    fn trace(probe: usize) {
        let page = (probe & !4095) as *mut u8;
        // SAFETY: the code stays executable for all threads, and only the byte of the `nop` changes.
        unsafe {
            assert_eq!(libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC), 0);
            assert_eq!(core::mem::replace(&mut *(probe as *mut u8), 0xcc), 0x90, "a nop");
        }
    }

    #[test]
    fn probes_are_reached_with_a_tracer_and_return_and_not_without_one() {
        // SAFETY: zeros are a structure of no flags; the handler is of the form that SA_SIGINFO says.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_breakpoint as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut()), 0);
        }
        trace(weir_probe_alloc as *const () as usize);
        trace(weir_probe_free as *const () as usize);
        for (allocs, frees) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)] {
            // SAFETY: words of this library's; only this test writes them.
            unsafe {
                otel_memory_alloc_semaphore.store(allocs, Relaxed);
                otel_memory_free_semaphore.store(frees, Relaxed);
            }
            REACHED.iter().chain(&SEEN).for_each(|word| word.store(0, Relaxed));
            alloc(4096, 100, 512 << 10);
            free(8192);
            let (allocs, frees) = (usize::from(allocs), usize::from(frees));
            assert_eq!(REACHED.each_ref().map(|count| count.load(Relaxed)), [allocs, frees]);
            let wanted = [allocs * 4096, allocs * 100, allocs * (512 << 10), frees * 8192];
            assert_eq!(SEEN.each_ref().map(|seen| seen.load(Relaxed)), wanted);
        }
    }
}
