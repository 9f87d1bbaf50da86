//! A connection's bytes, with TLS or without.

use super::pace::Pace;
use super::pace::shut_down;
use super::socket::Socket;
use super::tls_stream::Tls;
use crate::base::shares::Client;
use crate::buffers::Buffer;
use crate::io::{Alarm, Part, Reactor};
use rustix::net::Shutdown;
use std::cell::OnceCell;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A connection. One task receives and one sends at a time.
pub struct Stream {
    socket: Socket,
    tls: OnceCell<Tls>,
}

impl Stream {
    /// A connection that has just been accepted. A client may take `patience` for a
    /// stretch of a message ([`super::pace`]).
    pub fn new(reactor: Rc<Reactor>, socket: OwnedFd, patience: Duration) -> Rc<Self> {
        Rc::new(Self { socket: Socket::new(reactor, socket, patience), tls: OnceCell::new() })
    }

    /// The other end's address.
    pub fn peer(&self) -> &str {
        &self.socket.peer
    }

    /// The socket, to be shut down from elsewhere.
    pub fn descriptor(&self) -> &Rc<OwnedFd> {
        &self.socket.descriptor
    }

    /// The worker that serves it.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.socket.reactor
    }

    /// TLS is in use.
    pub fn has_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// The client was disconnected because it took too long.
    pub fn has_stalled(&self) -> bool {
        self.socket.turns.is_over()
    }

    /// Ends the connection after `patience`, unless the alarm is dropped before.
    pub fn watch(&self, patience: Duration) -> Alarm {
        self.socket.turns.watch(patience)
    }

    /// Starts TLS as the server. `early` is what was received behind the option that asked for it.
    pub async fn start_tls(&self, config: Arc<rustls::ServerConfig>, early: &[u8]) -> Result<()> {
        self.tls.get_or_init(|| Tls::new(config)).handshake(&self.socket, early).await
    }

    /// The client's turn to write the rest of a message.
    pub fn pace(&self) -> Pace {
        Pace::new(&self.socket.turns)
    }

    /// Appends what there is, at most `most` bytes, to `buffer`: 0 is the end. `pace`: in the middle of a message.
    pub async fn receive(&self, buffer: Buffer, most: usize, pace: Option<&mut Pace>) -> (Result<usize>, Buffer) {
        let (received, buffer) = match self.tls.get() {
            Some(tls) => tls.receive(&self.socket, buffer, most).await,
            None => self.socket.receive(buffer, most, pace.is_some()).await,
        };
        if let (Some(pace), Ok(received)) = (pace, &received) {
            pace.count(*received);
        }
        (received, buffer)
    }

    /// Appends what is there already to `buffer`: 0 is the end. `None`: nothing is, or TLS may have to wait.
    pub fn receive_at_once(&self, buffer: &mut Buffer) -> Option<Result<usize>> {
        match self.tls.get() {
            Some(_) => None,
            None => self.socket.receive_at_once(buffer),
        }
    }

    /// Sends all `parts`.
    pub async fn send(&self, parts: Vec<Part>) -> Result<()> {
        match self.tls.get() {
            Some(tls) => tls.send(&self.socket, &parts).await,
            None => self.socket.send(parts).await,
        }
    }

    /// Ends the connection in order: what was sent arrives.
    pub async fn close(&self) {
        if let Some(tls) = self.tls.get() {
            // The client may be gone already.
            let _ = tls.close(&self.socket).await;
        }
        shut_down(self.descriptor(), Shutdown::Both);
    }
}

impl Client for Stream {
    fn moved(&self) -> u64 {
        self.socket.turns.moved()
    }
    fn is_its_turn(&self) -> bool {
        self.socket.turns.is_clients()
    }
    fn cut_off(&self) {
        self.socket.turns.end();
    }
}
