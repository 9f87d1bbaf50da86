//! The clock.

use crate::os::symbol::weak_symbol;
use crate::os::syscall::syscall2;
use linux_raw_sys::general as sys;

weak_symbol!(
    /// libc's, which reads most clocks without a system call.
    clock_gettime = "clock_gettime" of "GLIBC_2.2.5": unsafe extern "C" fn(i32, *mut sys::__kernel_timespec) -> i32
);

/// Nanoseconds of `CLOCK_MONOTONIC`, by system call: libc's vDSO is out of reach here. 0: the kernel refuses it.
pub fn monotonic_ns() -> u64 {
    read(sys::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick, 1 to 10 ms ago: some nanoseconds' work. For threads of libc's.
pub fn coarse_ns() -> u64 {
    let mut now = sys::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: libc's function by its name; it fills one timespec, which on 64 bits is the kernel's, or returns an error.
    let is_read =
        clock_gettime().is_some_and(|read| unsafe { read(sys::CLOCK_MONOTONIC_COARSE as i32, &raw mut now) } == 0);
    if is_read { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { read(sys::CLOCK_MONOTONIC_COARSE) }
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    read(sys::CLOCK_REALTIME)
}

/// Nanoseconds of CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    read(sys::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: u32) -> u64 {
    let mut now = sys::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills one timespec, or leaves it alone where it refuses the clock.
    unsafe { syscall2(sys::__NR_clock_gettime, clock as usize, &raw mut now as usize) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A number that fits the kernel's `timespec`.
pub(super) fn timespec(ns: u64) -> sys::__kernel_timespec {
    sys::__kernel_timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_on() {
        let before = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(monotonic_ns() - before >= 2_000_000);
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_cpu() {
        // A virtual machine may count time as used in which it did not run: one sleep of many shows the difference.
        weir_testing::wait_until("a sleep of which less than half is the CPU's", || {
            let (cpu, time) = (thread_cpu_ns(), monotonic_ns());
            std::thread::sleep(std::time::Duration::from_millis(20));
            thread_cpu_ns() - cpu < (monotonic_ns() - time) / 2
        });
        let before = thread_cpu_ns();
        while thread_cpu_ns() == before {}
    }
}
