//! Requests: received one after another, served side by side, answered in the order in which they are done.

use super::execute::execute;
use super::memory::{Budget, Charge, Memory};
use super::output::{Output, Part};
use crate::backend::{READ_AHEAD, ZEROES_CHUNK};
use crate::base::shares::{FIRST, Member};
use crate::buffers::{Buffer, ConnectionPool};
use crate::cache::{BLOCK, write_guard_bytes};
use crate::export::Export;
use crate::io::{spawn, yield_once};
use crate::protocol::constants::DEFAULT_PAYLOAD;
use crate::protocol::request::{COMPACT, EXTENDED};
use crate::protocol::{Address, Command, ErrorCode, Fault, Header, Style, Terms};
use crate::transport::{Connection, Input, Writer};
use futures_util::FutureExt;
use std::cell::Cell;
use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Bytes that a request counts at least: its task and its reply.
const LEAST: usize = 4096;
/// Bytes that the status of blocks counts: the extents of [`super::execute::MAX_EXTENTS`], twice.
const STATUS: usize = 64 << 10;
/// Bytes of a client that are copied of a volume in memory before they are sent. A CPU's second cache holds as much (512 KiB
/// to 2 MiB today): what lies there is sent without a way to memory and back. A longer read is one at a time.
const AHEAD: usize = 1 << 20;
/// Reads from this length on wait for that, bytes. A client seldom has so many shorter ones under way.
const WORTH_A_WAIT: u32 = 64 << 10;
/// Longest payload of a refused request that is skipped, bytes. The protocol does not let a server call less an attack.
const MAX_SKIPPED: u64 = DEFAULT_PAYLOAD as u64;

/// Between two looks whether a connection still uses its page pool. A quiet connection keeps it for so long at least, and
/// for twice as long at most, unless a reply is on its way. What quiet connections keep until then, memory pressure takes at
/// once.
const QUIET: Duration = Duration::from_secs(5);

/// A client that uses an export.
pub struct Session {
    connection: Rc<Connection>,
    export: Arc<Export>,
    terms: Terms,
    output: Output,
    memory: Memory,
    /// Bytes that were read of a volume in memory and have not been sent.
    ahead: Budget,
    /// Its requests' data.
    pool: Rc<ConnectionPool>,
    /// A task looks whether the pool is still used.
    is_watched: Cell<bool>,
    /// A task runs for the first time, in the midst of receiving.
    is_at_once: Cell<bool>,
    /// Requests that have not been answered, and replies under way.
    in_flight: Cell<usize>,
    /// There are none any more.
    finished: Notify,
}

impl Session {
    /// The session of a client after a successful handshake.
    pub fn new(
        connection: &Rc<Connection>,
        export: Arc<Export>,
        terms: Terms,
        writer: Writer,
        memory: usize,
        member: Rc<Member>,
        pool: Rc<ConnectionPool>,
    ) -> Rc<Self> {
        Rc::new(Self {
            connection: connection.clone(),
            export,
            terms,
            output: Output::new(connection.clone(), writer),
            memory: Memory::new(memory, member),
            ahead: Budget::new(AHEAD),
            pool,
            is_watched: Cell::new(false),
            is_at_once: Cell::new(false),
            in_flight: Cell::new(0),
            finished: Notify::new(),
        })
    }

    /// Serves requests until the client leaves, and returns when the last one has been answered.
    pub async fn run(self: Rc<Self>, mut input: Input) -> Result<()> {
        let result = self.pool.run(self.receive(&mut input)).await;
        drop(input);
        self.send();
        while self.in_flight.get() > 0 {
            self.finished.notified().await;
        }
        self.output.close().await;
        result
    }

    /// Waits for something. What has been answered meanwhile is sent first: requests that came together by one call.
    async fn wait<T>(self: &Rc<Self>, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        if let Some(done) = task.as_mut().now_or_never() {
            return done;
        }
        self.send();
        task.await
    }

    /// Sends replies that wait for that, in a task of its own if the client does not take them at once.
    fn send(self: &Rc<Self>) {
        if self.output.is_due() {
            let session = self.clone();
            self.run_soon(async move { session.output.send().await });
        }
    }

