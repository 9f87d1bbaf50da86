//! Random numbers: for the layout of addresses, and secret ones.

use super::clock::monotonic_ns;
use super::syscall::{Errno, Result, check, syscall3};
use linux_raw_sys::general as sys;

/// Two numbers from the kernel's generator, which nobody can guess. An error: it is refused, or has none yet, early in boot.
pub fn two_secret_words() -> Result<[usize; 2]> {
    const GRND_NONBLOCK: usize = 1;
    let mut numbers = [0usize; 2];
    let (place, bytes) = (numbers.as_mut_ptr() as usize, size_of_val(&numbers));
    // SAFETY: it writes as many bytes of `numbers` as it has.
    let written = check(unsafe { syscall3(sys::__NR_getrandom, place, bytes, GRND_NONBLOCK) })?;
    if written == bytes { Ok(numbers) } else { Err(Errno::EAGAIN) }
}

/// Two random numbers: secret ones or, where there are none, from the clock and the stack's random place.
pub fn two_words() -> [usize; 2] {
    two_secret_words().unwrap_or_else(|_| {
        let here = 0u8;
        let seed = monotonic_ns() as usize ^ (&raw const here as usize) << 20;
        // Halves of a product spread what little there is (the factor is 2^64 over the golden ratio).
        [seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)]
    })
}
