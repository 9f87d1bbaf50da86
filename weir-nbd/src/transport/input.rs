//! What a client sends, message by message.

use super::stream::Stream;
use crate::buffers::Buffer;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;

/// Bytes that one call receives between the data of writes: 36 requests. Each connection has a buffer of this size, so
/// 10,000 idle ones have 10 MiB.
const SIZE: usize = 1024;

/// The receiving side of a connection.
pub struct Input {
    stream: Rc<Stream>,
    /// `None` only while it is being filled.
    buffer: Option<Buffer>,
    /// Bytes of it that have been taken.
    taken: usize,
}

impl Input {
    /// The input of `stream`.
    pub fn new(stream: Rc<Stream>) -> Result<Self> {
        Ok(Self { stream, buffer: Some(Buffer::take(SIZE)?), taken: 0 })
    }

    /// The next `N` bytes; `None` if the stream ends before the first.
    pub async fn message<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        const { assert!(N <= SIZE, "a message fits into the buffer") };
        while self.ready().len() < N {
            let is_inside = !self.ready().is_empty();
            if self.fill(is_inside).await? == 0 {
                return if is_inside { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
        }
        let message = self.ready().first_chunk().copied();
        self.taken += N;
        Ok(message)
    }

    /// The next bytes, as many as `data` has room for, into it.
    pub async fn data(&mut self, mut data: Buffer) -> Result<Buffer> {
        self.taken += data.append(self.ready());
        while data.spare().1 > 0 {
            let most = data.spare().1;
            let (received, returned) = self.stream.receive(data, most, true).await;
            data = returned;
            if received? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(data)
    }

    /// Takes the next `length` bytes for nothing.
    pub async fn skip(&mut self, mut length: u64) -> Result<()> {
        loop {
            let now = length.min(self.ready().len() as u64);
            self.taken += now as usize;
            length -= now;
            if length == 0 {
                return Ok(());
            }
            if self.fill(true).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// All that was received and has not been taken.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.ready().to_vec();
        self.taken += rest.len();
        rest
    }

    fn ready(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.filled()[self.taken..])
    }

    async fn fill(&mut self, is_inside: bool) -> Result<usize> {
        let rest = self.take_rest();
        let mut buffer = self.buffer.take().ok_or_else(|| Error::other("the connection failed before"))?;
        buffer.clear();
        buffer.append(&rest);
        self.taken = 0;
        let (received, buffer) = self.stream.receive(buffer, SIZE, is_inside).await;
        self.buffer = Some(buffer);
        received
    }
}
