//! The operations, for tasks: each takes what it uses and returns it with its result.

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

    /// Appends what there is, at most `most` bytes, to `buffer`. 0 is the stream's end.
    pub async fn receive(
        self: &Rc<Self>,
        socket: &Rc<OwnedFd>,
        mut buffer: Buffer,
        most: usize,
    ) -> (io::Result<usize>, Buffer) {
        let (into, room) = buffer.spare();
        let length = room.min(most).min(MOST) as u32;
        let operation = Operation::Receive { socket: socket.as_raw_fd(), into, length };
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
    ) -> (io::Result<usize>, Buffer) {
        let (into, room) = buffer.spare();
        let length = room.min(length).min(MOST) as u32;
        let operation = Operation::Read { file: file.as_raw_fd(), into, length, offset };
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
    ) -> (io::Result<usize>, Buffer) {
        let bytes = &buffer.filled()[part];
        let (from, length) = (bytes.as_ptr(), bytes.len().min(MOST) as u32);
        let operation = Operation::Write { file: file.as_raw_fd(), from, length, offset };
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
