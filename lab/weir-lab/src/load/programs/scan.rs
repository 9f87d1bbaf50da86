//! E7's consumer: maps a large anonymous segment and scans it in blocks, again and again, until it is killed.

use crate::base::args::read_numbers;
use crate::base::mem::PAGE;
use std::time::{Duration, Instant};

/// `scan bytes=N block=N pause_us=N`: prints a line when the segment has been touched for the first time.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut bytes, mut block, mut pause) = (0usize, 1 << 20, 0);
    read_numbers(args, "bytes, block, pause_us", |key, number| {
        match key {
            "bytes" => bytes = number as usize,
            "block" => block = number as usize,
            "pause_us" => pause = number,
            _ => return false,
        }
        true
    })?;
    if block < PAGE || bytes < block {
        return Err("scan needs bytes=N, not less than a block, and a block of at least a page".into());
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private anonymous mapping, chosen by the kernel.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(format!("cannot map {bytes} bytes: {}", std::io::Error::last_os_error()));
    }
    let start = Instant::now();
    for round in 0u64.. {
        for first in (0..bytes - block + 1).step_by(block) {
            for offset in (first..first + block).step_by(PAGE) {
                // SAFETY: the offset lies in the mapping, which is writable and used by this thread alone.
                unsafe {
                    let byte = base.cast::<u8>().add(offset);
                    byte.write_volatile(byte.read_volatile().wrapping_add(1));
                }
            }
            std::thread::sleep(Duration::from_micros(pause));
        }
        if round == 0 {
            println!("{{\"first_ns\":{}}}", start.elapsed().as_nanos());
        }
    }
    Ok(())
}
