//! Replies on their way to the client. One task at a time sends, until there are no more.

use super::farewell::farewell;
use super::memory::Charge;
use crate::buffers::Buffer;
use crate::transport::{Connection, Writer};
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result};
use std::rc::Rc;
use tokio::io::AsyncWriteExt;

/// Most parts that are sent by one call: the kernel takes 1,024.
const MAX_PARTS: usize = 64;

/// A run of bytes of a reply.
pub enum Part {
    /// A header.
    Bytes(Vec<u8>),
    /// A request's data: all that has been filled.
    Data(Buffer),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Data(buffer) => buffer.filled(),
        }
    }
}

/// A session's replies.
pub struct Output {
    connection: Rc<Connection>,
    /// `None` while a task sends, and when the client is not there any more.
    writer: Cell<Option<Writer>>,
    waiting: RefCell<VecDeque<(Vec<Part>, Charge)>>,
    /// The client is not there any more: replies are dropped.
    is_broken: Cell<bool>,
}

impl Output {
    /// Makes the output that goes through `writer`.
    pub fn new(connection: Rc<Connection>, writer: Writer) -> Self {
        Self { connection, writer: Cell::new(Some(writer)), waiting: RefCell::default(), is_broken: Cell::new(false) }
    }

    /// Leaves a reply to be sent.
    pub fn queue(&self, reply: Vec<Part>, charge: Charge) {
        if !self.is_broken.get() {
            self.waiting.borrow_mut().push_back((reply, charge));
        }
    }

    /// Replies wait, and no task sends.
    pub fn is_due(&self) -> bool {
        let writer = self.writer.take();
        let is_free = writer.is_some();
        self.writer.set(writer);
        is_free && !self.waiting.borrow().is_empty()
    }

    /// Sends until no reply waits, or leaves that to the task that is sending.
    pub async fn send(&self) {
        let Some(mut writer) = self.writer.take() else { return };
        loop {
            let (parts, _charges) = self.gather();
            if parts.is_empty() {
                return self.writer.set(Some(writer));
            }
            if self.send_all(&mut writer, &parts).await.is_err() {
                self.is_broken.set(true);
                self.waiting.borrow_mut().clear();
                // The session finds its end.
                return self.connection.socket.shut_down(Shutdown::Both);
            }
        }
    }

    async fn send_all(&self, writer: &mut Writer, parts: &[Part]) -> Result<()> {
        let mut turn = self.connection.turn();
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part.bytes())).collect();
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match turn.take(writer.write_vectored(left)).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                sent => IoSlice::advance_slices(&mut left, sent),
            }
        }
        if self.connection.has_tls() {
            // What it has gathered.
            turn.take(async { writer.flush().await.map(|()| 0) }).await?;
        }
        Ok(())
    }

    /// As many replies as one call sends.
    fn gather(&self) -> (Vec<Part>, Vec<Charge>) {
        let (mut parts, mut charges) = (Vec::new(), Vec::new());
        let mut waiting = self.waiting.borrow_mut();
        while let Some((reply, _)) = waiting.front() {
            if !parts.is_empty() && parts.len() + reply.len() > MAX_PARTS {
                break;
            }
            let (reply, charge) = waiting.pop_front().expect("the front is there");
            parts.extend(reply);
            charges.push(charge);
        }
        (parts, charges)
    }

    /// All has been sent: the end.
    pub async fn close(&self) {
        if let Some(writer) = self.writer.take() {
            farewell(writer).await;
        }
    }
}
