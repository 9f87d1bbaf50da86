//! Unix sockets that keep messages apart (`SOCK_SEQPACKET`), under names that are in no file system.

use super::syscall::{Result, check, retry, syscall2, syscall3, syscall4, syscall5, syscall6};
use linux_raw_sys::general as sys;

const AF_UNIX: u16 = 1;
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
/// Bytes of the longest name.
const NAME: usize = 107;

/// `struct sockaddr_un` with an abstract name: its first byte is zero.
#[repr(C)]
struct Address {
    family: u16,
    zero: u8,
    name: [u8; NAME],
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

/// A socket that listens under an abstract name of at most 107 bytes. Nothing that it does blocks.
pub fn listen(name: &[u8]) -> Result<i32> {
    let kind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    // SAFETY: makes a new descriptor only.
    let socket = check(unsafe { syscall3(sys::__NR_socket, AF_UNIX.into(), kind, 0) })?;
    let len = name.len().min(NAME);
    let mut address = Address { family: AF_UNIX, zero: 0, name: [0; NAME] };
    address.name[..len].copy_from_slice(&name[..len]);
    let bytes = core::mem::offset_of!(Address, name) + len;
    // SAFETY: the kernel reads `bytes` bytes of the address, which is longer.
    let bound = check(unsafe { syscall3(sys::__NR_bind, socket, (&raw const address) as usize, bytes) });
    // SAFETY: touches no memory.
    let listens = bound.and_then(|_| check(unsafe { syscall2(sys::__NR_listen, socket, BACKLOG) }));
    if listens.is_err() {
        let _ = super::fd::close(socket as i32);
    }
    listens.map(|_| socket as i32)
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
