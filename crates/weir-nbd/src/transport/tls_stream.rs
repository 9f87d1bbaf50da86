//! TLS on a connection, by rustls, which only works on bytes: they are received and sent here.

use super::socket::Socket;
use crate::buffers::Buffer;
use crate::io::Part;
use futures_util::lock::Mutex;
use rustls::{ServerConfig, ServerConnection};
use std::cell::RefCell;
use std::io::{BufRead, Error, ErrorKind, Result, Write};
use std::sync::Arc;

/// Ciphertext is received in pieces of this many bytes: a record of TLS.
const RECORD: usize = 16 << 10;
/// Ciphertext is sent when so much has gathered, bytes.
const GATHER: usize = 128 << 10;

/// The state of TLS on one connection. It is made with its handshake.
pub struct Tls {
    session: RefCell<Option<ServerConnection>>,
    config: Arc<ServerConfig>,
    /// Ciphertext that has been received and not been read by rustls.
    received: RefCell<Vec<u8>>,
    /// Held while sending, so that records go out in the order in which they were made.
    sending: Mutex<()>,
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { session: RefCell::new(None), config, received: RefCell::default(), sending: Mutex::new(()) }
    }

    /// Agrees on keys. The connection is of no use after an error.
    pub async fn handshake(&self, socket: &Socket, early: &[u8]) -> Result<()> {
        let session = ServerConnection::new(self.config.clone()).map_err(Error::other)?;
        self.session.replace(Some(session));
        self.received.borrow_mut().extend(early);
        loop {
            let read = self.read_records();
            // An alert says why the handshake fails.
            self.flush(socket).await?;
            read?;
            if !self.with(|session| session.is_handshaking()) {
                return Ok(());
            }
            if self.received.borrow().is_empty() && !self.receive_records(socket).await? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Appends plaintext to `buffer`: 0 is the end that the client has announced.
    pub async fn receive(&self, socket: &Socket, mut buffer: Buffer, most: usize) -> (Result<usize>, Buffer) {
        loop {
            match self.take_plaintext(&mut buffer, most) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                done => return (done, buffer),
            }
            let step = async {
                if self.received.borrow().is_empty() && !self.receive_records(socket).await? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.read_records()?;
                // Keys are renewed, for example. If another task is sending, it sends this too.
                match self.sending.try_lock() {
                    Some(_sending) => self.send_records(socket).await,
                    None => Ok(()),
                }
            };
            if let Err(why) = step.await {
                return (Err(why), buffer);
            }
        }
    }

    /// Sends all `parts`, enciphered.
    pub async fn send(&self, socket: &Socket, parts: &[Part]) -> Result<()> {
        let _sending = self.sending.lock().await;
        let mut gathered = 0;
        for part in parts {
            let mut bytes = part.bytes();
            while !bytes.is_empty() {
                // A part of it, when rustls holds as much as it is willing to.
                let taken = self.with(|session| session.writer().write(bytes))?;
                bytes = &bytes[taken..];
                gathered += taken;
                if taken == 0 || gathered >= GATHER {
                    self.send_records(socket).await?;
                    gathered = 0;
                }
            }
        }
        self.send_records(socket).await
    }

    /// Announces the end.
    pub async fn close(&self, socket: &Socket) -> Result<()> {
        self.with(|session| session.send_close_notify());
        self.flush(socket).await
    }

    async fn flush(&self, socket: &Socket) -> Result<()> {
        let _sending = self.sending.lock().await;
        self.send_records(socket).await
    }

    /// Sends until rustls has nothing to send. The caller holds `sending`.
    async fn send_records(&self, socket: &Socket) -> Result<()> {
        loop {
            let mut records = Vec::new();
            self.with(|session| {
                while session.wants_write() {
                    session.write_tls(&mut records)?;
                }
                Ok::<_, Error>(())
            })?;
            if records.is_empty() {
                return Ok(());
            }
            socket.send(vec![Part::Bytes(records)]).await?;
        }
    }

    /// Receives ciphertext; false at the stream's end.
    async fn receive_records(&self, socket: &Socket) -> Result<bool> {
        let buffer = Buffer::take(RECORD)?;
        let (received, buffer) = socket.receive(buffer, RECORD, false).await;
        self.received.borrow_mut().extend_from_slice(buffer.filled());
        Ok(received? > 0)
    }

    /// Has rustls read some of what was received. It stops when it holds a record's plaintext that was not taken.
    fn read_records(&self) -> Result<()> {
        let mut received = self.received.borrow_mut();
        if received.is_empty() {
            return Ok(());
        }
        self.with(|session| {
            let taken = session.read_tls(&mut received.as_slice())?;
            received.drain(..taken);
            session.process_new_packets().map_err(|why| Error::new(ErrorKind::InvalidData, why))
        })?;
        Ok(())
    }

    fn take_plaintext(&self, buffer: &mut Buffer, most: usize) -> Result<usize> {
        self.with(|session| {
            let mut reader = session.reader();
            let plain = reader.fill_buf()?;
            let taken = buffer.append(&plain[..plain.len().min(most)]);
            reader.consume(taken);
            Ok(taken)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut ServerConnection) -> T) -> T {
        work(self.session.borrow_mut().as_mut().expect("the handshake makes it"))
    }
}
