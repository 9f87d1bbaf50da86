//! Closing files without waiting for their end, by an io_uring instance.
//!
//! The last reference to a PSI trigger ends in the kernel's `psi_trigger_destroy`, which waits for an RCU grace period:
//! 5 to 15 ms. A thread that ends drops its files before it counts as ended, and `execve` and `exit_group` wait for all
//! threads. So the program would pay for the trigger.
//!
//! An io_uring instance holds a reference to each file that is registered with it. The kernel tears an instance down in
//! a worker of its own, which blocks no thread of the process. The instance is used for nothing else: nothing is
//! mapped, nothing is ever submitted. Where it is refused, files are closed as ever, and their end is as slow as ever.
//! The same is done where a seccomp filter is in force, which might kill for it.

use crate::os::fd;
use crate::os::syscall::{Result, check, syscall2, syscall4};
use linux_raw_sys::general as sys;

/// `IORING_REGISTER_FILES`.
const REGISTER_FILES: usize = 2;
/// Bytes of `struct io_uring_params`.
const PARAMS: usize = 120;
/// Entries of the queue that is never used: the fewest that the kernel takes.
const ENTRIES: usize = 1;

/// An instance that holds `files`, as a descriptor; when that is closed, the files' ends are the kernel worker's.
pub fn hold(files: &[i32]) -> Result<i32> {
    let mut params = [0u64; PARAMS / 8];
    // SAFETY: the kernel reads and fills `PARAMS` bytes, and makes a descriptor (close-on-exec).
    let ring = check(unsafe { syscall2(sys::__NR_io_uring_setup, ENTRIES, params.as_mut_ptr() as usize) })? as i32;
    let (at, count) = (files.as_ptr() as usize, files.len());
    // SAFETY: the kernel reads `count` descriptors.
    let held = check(unsafe { syscall4(sys::__NR_io_uring_register, ring as usize, REGISTER_FILES, at, count) });
    if let Err(why) = held {
        let _ = fd::close(ring);
        return Err(why);
    }
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_a_ring_holds_stays_open_until_the_ring_is_closed() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let ring = match hold(&[std::os::fd::AsRawFd::as_raw_fd(&writer)]) {
            Ok(ring) => ring,
            Err(why) => {
                weir_testing::skip!("no io_uring here: {why}");
                return;
            }
        };
        drop(writer);
        let mut poll = [fd::PollFd { fd: std::os::fd::AsRawFd::as_raw_fd(&reader), events: fd::POLLIN, revents: 0 }];
        assert_eq!(fd::ppoll(&mut poll, Some(0)), Ok(0), "the writing end is still open");
        fd::close(ring).unwrap();
        // Ends as soon as the worker has let the writing end go.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        assert!(hold(&[-7]).is_err());
    }
}
