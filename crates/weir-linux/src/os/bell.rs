//! A file descriptor for a program to poll and read: readable while there is a message that it has not read, of which
//! only the latest is kept.
//!
//! It is a pair of sockets that keep messages apart. Weir has one end, and a second descriptor of the other, from which it
//! takes a message that nobody has read before it puts the next. (An eventfd would not do: a program that closes all its
//! descriptors, as daemons do, closes Weir's too, and the number may be another file's by the next message. A socket has a
//! number of its own, so that Weir sees whether it is still the same.)

use super::fd::{close, fstat_identity};
use super::process::getpid;
use super::syscall::{Errno, Result, check, retry, syscall3, syscall4, syscall6};
use linux_raw_sys::general as sys;

const AF_UNIX: usize = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;

/// Weir's side.
#[derive(Debug)]
pub struct Bell {
    writer: Socket,
    /// A second descriptor of the program's end.
    reader: Socket,
    /// In a forked child the sockets are the parent's.
    process: u32,
}

#[derive(Debug)]
struct Socket {
    fd: i32,
    identity: (u64, u64),
}

impl Socket {
    fn new(fd: i32) -> Result<Self> {
        Ok(Self { fd, identity: fstat_identity(fd)? })
    }

    /// Whether the descriptor is still this socket.
    fn is_there(&self) -> bool {
        fstat_identity(self.fd) == Ok(self.identity)
    }
}

impl Bell {
    /// Both sides: Weir's, and the program's descriptor, which the program closes. Close-on-exec, and blocking.
    pub fn open() -> Result<(Self, i32)> {
        let mut pair = [0i32; 2];
        let kind = SOCK_SEQPACKET | SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors.
        check(unsafe { syscall4(sys::__NR_socketpair, AF_UNIX, kind, 0, pair.as_mut_ptr() as usize) })?;
        let [writer, program] = pair;
        // SAFETY: makes a new descriptor only.
        let copy = check(unsafe { syscall3(sys::__NR_fcntl, program as usize, sys::F_DUPFD_CLOEXEC as usize, 0) });
        let made = copy.and_then(|reader| {
            let reader = reader as i32;
            Socket::new(writer).and_then(|writer| Ok((writer, Socket::new(reader)?))).inspect_err(|_| {
                let _ = close(reader);
            })
        });
        match made {
            Ok((writer, reader)) => Ok((Self { writer, reader, process: getpid() }, program)),
            Err(why) => {
                let _ = close(writer);
                let _ = close(program);
                Err(why)
            }
        }
    }

    fn is_there(&self) -> bool {
        self.process == getpid() && self.writer.is_there() && self.reader.is_there()
    }

    /// Puts a message in the place of one that was not read.
    pub fn put(&self, message: &[u8]) {
        if self.is_there() {
            while take(self.reader.fd).is_ok() {}
            let (at, flags) = (message.as_ptr() as usize, MSG_DONTWAIT | MSG_NOSIGNAL);
            // Refused where there is no memory for it, or the program has closed its end and Weir's copy of it.
            // SAFETY: the kernel reads the message.
            let _ = retry(|| {
                // SAFETY: the kernel reads the message, and no address.
                check(unsafe { syscall6(sys::__NR_sendto, self.writer.fd as usize, at, message.len(), flags, 0, 0) })
            });
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if self.process == getpid() {
            for socket in [&self.writer, &self.reader] {
                if socket.is_there() {
                    let _ = close(socket.fd);
                }
            }
        }
    }
}

/// Takes a message from a program's descriptor, without waiting: `EAGAIN` where there is none.
pub fn take(fd: i32) -> Result<()> {
    let mut message = [0u8; 64];
    let at = message.as_mut_ptr() as usize;
    retry(|| {
        // SAFETY: the kernel writes only inside the buffer, and no address.
        check(unsafe { syscall6(sys::__NR_recvfrom, fd as usize, at, message.len(), MSG_DONTWAIT, 0, 0) })
    })
    // Of the other end's being closed an empty message tells, again and again.
    .and_then(|len| if len == 0 { Err(Errno::EPIPE) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fd::{POLLIN, PollFd, ppoll, read};

    fn is_readable(fd: i32) -> bool {
        ppoll(&mut [PollFd { fd, events: POLLIN, revents: 0 }], Some(0)) == Ok(1)
    }

    #[test]
    fn the_latest_message_is_read_once() {
        let (bell, fd) = Bell::open().unwrap();
        assert!(!is_readable(fd));
        bell.put(b"first");
        bell.put(b"latest");
        assert!(is_readable(fd));
        let mut buffer = [0; 64];
        assert_eq!(read(fd, &mut buffer), Ok(6));
        assert_eq!(&buffer[..6], b"latest");
        assert!(!is_readable(fd));
        assert_eq!(take(fd), Err(Errno::EAGAIN));
        bell.put(b"next");
        assert_eq!(take(fd), Ok(()));
        drop(bell);
        assert_eq!(take(fd), Err(Errno::EPIPE));
        close(fd).unwrap();
    }

    #[test]
    fn nothing_is_written_to_a_file_that_has_the_number_now() {
        let (bell, fd) = Bell::open().unwrap();
        let number = bell.writer.fd;
        let (other, end) = Bell::open().unwrap();
        // SAFETY: moves a descriptor of this test's to a number of this test's.
        let moved = check(unsafe { syscall3(sys::__NR_dup3, other.writer.fd as usize, number as usize, 0) });
        assert_eq!(moved, Ok(number as usize));
        bell.put(b"to whom?");
        assert!(!is_readable(end));
        assert_eq!(take(fd), Err(Errno::EPIPE), "its other end is closed, and there is no message");
        drop(bell);
        other.put(b"still open");
        assert!(is_readable(end), "what has the number now was not closed");
        let _ = (close(fd), close(end), close(number));
    }
}
