//! The operations, for tasks: each takes what it uses and returns it with its result.

use super::fixed;
use super::message::Message;
use super::operation::Operation;
use super::reactor::Reactor;
use crate::buffers::Buffer;
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// Most bytes of one operation: the kernel takes no more than 2 GiB less a page.
const MOST: usize = 1 << 30;

/// Whether an operation on a file is tried at once, by the worker itself, before another thread or the ring gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// It may wait for a disk.
    Never,
    /// A read that does not wait: where it would, it is left to others.
    IfCached,
    /// The file is in memory.
    Always,
}

impl Inline {
    /// What suits `file`.
    pub fn probe(file: &OwnedFd) -> Self {
        // What `fstatfs` calls the file systems whose files are in memory: tmpfs, and ramfs.
        const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
        if rustix::fs::fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&found.f_type)) {
            return Self::Always;
        }
        let mut byte = 0u8;
        let read = Operation::Read { file: file.as_raw_fd(), into: &mut byte, length: 1, offset: 0, slot: None };
        // SAFETY: the byte and the file outlive the call.
        let result = unsafe { read.perform_cached() };
        if result == -libc::EOPNOTSUPP { Self::Never } else { Self::IfCached }
    }

    /// The operation's result, if it could be done at once.
    ///
    /// # Safety
    /// As [`Operation::perform`].
    unsafe fn attempt(self, operation: Operation) -> Option<i32> {
        match self {
            Self::Never => None,
            // SAFETY: the caller's promise. A read that would wait has read nothing.
            Self::IfCached => Some(unsafe { operation.perform_cached() }).filter(|result| *result >= 0),
            // SAFETY: the caller's promise.
            Self::Always => Some(unsafe { operation.perform() }),
        }
    }
}

/// As the kernel's results are read: a negative one is an error.
fn result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Receives at most `most` bytes into the spare room of `buffer`.
fn receive_into(socket: &OwnedFd, buffer: &mut Buffer, most: usize) -> Operation {
    let (into, room) = buffer.spare();
    Operation::Receive { socket: socket.as_raw_fd(), into, length: room.min(most).min(MOST) as u32 }
}

/// A listening socket that one task accepts from.
pub struct Acceptor {
    listener: OwnedFd,
    /// The operation under way.
    waiting: Cell<Option<usize>>,
    closed: Cell<bool>,
}

impl Acceptor {
    /// Accepts from `listener`.
    pub fn new(listener: OwnedFd) -> Rc<Self> {
        Rc::new(Self { listener, waiting: Cell::new(None), closed: Cell::new(false) })
    }

    /// Accepts no more. The socket is not shut down: the service manager may have it too.
    pub fn close(&self, reactor: &Reactor) {
        self.closed.set(true);
        if let Some(key) = self.waiting.get() {
            reactor.cancel(key);
        }
    }
}

impl Reactor {
    /// The next connection; an error once `acceptor` was closed.
    pub async fn accept(self: &Rc<Self>, acceptor: &Rc<Acceptor>) -> io::Result<OwnedFd> {
        if acceptor.closed.get() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let operation = Operation::Accept { listener: acceptor.listener.as_raw_fd() };
        // SAFETY: the operation names the listener alone, which goes along.
        let pending = unsafe { self.start(operation, acceptor.clone()) };
        acceptor.waiting.set(Some(pending.key()));
        let (result, _) = pending.await;
        acceptor.waiting.set(None);
        // SAFETY: the kernel has just made this descriptor for the caller.
        result.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
    }

    /// Appends what is there already, at most `most` bytes, to `buffer`. 0 is the stream's end.
    pub fn receive_at_once(&self, socket: &OwnedFd, buffer: &mut Buffer, most: usize) -> Option<io::Result<usize>> {
        // SAFETY: the memory is the buffer's spare room; it and the socket outlive the call.
        let at_once = unsafe { receive_into(socket, buffer, most).perform() };
        if at_once == -libc::EAGAIN {
            return None;
        }
        let received = result(at_once);
        // SAFETY: the kernel has written so much to the spare room.
        unsafe { buffer.advance(*received.as_ref().unwrap_or(&0)) };
        Some(received)
    }

