//! What a client sends, message by message.
//!
//! Requests without data are short: one call receives many of them into a buffer of 1 KiB. Of writes it would receive one, and
//! its data by a second call. So while the data of small writes comes the buffer is a wide one, which takes several requests
//! with their data, and their data is copied: for 4 KiB that costs a fraction of a call. It goes back as soon as the client
//! has nothing more to be received: a client at rest has its KiB alone.

use super::pace::Pace;
use super::stream::Stream;
use crate::buffers::Buffer;
use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};
use std::rc::Rc;

/// Bytes that one call receives between the data of writes: 36 requests. Each connection has a buffer of this size, so
/// 10,000 idle ones have 10 MiB.
const SIZE: usize = 1024;
/// Bytes of a wide buffer: 15 writes of 4 KiB. A socket of Linux holds three times as much by default.
const WIDE: usize = 64 << 10;
/// Longest rest of a write's data that is received together with what follows it, bytes; a longer one is received where it
/// belongs, without a copy.
const WORTH_A_COPY: usize = WIDE / 4;
/// Wide buffers of a worker at most (1 MiB): they are in no client's budget.
const MOST_WIDE: usize = 16;

thread_local! {
    /// Wide buffers of this worker that are in use.
    static WIDE_IN_USE: Cell<usize> = const { Cell::new(0) };
}

/// One of the worker's wide buffers is in use until this is dropped.
struct IsWide;

impl IsWide {
    fn claim() -> Option<Self> {
        let in_use = WIDE_IN_USE.get();
        (in_use < MOST_WIDE).then(|| WIDE_IN_USE.set(in_use + 1)).map(|()| Self)
    }
}

impl Drop for IsWide {
    fn drop(&mut self) {
        WIDE_IN_USE.set(WIDE_IN_USE.get() - 1);
    }
}

/// The receiving side of a connection.
pub struct Input {
    stream: Rc<Stream>,
    /// `None` only while it is being filled.
    buffer: Option<Buffer>,
    /// Bytes of it that have been taken.
    taken: usize,
    /// The buffer is a wide one.
    wide: Option<IsWide>,
}

impl Input {
    /// The input of `stream`.
    pub fn new(stream: Rc<Stream>) -> Result<Self> {
        Ok(Self { stream, buffer: Some(Buffer::take(SIZE)?), taken: 0, wide: None })
    }

    /// The next `N` bytes; `None` if the stream ends before the first.
    pub async fn message<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        const { assert!(N <= SIZE, "a message fits into the buffer") };
        let mut pace = None;
        while self.ready().len() < N {
            let is_inside = !self.ready().is_empty();
            if is_inside && pace.is_none() {
                pace = Some(self.stream.pace());
            }
            let received = match self.fill_at_once() {
                Some(received) => received?,
                None => self.fill(pace.as_mut()).await?,
            };
            if received == 0 {
                return if is_inside { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
        }
        let message = self.ready().first_chunk().copied();
        self.taken += N;
        Ok(message)
    }

    /// The next bytes, as many as `data` has room for, into it.
    pub async fn data(&mut self, mut data: Buffer) -> Result<Buffer> {
        let all = data.filled().len() + data.spare().1;
        self.data_up_to(data, all).await
    }

    /// The next bytes into `data`, until it holds `least` of them: it may hold more.
    pub async fn data_up_to(&mut self, mut data: Buffer, least: usize) -> Result<Buffer> {
        self.taken += data.append(self.ready());
        let mut pace = (data.filled().len() < least).then(|| self.stream.pace());
        while data.filled().len() < least {
            let most = data.spare().1;
            if most <= WORTH_A_COPY && self.widen() {
                if self.fill(pace.as_mut()).await? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.taken += data.append(self.ready());
                continue;
            }
            let (received, returned) = self.stream.receive(data, most, pace.as_mut()).await;
            data = returned;
            if received? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(data)
    }

    /// Takes the next `length` bytes for nothing.
    pub async fn skip(&mut self, mut length: u64) -> Result<()> {
        let mut pace = None;
        loop {
            let now = length.min(self.ready().len() as u64);
            self.taken += now as usize;
            length -= now;
            if length == 0 {
                return Ok(());
            }
            let pace = pace.get_or_insert_with(|| self.stream.pace());
            if self.fill(Some(pace)).await? == 0 {
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

    /// Has a wide buffer from now on, if nothing is in the one there is, and the worker has one left.
    fn widen(&mut self) -> bool {
        if self.wide.is_some() {
            return true;
        }
        if !self.ready().is_empty() {
            return false;
        }
        let Some((wide, buffer)) = IsWide::claim().zip(Buffer::take(WIDE).ok()) else { return false };
        (self.buffer, self.taken, self.wide) = (Some(buffer), 0, Some(wide));
        true
    }

    /// Fills an empty wide buffer with what is there already; if nothing is, the buffer is a small one again.
    fn fill_at_once(&mut self) -> Option<Result<usize>> {
        if self.wide.is_none() || !self.ready().is_empty() {
            return None;
        }
        let buffer = self.buffer.as_mut()?;
        // One that was not filled has emptied the socket.
        let may_be_more = buffer.spare().1 == 0;
        buffer.clear();
        self.taken = 0;
        let received = if may_be_more { self.stream.receive_at_once(buffer) } else { None };
        if received.is_none() {
            match Buffer::take(SIZE) {
                Ok(small) => (self.buffer, self.wide) = (Some(small), None),
                Err(why) => return Some(Err(why)),
            }
        }
        received
    }

    async fn fill(&mut self, pace: Option<&mut Pace>) -> Result<usize> {
        let rest = self.take_rest();
        let mut buffer = self.buffer.take().ok_or_else(|| Error::other("the connection failed before"))?;
        buffer.clear();
        buffer.append(&rest);
        self.taken = 0;
        let most = buffer.spare().1;
        let (received, buffer) = self.stream.receive(buffer, most, pace).await;
        self.buffer = Some(buffer);
        received
    }
}
