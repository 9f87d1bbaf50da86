//! Process B of experiment E8: needs memory, straight from the kernel, so that no allocator is in its time. Of `huge-pages`,
//! the process that has the machine hold memory.

use crate::base::args::read_numbers;
use crate::base::mem::PAGE;
use std::time::Instant;

/// `hog bytes=N times=N [huge=1]`: maps and writes N bytes, in huge pages if asked to, reads them again, unmaps; prints each
/// turn's time.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut bytes, mut times, mut huge) = (0usize, 1, false);
    read_numbers(args, "bytes, times, huge (0 or 1)", |key, number| {
        match key {
            "bytes" => bytes = number as usize,
            "times" => times = number,
            "huge" => huge = number != 0,
            _ => return false,
        }
        true
    })?;
    if bytes < PAGE {
        return Err("hog needs bytes=N".into());
    }
    let mut turns = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        turn(bytes, huge)?;
        turns.push(start.elapsed().as_nanos().to_string());
    }
    println!("{{\"turns_ns\":[{}]}}", turns.join(","));
    Ok(())
}

fn turn(bytes: usize, huge: bool) -> Result<(), String> {
    // SAFETY: a fresh private anonymous mapping, chosen by the kernel.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(format!("cannot map {bytes} bytes: {}", std::io::Error::last_os_error()));
    }
    if huge {
        // SAFETY: advice on the mapping made above; a kernel without huge pages refuses it, and nothing changes.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
    }
    let first = base.cast::<u8>();
    for pass in 0..2u8 {
        for offset in (0..bytes).step_by(PAGE) {
            // SAFETY: offset < bytes, all mapped above.
            let byte = unsafe { first.add(offset) };
            // SAFETY: `byte` lies in the mapping, which is writable and used by this thread alone.
            unsafe { byte.write_volatile(byte.read_volatile().wrapping_add(pass + 1)) };
        }
    }
    // SAFETY: the mapping made above, of this length, with no pointer into it left.
    unsafe { libc::munmap(base, bytes) };
    Ok(())
}
