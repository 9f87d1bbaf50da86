//! A connected socket: bytes as they are on the wire.

use super::listener::prepare;
use super::pace::{Pace, Turns};
use crate::buffers::Buffer;
use crate::io::{MAX_PARTS, Message, Part, Reactor};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// A connected socket.
pub struct Socket {
    pub(super) reactor: Rc<Reactor>,
    pub(super) descriptor: Rc<OwnedFd>,
    pub(super) peer: String,
    /// When it is the client's turn to read or write.
    pub(super) turns: Rc<Turns>,
}

impl Socket {
    pub fn new(reactor: Rc<Reactor>, socket: OwnedFd, patience: Duration) -> Self {
        let descriptor = Rc::new(socket);
        let (peer, turns) = (prepare(&descriptor), Turns::new(reactor.clone(), descriptor.clone(), patience));
        Self { reactor, descriptor, peer, turns }
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
        let mut pace = Pace::new(&self.turns);
        while !parts.is_empty() {
            let rest = parts.split_off(parts.len().min(MAX_PARTS));
            let mut message = Message::new(std::mem::replace(&mut parts, rest));
            while !message.is_empty() {
                let (sent, returned) = self.reactor.send(&self.descriptor, message).await;
                message = returned;
                match sent {
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
                    sent => pace.count(sent?),
                }
            }
        }
        Ok(())
    }
}
