//! A connected socket: bytes as they are on the wire, and a client that may not take too long.

use super::listener::prepare;
use crate::buffers::Buffer;
use crate::io::{Alarm, MAX_PARTS, Message, Part, Reactor};
use rustix::net::{Shutdown, shutdown};
use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// A connected socket.
pub struct Socket {
    pub(super) reactor: Rc<Reactor>,
    pub(super) descriptor: Rc<OwnedFd>,
    /// How long a client may take to read or write when it is its turn.
    pub(super) patience: Duration,
    pub(super) peer: String,
    /// The client took too long.
    pub(super) stalled: Rc<Cell<bool>>,
}

impl Socket {
    pub fn new(reactor: Rc<Reactor>, socket: OwnedFd, patience: Duration) -> Self {
        let descriptor = Rc::new(socket);
        let (peer, stalled) = (prepare(&descriptor), Rc::default());
        Self { reactor, descriptor, patience, peer, stalled }
    }

    /// Ends the connection if the client takes longer than `patience`, until the alarm is dropped. Every operation on a
    /// socket ends when it is shut down, so that none has to be cancelled.
    pub fn watch(&self, patience: Duration) -> Alarm {
        let (socket, stalled) = (self.descriptor.clone(), self.stalled.clone());
        self.reactor.alarm(patience, move || {
            stalled.set(true);
            shut_down(&socket, Shutdown::Both);
        })
    }

    /// Appends what there is, at most `most` bytes, to `buffer`: 0 is the end. `is_expected`: it is probably there.
    pub async fn receive(&self, mut buffer: Buffer, most: usize, is_expected: bool) -> (Result<usize>, Buffer) {
        loop {
            let (received, returned) = self.reactor.receive(&self.descriptor, buffer, most, is_expected).await;
            match received {
                // A signal for the server has come to this thread.
                Err(why) if why.kind() == ErrorKind::Interrupted => buffer = returned,
                received => return (received, returned),
            }
        }
    }

    /// Appends what is there already to `buffer`: 0 is the end.
    pub fn receive_at_once(&self, buffer: &mut Buffer) -> Option<Result<usize>> {
        self.reactor.receive_at_once(&self.descriptor, buffer, usize::MAX)
    }

    /// Sends all `parts`.
    pub async fn send(&self, mut parts: Vec<Part>) -> Result<()> {
        while !parts.is_empty() {
            let rest = parts.split_off(parts.len().min(MAX_PARTS));
            let mut message = Message::new(std::mem::replace(&mut parts, rest));
            while !message.is_empty() {
                let _alarm = self.watch(self.patience);
                let (sent, returned) = self.reactor.send(&self.descriptor, message).await;
                message = returned;
                match sent {
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
                    sent => drop(sent?),
                }
            }
        }
        Ok(())
    }
}

/// Shuts a socket down, and so ends the operations on it. A socket that is not connected any more needs none of it.
pub fn shut_down(socket: &OwnedFd, how: Shutdown) {
    let _ = shutdown(socket, how);
}
