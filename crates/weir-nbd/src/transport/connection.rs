//! A client's connection, with TLS or without. It knows who the client is, and how fast it has to be when it is its turn to
//! read or write.
//!
//! A client that may take its time for each byte keeps what it holds for ever. So the time is for a stretch of bytes. That is
//! the rest of a message, or as many as a floor of throughput asks for in that time.

use super::socket::Socket;
use crate::base::shares::Client;
use futures_util::FutureExt;
use rustix::net::Shutdown;
use rustls::ServerConfig;
use std::cell::Cell;
use std::future::Future;
use std::io::{ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

/// Bytes that a client has to move a second, inside a message.
const FLOOR: u128 = 1024;

/// A deadline that is found to be over so late says nothing of the client: this process has stood still, as when a virtual machine
/// is paused.
const LATE: Duration = Duration::from_secs(1);

/// Bytes both ways, with TLS or without.
pub trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Wire for T {}

pub type Reader = ReadHalf<Box<dyn Wire>>;
pub type Writer = WriteHalf<Box<dyn Wire>>;

/// A client's connection.
pub struct Connection {
    /// The other end's address.
    pub peer: String,
    pub socket: Socket,
    /// How long the client may take for a stretch.
    patience: Duration,
    turns: Cell<usize>,
    moved: Cell<u64>,
    has_stalled: Cell<bool>,
    has_tls: Cell<bool>,
    has_terms: Cell<bool>,
}

impl Connection {
    /// A connection that has just been accepted, and its two directions. The client may take `patience` for a stretch.
    pub fn open(socket: OwnedFd, patience: Duration) -> Result<(Rc<Self>, Reader, Writer)> {
        let socket = Socket::new(socket)?;
        let (reader, writer) = split::<Box<dyn Wire>>(Box::new(socket.clone()));
        let (peer, turns, moved) = (socket.prepare(), Cell::new(0), Cell::new(0));
        let (has_stalled, has_tls, has_terms) = (Cell::new(false), Cell::new(false), Cell::new(false));
        Ok((Rc::new(Self { peer, socket, patience, turns, moved, has_stalled, has_tls, has_terms }), reader, writer))
    }

    /// Starts TLS as the server, in place of what was spoken before.
    pub async fn start_tls(
        &self,
        config: Arc<ServerConfig>,
        reader: Reader,
        writer: Writer,
    ) -> Result<(Reader, Writer)> {
        let secure = TlsAcceptor::from(config).accept(reader.unsplit(writer)).await?;
        self.has_tls.set(true);
        Ok(split::<Box<dyn Wire>>(Box::new(secure)))
    }

    /// TLS is in use.
    pub fn has_tls(&self) -> bool {
        self.has_tls.get()
    }

    /// The client was disconnected because it took too long.
    pub fn has_stalled(&self) -> bool {
        self.has_stalled.get()
    }

    /// The handshake is over: the client may send requests.
    pub fn set_terms(&self) {
        self.has_terms.set(true);
    }

    /// Ends the connection as the server stops. What a client with terms has sent is served, and it gets the replies. One in its
    /// handshake has no requests. It is disconnected, as it may never read the next reply.
    pub fn stop(&self) {
        self.socket.shut_down(if self.has_terms.get() { Shutdown::Read } else { Shutdown::Both });
    }

    /// The client's turn to read or write a message.
    pub fn turn(&self) -> Turn<'_> {
        self.turns.set(self.turns.get() + 1);
        Turn { connection: self, until: None, moved: 0 }
    }

    /// Bytes of a stretch.
    fn stretch(&self) -> u64 {
        (self.patience.as_millis() * FLOOR / 1000).max(1) as u64
    }
}

impl Client for Connection {
    fn moved(&self) -> u64 {
        self.moved.get()
    }
    fn is_its_turn(&self) -> bool {
        self.turns.get() > 0
    }
    fn cut_off(&self) {
        self.has_stalled.set(true);
        self.socket.shut_down(Shutdown::Both);
    }
}

/// A client's turn: a message, of which it has to read or write the rest in stretches.
pub struct Turn<'a> {
    connection: &'a Connection,
    /// When the stretch has to be over, from the first time on that the client is waited for.
    until: Option<Instant>,
    /// Bytes of this stretch.
    moved: u64,
}

impl Turn<'_> {
    /// Waits for the client to read or write some bytes. One that takes too long is disconnected.
    pub async fn take(&mut self, bytes: impl Future<Output = Result<usize>>) -> Result<usize> {
        let mut bytes = pin!(bytes);
        // Most often there is no wait, and no need for a clock.
        let moved = match bytes.as_mut().now_or_never() {
            Some(moved) => moved?,
            None => {
                let patience = self.connection.patience;
                loop {
                    let until = *self.until.get_or_insert_with(|| Instant::now() + patience);
                    match timeout_at(until, &mut bytes).await {
                        Ok(moved) => break moved?,
                        Err(_) if until.elapsed() > LATE => self.until = None,
                        Err(_) => {
                            self.connection.cut_off();
                            return Err(ErrorKind::TimedOut.into());
                        }
                    }
                }
            }
        };
        self.connection.moved.set(self.connection.moved.get() + moved as u64);
        self.moved += moved as u64;
        if self.moved >= self.connection.stretch() {
            (self.until, self.moved) = (None, 0);
        }
        Ok(moved)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.connection.turns.set(self.connection.turns.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::testing::run;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread::{sleep, spawn};
    use tokio::io::AsyncReadExt;

    #[test]
    fn time_in_which_the_server_stood_still_is_not_the_clients() {
        run(async {
            let (own, mut client) = UnixStream::pair().expect("a pair");
            own.set_nonblocking(true).expect("a socket");
            let patience = Duration::from_secs(1);
            let (connection, mut reader, _writer) = Connection::open(own.into(), patience).expect("a connection");
            let (mut turn, mut bytes) = (connection.turn(), [0; 8]);
            let stand_still = async {
                sleep(patience + 2 * LATE);
                spawn(move || {
                    sleep(patience / 20);
                    client.write_all(b"rest").map(|()| client)
                })
            };
            let (read, writing) = futures_util::future::join(turn.take(reader.read(&mut bytes)), stand_still).await;
            let _client = writing.join().expect("no panic").expect("the server reads");
            assert_eq!(read.expect("it is served"), 4);
            assert!(!connection.has_stalled());
            // One that takes its time itself is disconnected.
            assert!(turn.take(reader.read(&mut bytes)).await.is_err() && connection.has_stalled());
        });
    }
}