    /// Runs a task at once as far as it comes without waiting, and then as one of its own.
    fn run_soon(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        self.in_flight.set(self.in_flight.get() + 1);
        let session = self.clone();
        let mut task = Box::pin(async move {
            task.await;
            session.in_flight.set(session.in_flight.get() - 1);
            if session.in_flight.get() == 0 {
                session.finished.notify_one();
            }
        });
        self.is_at_once.set(true);
        let done = task.as_mut().now_or_never();
        self.is_at_once.set(false);
        if done.is_none() {
            spawn(task);
        }
    }

    async fn receive(self: &Rc<Self>, input: &mut Input) -> Result<()> {
        while let Some(header) = self.wait(self.header(input)).await? {
            let checked = self.terms.check(&header);
            if checked == Ok(Command::Disconnect) {
                return Ok(());
            }
            if checked.is_err() && header.payload > MAX_SKIPPED.max(self.terms.max_payload.into()) {
                return Err(Error::new(ErrorKind::InvalidData, "a request that is far too long"));
            }
            // Before its data is received: there is no memory for it else.
            let cost = cost(&checked);
            let (charge, checked, data) = match checked {
                Ok(command @ Command::Write { length, .. }) => {
                    let (mut charge, has_rest) = self.wait(self.memory.take_first(cost)).await;
                    match Buffer::take(length as usize) {
                        Ok(mut room) => {
                            if has_rest {
                                self.wait(input.data_up_to(&mut room, FIRST)).await?;
                                self.wait(self.memory.take_rest(&mut charge, cost)).await;
                            }
                            self.wait(input.data(&mut room)).await?;
                            (charge, Ok(command), Some(room))
                        }
                        Err(why) => {
                            self.wait(input.skip(header.payload)).await?;
                            (charge, Err(why.into()), None)
                        }
                    }
                }
                checked => {
                    let charge = self.wait(self.memory.take(cost)).await;
                    self.wait(input.skip(header.payload)).await?;
                    (charge, checked, None)
                }
            };
            self.start(header, checked, data, charge);
        }
        Ok(())
    }

    async fn header(&self, input: &mut Input) -> Result<Option<Header>> {
        let style = self.terms.style;
        let header = match style {
            Style::Extended => input.message::<EXTENDED>().await?.map(|bytes| Header::parse(&bytes, style)),
            _ => input.message::<COMPACT>().await?.map(|bytes| Header::parse(&bytes, style)),
        };
        match header {
            None => Ok(None),
            Some(Some(header)) => Ok(Some(header)),
            Some(None) => Err(Error::new(ErrorKind::InvalidData, "no request")),
        }
    }

    /// Serves one request, in a task of its own if it has to wait.
    fn start(
        self: &Rc<Self>,
        header: Header,
        checked: std::result::Result<Command, Fault>,
        data: Option<Buffer>,
        mut charge: Charge,
    ) {
        let address = Address { style: self.terms.style, cookie: header.cookie, offset: header.offset };
        let session = self.clone();
        self.run_soon(async move {
            charge.ahead = session.turn(&checked).await;
            let reply = session.pool.run(session.serve(header, address, &checked, data)).await;
            if !matches!(checked, Ok(Command::Read { .. } | Command::BlockStatus { .. })) {
                // Its reply is short.
                charge.shrink(LEAST);
            }
            session.watch_pool();
            session.output.queue(reply, charge);
            // What was served at once is sent when nothing more can be.
            if !session.is_at_once.get() {
                // Requests that were done together are answered by one call.
                yield_once().await;
                session.output.send().await;
            }
        });
    }

    /// Waits until a long read of memory may begin: not before those ahead of it have been sent. What sends never waits
    /// here, so that the line moves on, or the client is disconnected.
    async fn turn(&self, checked: &std::result::Result<Command, Fault>) -> Option<OwnedSemaphorePermit> {
        match *checked {
            Ok(Command::Read { length, .. }) if length >= WORTH_A_WAIT && self.export.volume.is_in_memory() => {
                Some(self.ahead.take(length as usize).await)
            }
            _ => None,
        }
    }