    /// Appends what there is, at most `most` bytes, to `buffer`. 0 is the stream's end. `is_expected`: it is probably
    /// there.
    pub async fn receive(
        self: &Rc<Self>,
        socket: &Rc<OwnedFd>,
        mut buffer: Buffer,
        most: usize,
        is_expected: bool,
    ) -> (io::Result<usize>, Buffer) {
        if is_expected && let Some(received) = self.receive_at_once(socket, &mut buffer, most) {
            return (received, buffer);
        }
        let operation = receive_into(socket, &mut buffer, most);
        // SAFETY: the memory is the buffer's spare room, at a fixed address; it and the socket go along.
        let (result, (mut buffer, _)) = unsafe { self.start(operation, (buffer, socket.clone())) }.await;
        if let Ok(received) = result {
            // SAFETY: the kernel has written so much to the spare room.
            unsafe { buffer.advance(received) };
        }
        (result, buffer)
    }

    /// Sends a part of what is left of `message`, and moves on in it.
    pub async fn send(self: &Rc<Self>, socket: &Rc<OwnedFd>, mut message: Message) -> (io::Result<usize>, Message) {
        let operation = Operation::Send { socket: socket.as_raw_fd(), message: message.header() };
        // There is room for most replies at once.
        // SAFETY: the message and the socket outlive the call.
        let at_once = unsafe { operation.perform() };
        if at_once != -libc::EAGAIN {
            let sent = result(at_once);
            message.advance(*sent.as_ref().unwrap_or(&0));
            return (sent, message);
        }
        // SAFETY: the header lies in a box of the message and names memory that the message owns at fixed addresses; it
        // and the socket go along.
        let (result, (mut message, _)) = unsafe { self.start(operation, (message, socket.clone())) }.await;
        if let Ok(sent) = result {
            message.advance(sent);
        }
        (result, message)
    }

    /// Appends at most `length` bytes of a file from `offset` on. 0 is the file's end.
    pub async fn read_at(
        self: &Rc<Self>,
        file: &Arc<OwnedFd>,
        mut buffer: Buffer,
        length: usize,
        offset: u64,
        inline: Inline,
    ) -> (io::Result<usize>, Buffer) {
        let (into, room) = buffer.spare();
        let length = room.min(length).min(MOST) as u32;
        let operation = Operation::Read { file: file.as_raw_fd(), into, length, offset, slot: fixed::slot(&buffer) };
        // SAFETY: the memory is the buffer's spare room; it and the file outlive the call.
        if let Some(at_once) = unsafe { inline.attempt(operation) } {
            let read = result(at_once);
            // SAFETY: the kernel has written so much to the spare room.
            unsafe { buffer.advance(*read.as_ref().unwrap_or(&0)) };
            return (read, buffer);
        }
        // SAFETY: the memory is the buffer's spare room, at a fixed address; it and the file go along.
        let (result, (mut buffer, _)) = unsafe { self.start(operation, (buffer, file.clone())) }.await;
        if let Ok(read) = result {
            // SAFETY: the kernel has written so much to the spare room.
            unsafe { buffer.advance(read) };
        }
        (result, buffer)
    }

    /// Writes a part of `buffer`, at least a byte of it, at `offset` in the file.
    pub async fn write_at(
        self: &Rc<Self>,
        file: &Arc<OwnedFd>,
        buffer: Buffer,
        part: Range<usize>,
        offset: u64,
        inline: Inline,
    ) -> (io::Result<usize>, Buffer) {
        let bytes = &buffer.filled()[part];
        let (from, length) = (bytes.as_ptr(), bytes.len().min(MOST) as u32);
        let operation = Operation::Write { file: file.as_raw_fd(), from, length, offset, slot: fixed::slot(&buffer) };
        // SAFETY: the memory is a filled part of the buffer; it and the file outlive the call.
        if let Some(at_once) = unsafe { inline.attempt(operation) } {
            return (result(at_once), buffer);
        }
        // SAFETY: the memory is a filled part of the buffer, at a fixed address; it and the file go along.
        let (result, (buffer, _)) = unsafe { self.start(operation, (buffer, file.clone())) }.await;
        (result, buffer)
    }

    /// Makes what was written to the file durable.
    pub async fn sync(self: &Rc<Self>, file: &Arc<OwnedFd>) -> io::Result<()> {
        let operation = Operation::Sync { file: file.as_raw_fd() };
        // SAFETY: the operation names the file alone, which goes along.
        let (result, _) = unsafe { self.start(operation, file.clone()) }.await;
        result.map(drop)
    }

    /// `fallocate`.
    pub async fn allocate(self: &Rc<Self>, file: &Arc<OwnedFd>, mode: i32, range: Range<u64>) -> io::Result<()> {
        let (offset, length) = (range.start, range.end - range.start);
        let operation = Operation::Allocate { file: file.as_raw_fd(), mode, offset, length };
        // SAFETY: the operation names the file alone, which goes along.
        let (result, _) = unsafe { self.start(operation, file.clone()) }.await;
        result.map(drop)
    }
}
