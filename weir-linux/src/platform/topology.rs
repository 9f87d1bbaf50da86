//! What the platform must know of the machine before the first allocation, read by as few calls as do.

use crate::os::syscall::{check, syscall3};
use crate::os::{fd, process, text};
use linux_raw_sys::general as sys;

/// Whether a fresh pageblock becomes one huge page at its first touch.
pub(crate) fn thp_always() -> bool {
    let mut buf = [0u8; 64];
    fd::read_file(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut buf)
        .is_ok_and(|enabled| text::chosen(enabled) == Some(b"always"))
}

/// NUMA nodes; 1 where there is but one or nobody says.
pub(crate) fn node_count() -> usize {
    if fd::stat(c"/sys/devices/system/node/node1").is_err() {
        return 1;
    }
    let mut buf = [0u8; 256];
    let highest = fd::read_file(c"/sys/devices/system/node/online", &mut buf).ok().and_then(text::list_count);
    highest.map_or(1, |(_, highest)| highest as usize + 1)
}

/// A bound above every CPU index of this machine; `usize::MAX` where the kernel does not say.
pub(crate) fn cpus_bound() -> usize {
    let mut mask = [0u64; 128];
    // The kernel fills as many bytes as its CPU masks have, which is the bound, in bits; it refuses a shorter buffer.
    // SAFETY: it writes at most the bytes named of `mask`.
    let ret = unsafe { syscall3(sys::__NR_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr() as usize) };
    check(ret).map_or(usize::MAX, |bytes| bytes * 8)
}

/// Two numbers that nobody outside can guess, from the kernel's generator or, where that is refused, from the clock and the
/// stack's random place.
pub(crate) fn entropy() -> [usize; 2] {
    let mut numbers = [0usize; 2];
    // GRND_NONBLOCK: early in boot there is none yet.
    // SAFETY: it writes as many bytes of `numbers` as it has.
    let ret = unsafe { syscall3(sys::__NR_getrandom, numbers.as_mut_ptr() as usize, size_of_val(&numbers), 1) };
    if check(ret) == Ok(size_of_val(&numbers)) {
        return numbers;
    }
    let seed = process::monotonic_ns() as usize ^ (&raw const numbers as usize) << 20;
    // Halves of a product spread what little there is (the factor is 2^64 over the golden ratio).
    [seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)]
}
