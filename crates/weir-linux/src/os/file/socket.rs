//! Unix sockets that keep messages apart (`SOCK_SEQPACKET`): under names that are in no file system, and in pairs, of which a
//! program polls one ([`Bell`]). And connections to a stream socket of another program's.

use crate::os::fd::{close, fstat};
use crate::os::process::getpid;
use crate::os::syscall::{Errno, Result, check, retry, syscall2, syscall3, syscall4, syscall5, syscall6};
use linux_raw_sys::general as sys;

const AF_UNIX: u16 = 1;
const SOCK_STREAM: usize = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const SOCK_NONBLOCK: usize = 0o4_000;
const SOL_SOCKET: usize = 1;
const SO_PEERCRED: usize = 17;
const MSG_DONTWAIT: usize = 0x40;
const MSG_TRUNC: usize = 0x20;
const MSG_NOSIGNAL: usize = 0x4000;
/// Connections that may wait to be accepted: those of others are to leave places.
pub const BACKLOG: usize = 128;
/// Bytes of the longest path.
const PATH: usize = 108;

/// `struct sockaddr_un`. A name that is in no file system begins with a zero.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; PATH],
}

/// `struct ucred`: who is at the other end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Process id, in the caller's namespace; 0 if it has none there.
    pub process: u32,
    /// Effective user id.
    pub user: u32,
    /// Effective group id.
    pub group: u32,
}

/// A socket that `call` (`bind` or `connect`) gives an address. Nothing that it does blocks.
fn open(kind: usize, call: u32, path: &[u8]) -> Result<i32> {
    let mut address = Address { family: AF_UNIX, path: [0; PATH] };
    address.path.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
    let bytes = core::mem::offset_of!(Address, path) + path.len();
    // SAFETY: makes a new descriptor only.
    let socket = check(unsafe { syscall3(sys::__NR_socket, AF_UNIX.into(), kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) })?;
    // SAFETY: the kernel reads `bytes` bytes of the address, which has as many.
    retry(|| check(unsafe { syscall3(call, socket, (&raw const address) as usize, bytes) }))
        .map(|_| socket as i32)
        .inspect_err(|_| _ = close(socket as i32))
}

/// A socket that listens under an abstract name of at most 107 bytes. Nothing that it does blocks.
pub fn listen(name: &[u8]) -> Result<i32> {
    let len = name.len().min(PATH - 1);
    let mut path = [0; PATH];
    path[1..=len].copy_from_slice(&name[..len]);
    let socket = open(SOCK_SEQPACKET, sys::__NR_bind, &path[..=len])?;
    // SAFETY: touches no memory.
    check(unsafe { syscall2(sys::__NR_listen, socket as usize, BACKLOG) })
        .map(|_| socket)
        .inspect_err(|_| _ = close(socket))
}

/// A connection to a stream socket in the file system, which does not block.
pub fn connect(path: &[u8]) -> Result<i32> {
    open(SOCK_STREAM, sys::__NR_connect, path)
}

/// A connection that waits at a listening socket.
pub fn accept(socket: i32) -> Result<i32> {
    let flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    // SAFETY: makes a new descriptor; no address is asked for.
    retry(|| check(unsafe { syscall4(sys::__NR_accept4, socket as usize, 0, 0, flags) })).map(|fd| fd as i32)
}

/// Who connected: as it was at that moment.
pub fn peer(socket: i32) -> Result<Peer> {
    let (mut peer, mut bytes) = (Peer::default(), size_of::<Peer>() as u32);
    let (to, len) = ((&raw mut peer) as usize, (&raw mut bytes) as usize);
    // SAFETY: the kernel fills a `struct ucred`, no more than `bytes` bytes, and says how many.
    check(unsafe { syscall5(sys::__NR_getsockopt, socket as usize, SOL_SOCKET, SO_PEERCRED, to, len) })?;
    Ok(peer)
}

/// Takes a message, without waiting; its length, of which as much is in `message` as fits. 0: the other end is closed.
/// Descriptors that come with it are dropped by the kernel, as no room is offered for them.
pub fn receive(socket: i32, message: &mut [u8]) -> Result<usize> {
    let (to, len, flags) = (message.as_mut_ptr() as usize, message.len(), MSG_DONTWAIT | MSG_TRUNC);
    // SAFETY: the kernel writes only inside `message`.
    retry(|| check(unsafe { syscall6(sys::__NR_recvfrom, socket as usize, to, len, flags, 0, 0) }))
}

