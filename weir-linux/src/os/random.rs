//! Random numbers for the layout of addresses.

use super::clock::monotonic_ns;
use super::syscall::{check, syscall3};
use linux_raw_sys::general as sys;

/// Two random numbers from the kernel's generator or, where that is refused, from the clock and the stack's random
/// place.
pub fn two_words() -> [usize; 2] {
    let mut numbers = [0usize; 2];
    // GRND_NONBLOCK: early in boot there is none yet.
    // SAFETY: it writes as many bytes of `numbers` as it has.
    let ret = unsafe { syscall3(sys::__NR_getrandom, numbers.as_mut_ptr() as usize, size_of_val(&numbers), 1) };
    if check(ret) == Ok(size_of_val(&numbers)) {
        return numbers;
    }
    let seed = monotonic_ns() as usize ^ (&raw const numbers as usize) << 20;
    // Halves of a product spread what little there is (the factor is 2^64 over the golden ratio).
    [seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)]
}
