//! Messages of a client, one by one.
//!
//! Requests without data are short: one call receives many of them into a buffer of 1 KiB. Of writes it would receive one, and
//! its data by a second call. So while the data of small writes comes the buffer is a wide one, which takes several requests
//! with their data. Their data is copied: for 4 KiB that costs a fraction of a call. It goes back as soon as the client has
//! nothing more to be received: a client at rest has its KiB alone.

use super::busy_poll::{BusyPoll, Look};
use super::connection::{Connection, Reader, Turn};
use crate::buffers::Buffer;
use crate::io::yield_once;
use bytes::BufMut;
use futures_util::FutureExt;
use std::cell::Cell;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::time::Instant;
use tokio::io::AsyncReadExt;

/// Bytes that one call receives between the data of writes: 36 requests. Each connection has a buffer of this size, so
/// 10,000 idle ones have 10 MiB.
const SIZE: usize = 1024;
/// Bytes of a wide buffer: 15 writes of 4 KiB. A socket of Linux holds three times as much by default.
const WIDE: usize = 64 << 10;
/// Longest rest of a write's data that is received together with what follows it, bytes. A longer one is received where it
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
    connection: Rc<Connection>,
    reader: Reader,
    buffer: Buffer,
    /// Bytes of it that have been taken.
    taken: usize,
    /// The buffer is a wide one.
    wide: Option<IsWide>,
    busy_poll: BusyPoll,
}

impl Input {
    /// Makes the input that comes through `reader`.
    pub fn new(connection: Rc<Connection>, reader: Reader) -> Result<Self> {
        Ok(Self {
            connection,
            reader,
            buffer: Buffer::take(SIZE)?,
            taken: 0,
            wide: None,
            busy_poll: BusyPoll::default(),
        })
    }

    /// The next `N` bytes; `None` if the stream ends before the first.
    pub async fn message<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        const { assert!(N <= SIZE, "a message fits into the buffer") };
        let connection = self.connection.clone();
        let mut turn = None;
        while self.ready().len() < N {
            let is_inside = !self.ready().is_empty();
            if is_inside && turn.is_none() {
                turn = Some(connection.turn());
            }
            if self.fill(turn.as_mut()).await? == 0 {
                return if is_inside { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
        }
        let message = self.ready().first_chunk().copied();
        self.taken += N;
        Ok(message)
    }

    /// The next bytes, as many as `data` has room for, into it.
    pub async fn data(&mut self, data: &mut Buffer) -> Result<()> {
        let all = data.filled().len() + data.spare().len();
        self.data_up_to(data, all).await
    }

    /// The next bytes into `data`, until it holds `least` of them: it may hold more.
    pub async fn data_up_to(&mut self, data: &mut Buffer, least: usize) -> Result<()> {
        self.taken += data.append(self.ready());
        let connection = self.connection.clone();
        let mut turn = (data.filled().len() < least).then(|| connection.turn());
        while let Some(turn) = turn.as_mut().filter(|_| data.filled().len() < least) {
            let received = if data.remaining_mut() <= WORTH_A_COPY && self.widen() {
                let received = self.fill(Some(turn)).await?;
                self.taken += data.append(self.ready());
                received
            } else {
                turn.take(self.reader.read_buf(data)).await?
            };
            if received == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Takes the next `length` bytes for nothing.
    pub async fn skip(&mut self, mut length: u64) -> Result<()> {
        let connection = self.connection.clone();
        let mut turn = None;
        loop {
            let now = length.min(self.ready().len() as u64);
            self.taken += now as usize;
            length -= now;
            if length == 0 {
                return Ok(());
            }
            if self.fill(Some(turn.get_or_insert_with(|| connection.turn()))).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes the reader back, as what is spoken after STARTTLS comes through another. Nothing may have been sent along with
    /// that option.
    pub fn into_reader(self) -> Option<Reader> {
        self.ready().is_empty().then_some(self.reader)
    }

    fn ready(&self) -> &[u8] {
        &self.buffer.filled()[self.taken..]
    }

    /// Has a wide buffer from now on, if nothing is in the one there is, and the worker has one left.
    fn widen(&mut self) -> bool {
        if self.wide.is_some() || !self.ready().is_empty() {
            return self.wide.is_some();
        }
        let Some((wide, buffer)) = IsWide::claim().zip(Buffer::take(WIDE).ok()) else { return false };
        (self.buffer, self.taken, self.wide) = (buffer, 0, Some(wide));
        true
    }

    /// Receives more; 0 is the stream's end. `turn`: in the middle of a message. Between messages a wide buffer that waits is a
    /// small one again.
    async fn fill(&mut self, turn: Option<&mut Turn<'_>>) -> Result<usize> {
        self.buffer.keep_from(self.taken);
        self.taken = 0;
        if let Some(turn) = turn {
            return turn.take(self.reader.read_buf(&mut self.buffer)).await;
        }
        if let Some(received) = self.look().await {
            return received;
        }
        if self.wide.is_some() {
            (self.buffer, self.wide) = (Buffer::take(SIZE)?, None);
        }
        let began = Instant::now();
        let received = self.reader.read_buf(&mut self.buffer).await;
        self.busy_poll.waited(began.elapsed());
        received
    }

    /// Receives what is there, or comes soon if that is expected.
    async fn look(&mut self) -> Option<Result<usize>> {
        let look = self.busy_poll.look();
        // First the client gets what it waits for: `Session::wait` sends it, and goes on here at once. So a client that always
        // has more goes on until tokio has it stop for others.
        yield_once().await;
        loop {
            self.connection.socket.set_eager(look.is_some());
            let received = self.reader.read_buf(&mut self.buffer).now_or_never();
            self.connection.socket.set_eager(false);
            if received.is_some() || !look.as_ref().is_some_and(Look::goes_on) {
                return received;
            }
            std::thread::yield_now();
            yield_once().await;
        }
    }
}