/// Sends a message, without waiting and without a signal. An error: the other end reads too slowly, or is closed.
pub fn send(socket: i32, message: &[u8]) -> Result<()> {
    let (from, len, flags) = (message.as_ptr() as usize, message.len(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // SAFETY: the kernel only reads `message`.
    retry(|| check(unsafe { syscall6(sys::__NR_sendto, socket as usize, from, len, flags, 0, 0) })).map(drop)
}

/// Weir's side of a file descriptor for a program to poll and read. The descriptor is readable while there is a message that the
/// program has not read; only the latest message is kept.
///
/// Weir has one end of the pair, and a second descriptor of the other. From that it takes a message that was not read before
/// it puts the next. An eventfd would not do. A program that closes all its descriptors, as daemons do, closes Weir's too, and
/// the number may be another file's by the next message. A socket has a number of its own, so that Weir sees whether it is still
/// the same.
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
        Ok(Self { fd, identity: fstat(fd)?.id })
    }

    /// Whether the descriptor is still this socket.
    fn is_there(&self) -> bool {
        fstat(self.fd).is_ok_and(|found| found.id == self.identity)
    }
}

impl Bell {
    /// Both sides: Weir's, and the program's descriptor, which the program closes. Close-on-exec, and blocking.
    pub fn open() -> Result<(Self, i32)> {
        let mut pair = [0i32; 2];
        let kind = SOCK_SEQPACKET | SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors.
        check(unsafe { syscall4(sys::__NR_socketpair, AF_UNIX.into(), kind, 0, pair.as_mut_ptr() as usize) })?;
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

    /// The program's descriptor, as [`Bell::open`] gave it.
    pub fn end(&self, fd: i32) -> End {
        End { socket: Socket { fd, identity: self.reader.identity }, process: self.process }
    }

    fn is_there(&self) -> bool {
        self.process == getpid() && self.writer.is_there() && self.reader.is_there()
    }

    /// Puts a message in the place of one that was not read.
    pub fn put(&self, message: &[u8]) {
        if self.is_there() {
            while take(self.reader.fd).is_ok() {}
            // Refused where there is no memory for it, or the program has closed its end and Weir's copy of it.
            let _ = send(self.writer.fd, message);
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

/// The program's side of a [`Bell`], where Weir takes the messages. A program that closes all its descriptors closes this one too.
/// Then nothing is taken from what has the number by now.
#[derive(Debug)]
pub struct End {
    socket: Socket,
    process: u32,
}

impl End {
    /// The descriptor's number.
    pub fn fd(&self) -> i32 {
        self.socket.fd
    }

    /// Takes a message, if there is one. In a forked child none: they are the parent's.
    pub fn take(&self) {
        if self.process == getpid() && self.socket.is_there() {
            let _ = take(self.socket.fd);
        }
    }

    /// Closes the descriptor.
    pub fn close(&self) {
        if self.socket.is_there() {
            let _ = close(self.socket.fd);
        }
    }
}

/// Takes a message from a program's descriptor, without waiting: `EAGAIN` where there is none.
fn take(fd: i32) -> Result<()> {
    // Of the other end's being closed an empty message tells, again and again.
    receive(fd, &mut [0; 64]).and_then(|len| if len == 0 { Err(Errno::EPIPE) } else { Ok(()) })
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
    fn nothing_is_taken_from_a_file_that_has_the_number_now() {
        let (bell, fd) = Bell::open().unwrap();
        let end = bell.end(fd);
        bell.put(b"first");
        let of_the_parent = End { socket: Socket::new(fd).unwrap(), process: getpid() + 1 };
        of_the_parent.take();
        assert!(is_readable(fd), "a forked child left it there");
        end.take();
        assert!(!is_readable(fd));
        let (other, others) = Bell::open().unwrap();
        // SAFETY: moves a descriptor of this test's to a number of this test's.
        let moved = check(unsafe { syscall3(sys::__NR_dup3, others as usize, fd as usize, 0) });
        assert_eq!(moved, Ok(fd as usize));
        other.put(b"for the program");
        end.take();
        assert!(is_readable(fd), "it was left there");
        end.close();
        assert!(is_readable(fd), "what has the number now was not closed");
        let _ = (close(fd), close(others));
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
