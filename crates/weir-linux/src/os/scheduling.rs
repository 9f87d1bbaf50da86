//! Where threads run: CPUs, scheduling classes, the NUMA node.

use super::process::getpid;
use super::syscall::{Result, check, syscall0, syscall1, syscall3};
use linux_raw_sys::general as sys;

/// Sets the bits of `mask` that the calling thread may run on; how many words of it the kernel filled.
pub fn affinity(mask: &mut [u64]) -> Result<usize> {
    // SAFETY: the kernel fills at most the bytes named.
    let bytes =
        check(unsafe { syscall3(sys::__NR_sched_getaffinity, 0, size_of_val(mask), mask.as_mut_ptr() as usize) })?;
    Ok(bytes / 8)
}

/// Number of CPUs that the calling thread may run on.
pub fn affinity_count() -> Result<usize> {
    let mut mask = [0u64; 128];
    let words = affinity(&mut mask)?;
    Ok(mask[..words].iter().map(|word| word.count_ones() as usize).sum())
}

/// Has a thread of this process run in the main thread's scheduling class, or in the default one if that is a real-time
/// class, on the CPUs that the main thread may use. What is refused stays.
pub fn unbind(thread: u32) {
    let (mut cpus, priority) = ([0u64; 128], 0i32);
    let main = getpid() as usize;
    // SAFETY: the kernel reads one number, and fills and reads at most the bytes named.
    unsafe {
        let class = check(syscall1(sys::__NR_sched_getscheduler, main)).map(|class| class as u32 & !RESET_ON_FORK);
        let class = class.ok().filter(|class| !REAL_TIME.contains(class)).unwrap_or(sys::SCHED_NORMAL);
        syscall3(sys::__NR_sched_setscheduler, thread as usize, class as usize, &raw const priority as usize);
        let bytes = syscall3(sys::__NR_sched_getaffinity, main, size_of_val(&cpus), cpus.as_mut_ptr() as usize);
        if let Ok(bytes) = check(bytes) {
            syscall3(sys::__NR_sched_setaffinity, thread as usize, bytes, cpus.as_ptr() as usize);
        }
    }
}

/// A flag in the answer of `sched_getscheduler`.
const RESET_ON_FORK: u32 = 0x4000_0000;
/// Classes with a claim to the CPU that the background thread has not.
const REAL_TIME: [u32; 3] = [sys::SCHED_FIFO, sys::SCHED_RR, sys::SCHED_DEADLINE];

/// Lets the calling thread run on these CPUs alone, a bit for each.
pub fn set_affinity(cpus: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads as many bytes as are named.
    check(unsafe { syscall3(sys::__NR_sched_setaffinity, 0, size_of_val(cpus), cpus.as_ptr() as usize) }).map(drop)
}

/// The calling thread's NUMA node at the moment; 0 where the kernel does not say.
pub fn node() -> usize {
    let mut node = 0u32;
    // SAFETY: the kernel writes the node's number there, and nothing elsewhere.
    let asked = check(unsafe { syscall3(sys::__NR_getcpu, 0, &raw mut node as usize, 0) });
    if asked.is_ok() { node as usize } else { 0 }
}

/// `sched_yield(2)`.
pub fn sched_yield() {
    // SAFETY: the call has no arguments.
    unsafe { syscall0(sys::__NR_sched_yield) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_node_are_readable() {
        assert!(affinity_count().unwrap() >= 1);
        assert!(node() < 1024);
    }
}
