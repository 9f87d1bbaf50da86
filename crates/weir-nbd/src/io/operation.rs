//! What is asked of the kernel: one operation, as numbers and addresses.

use std::io;
use std::os::fd::RawFd;

/// Work for a thread that may block.
pub type Job = Box<dyn FnOnce() + Send>;

/// An operation. The memory and descriptors that it names are kept by its `Pending` until it is done.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Takes the next connection; the result is its descriptor.
    Accept { listener: RawFd },
    /// Receives what there is, at least a byte; 0 is the end.
    Receive { socket: RawFd, into: *mut u8, length: u32 },
    /// Sends as much as there is room for.
    Send { socket: RawFd, message: *const libc::msghdr },
    /// Reads the 8 bytes of an eventfd, when it is not 0.
    ReadEvent { event: RawFd, into: *mut u8 },
    /// Reads from a file, into registered memory if there is a slot.
    Read { file: RawFd, into: *mut u8, length: u32, offset: u64, slot: Option<u16> },
    /// Writes to a file, from registered memory if there is a slot.
    Write { file: RawFd, from: *const u8, length: u32, offset: u64, slot: Option<u16> },
    /// Makes what was written to a file durable.
    Sync { file: RawFd },
    /// `fallocate`.
    Allocate { file: RawFd, mode: i32, offset: u64, length: u64 },
}

// SAFETY: an operation is numbers. Another thread that performs it relies on the addresses, which stay valid until
// its result is delivered (`Pending`).
unsafe impl Send for Operation {}

impl Operation {
    /// Performs a read if all of it is in the page cache, else fails with `EAGAIN`, or `EOPNOTSUPP` where the file
    /// system cannot tell.
    ///
    /// # Safety
    /// As [`Operation::perform`].
    pub unsafe fn perform_cached(self) -> i32 {
        let Self::Read { file, into, length, offset, .. } = self else { return -libc::EOPNOTSUPP };
        let part = libc::iovec { iov_base: into.cast(), iov_len: length as usize };
        // SAFETY: the caller's promise; the vector is read during the call alone.
        let result = unsafe { libc::preadv2(file, &part, 1, offset as i64, libc::RWF_NOWAIT) };
        if result >= 0 { result as i32 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
    }

    /// Performs the operation with a system call, and waits for sockets only if the socket does. The result is the
    /// call's, or a negative error number.
    ///
    /// # Safety
    /// The memory and descriptors that the operation names are valid until this returns, and nothing else uses that
    /// memory.
    pub unsafe fn perform(self) -> i32 {
        loop {
            // SAFETY: the caller's promise covers every address passed on; each call gets its own kind of descriptor
            // and no more length than the operation has.
            let result = unsafe {
                match self {
                    Self::Accept { listener } => {
                        let flags = libc::SOCK_CLOEXEC;
                        libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) as isize
                    }
                    Self::Receive { socket, into, length } => {
                        libc::recv(socket, into.cast(), length as usize, libc::MSG_DONTWAIT)
                    }
                    Self::Send { socket, message } => {
                        libc::sendmsg(socket, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                    }
                    Self::ReadEvent { event, into } => libc::read(event, into.cast(), 8),
                    Self::Read { file, into, length, offset, .. } => {
                        libc::pread(file, into.cast(), length as usize, offset as i64)
                    }
                    Self::Write { file, from, length, offset, .. } => {
                        libc::pwrite(file, from.cast(), length as usize, offset as i64)
                    }
                    Self::Sync { file } => libc::fdatasync(file) as isize,
                    Self::Allocate { file, mode, offset, length } => {
                        libc::fallocate(file, mode, offset as i64, length as i64) as isize
                    }
                }
            };
            if result >= 0 {
                return result as i32;
            }
            let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if error != libc::EINTR {
                return -error;
            }
        }
    }
}
