//! Clocks: for single calls the processor's cycle counter where there is one, else the kernel's; and of processor time.

use std::time::{Duration, Instant};

/// The counter at this point of the program: nothing before it is still to come, nothing after it has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn now() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions are in every x86-64 processor and touch no memory.
    unsafe {
        _mm_lfence();
        let cycles = _rdtsc();
        _mm_lfence();
        cycles
    }
}

/// Nanoseconds of the monotonic clock.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The length of a tick, by the kernel's clock.
pub fn ns_a_tick() -> f64 {
    let (instant, begin) = (Instant::now(), now());
    std::thread::sleep(Duration::from_millis(50));
    let (ticks, ns) = (now() - begin, instant.elapsed().as_nanos());
    ns as f64 / ticks as f64
}

/// Ticks between two readings with nothing between them: the median of many.
pub fn overhead() -> u64 {
    let mut ticks: Vec<u64> = (0..10_001)
        .map(|_| {
            let begin = now();
            now() - begin
        })
        .collect();
    ticks.sort_unstable();
    ticks[ticks.len() / 2]
}

/// Processor time of the calling thread or of the whole process, ns: other programs on the machine do not count.
pub fn processor_ns(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the time.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