    /// Has the pool, if there is one, looked at every now and then until it is given up.
    fn watch_pool(self: &Rc<Self>) {
        if !self.pool.is_there() || self.is_watched.replace(true) {
            return;
        }
        let session = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(QUIET).await;
                let Some(session) = session.upgrade() else { return };
                session.pool.look();
                if !session.pool.is_there() {
                    return session.is_watched.set(false);
                }
            }
        });
    }

    async fn serve(
        &self,
        header: Header,
        address: Address,
        checked: &std::result::Result<Command, Fault>,
        data: Option<Buffer>,
    ) -> Vec<Part> {
        let counters = &self.export.counters;
        let (fault, at) = match checked.clone() {
            Ok(command) => {
                counters.request(&command);
                let is_there = || !self.connection.socket.has_ended();
                match execute(&self.export, address, command, data, is_there).await {
                    Ok(reply) => return reply,
                    Err((fault, at)) => {
                        self.log(command, &fault);
                        (fault, at)
                    }
                }
            }
            Err(fault) => {
                let (peer, name, message) = (&self.connection.peer, &self.export.definition.name, &fault.message);
                tracing::debug!("{peer}: export '{name}': {header:?} is refused: {message}");
                (fault, None)
            }
        };
        counters.errors.fetch_add(1, Relaxed);
        vec![Part::Bytes(address.failure(&fault, at))]
    }

    /// Tells of a failed request, but not of so many that they fill the log.
    fn log(&self, command: Command, fault: &Fault) {
        let (name, message) = (&self.export.definition.name, &fault.message);
        let told = match fault.code {
            // An answer to a question.
            ErrorCode::NotSupported => None,
            _ => self.export.complaints.add(Instant::now()),
        };
        match told {
            None => tracing::debug!("export '{name}': {command:?} failed: {message}"),
            Some(0) => tracing::warn!("export '{name}': {command:?} failed: {message}"),
            Some(more) => tracing::warn!("export '{name}': {command:?} failed: {message} ({more} failed before it)"),
        }
    }
}

/// The memory that a request needs at most, bytes.
fn cost(checked: &std::result::Result<Command, Fault>) -> usize {
    let up_to = |most: usize, length: u64| most.min(usize::try_from(length).unwrap_or(most));
    let bytes = match *checked {
        Ok(Command::Read { length, .. } | Command::Write { length, .. }) => length as usize,
        Ok(Command::WriteZeroes { length, .. }) => up_to(ZEROES_CHUNK, length) + write_guard_bytes(length),
        Ok(Command::Trim { length, .. }) => write_guard_bytes(length),
        // Whole blocks are read: at either end more than was asked for.
        Ok(Command::Cache { length, .. }) => up_to(READ_AHEAD as usize, length) + 2 * BLOCK,
        Ok(Command::BlockStatus { .. }) => STATUS,
        Ok(Command::Flush | Command::Disconnect) | Err(_) => 0,
    };
    LEAST.max(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_costs_what_it_holds() {
        let cache = |length| cost(&Ok(Command::Cache { offset: 0, length }));
        assert_eq!((cache(0), cache(100)), (2 * BLOCK, 100 + 2 * BLOCK));
        assert_eq!((cache(1 << 20), cache(u64::MAX)), ((1 << 20) + 2 * BLOCK, (1 << 20) + 2 * BLOCK));
        let zeroes =
            |length| cost(&Ok(Command::WriteZeroes { offset: 0, length, durable: false, no_hole: false, fast: false }));
        let trim = |length| cost(&Ok(Command::Trim { offset: 0, length, durable: false }));
        assert_eq!((trim(512), trim(1 << 30)), (LEAST, write_guard_bytes(1 << 30)));
        assert_eq!(zeroes(1 << 30), ZEROES_CHUNK + write_guard_bytes(1 << 30));
        assert_eq!(cost(&Ok(Command::Flush)), LEAST);
        assert_eq!(cost(&Ok(Command::Read { offset: 0, length: 1 << 20, unfragmented: false })), 1 << 20);
    }
}
