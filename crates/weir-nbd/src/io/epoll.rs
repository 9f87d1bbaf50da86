//! Operations where io_uring is refused: epoll for sockets, and a pool of threads for files.

use super::driver::Driver;
use super::operation::Operation;
use super::pool::Pool;
use super::reactor::Remote;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll as call};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most events that one wait takes.
const EVENTS: usize = 64;

/// One worker's epoll instance.
pub struct Epoll {
    epoll: OwnedFd,
    /// Operations that wait, by descriptor.
    waiting: HashMap<RawFd, Waiting>,
    /// Done at once.
    ready: Vec<(usize, i32)>,
    remote: Remote,
    pool: Pool,
}

/// At most one operation waits for each direction of a descriptor.
#[derive(Clone, Copy, Default)]
struct Waiting {
    reader: Option<(usize, Operation)>,
    writer: Option<(usize, Operation)>,
}

impl Epoll {
    /// An instance for the worker that `remote` reaches.
    pub fn new(remote: Remote, pool: Pool) -> io::Result<Self> {
        let epoll = call::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, waiting: HashMap::new(), ready: Vec::new(), remote, pool })
    }

    /// Has the next event of what a descriptor's operations wait for delivered, once.
    fn arm(&self, descriptor: RawFd) -> io::Result<()> {
        let Some(waiting) = self.waiting.get(&descriptor) else { return Ok(()) };
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN, waiting.reader.is_some());
        flags.set(EventFlags::OUT, waiting.writer.is_some());
        // SAFETY: the operation's `Pending` keeps the descriptor open until its result is delivered.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let data = EventData::new_u64(descriptor as u64);
        // A number may stand for another file by now than at the last call: then it has to be added again.
        match epoll::modify(&self.epoll, borrowed, data, flags) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.epoll, borrowed, data, flags)?),
            other => Ok(other?),
        }
    }

    fn wait_for(&mut self, descriptor: RawFd, key: usize, operation: Operation) -> io::Result<()> {
        let waiting = self.waiting.entry(descriptor).or_default();
        let is_writer = matches!(operation, Operation::Send { .. });
        let place = if is_writer { &mut waiting.writer } else { &mut waiting.reader };
        assert!(place.is_none(), "two operations wait for one direction of a socket");
        *place = Some((key, operation));
        self.arm(descriptor).inspect_err(|_| {
            // It has failed, and does not wait any more: the other direction goes on as it was.
            let Some(waiting) = self.waiting.get_mut(&descriptor) else { return };
            *(if is_writer { &mut waiting.writer } else { &mut waiting.reader }) = None;
        })
    }

    /// Tries what a descriptor's event allows, and waits again for the rest.
    fn retry(&mut self, descriptor: RawFd, flags: EventFlags) -> io::Result<()> {
        let Some(waiting) = self.waiting.get_mut(&descriptor) else { return Ok(()) };
        let ends = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let reader = if ends || flags.contains(EventFlags::IN) { waiting.reader.take() } else { None };
        let writer = if ends || flags.contains(EventFlags::OUT) { waiting.writer.take() } else { None };
        for (key, operation) in [reader, writer].into_iter().flatten() {
            // SAFETY: the operation's `Pending` keeps what it names valid until its result is delivered, which is
            // below.
            match unsafe { operation.perform() } {
                result if result == -libc::EAGAIN => {
                    let waiting = self.waiting.entry(descriptor).or_default();
                    let is_writer = matches!(operation, Operation::Send { .. });
                    let place = if is_writer { &mut waiting.writer } else { &mut waiting.reader };
                    *place = Some((key, operation));
                }
                result => self.ready.push((key, result)),
            }
        }
        let is_idle = |waiting: &Waiting| waiting.reader.is_none() && waiting.writer.is_none();
        if self.waiting.get(&descriptor).is_some_and(is_idle) {
            self.waiting.remove(&descriptor);
        }
        self.arm(descriptor)
    }
}

impl Driver for Epoll {
    unsafe fn start(&mut self, key: usize, operation: Operation) -> io::Result<()> {
        match operation {
            Operation::ReadEvent { event, .. } => return self.wait_for(event, key, operation),
            Operation::Accept { listener } => {
                // SAFETY: the operation's `Pending` keeps the descriptor open until its result is delivered.
                rustix::io::ioctl_fionbio(unsafe { BorrowedFd::borrow_raw(listener) }, true)?;
            }
            Operation::Receive { .. } | Operation::Send { .. } => {}
            _ => {
                let remote = self.remote.clone();
                self.pool.run(Box::new(move || {
                    // SAFETY: what the operation names stays valid until its result is delivered, which is what the
                    // errand does: the caller's promise.
                    let result = unsafe { operation.perform() };
                    remote.run(move |reactor| reactor.complete(key, result));
                }));
                return Ok(());
            }
        }
        // SAFETY: the caller's promise, until the result is delivered.
        match (unsafe { operation.perform() }, operation) {
            (result, Operation::Accept { listener: at } | Operation::Receive { socket: at, .. })
            | (result, Operation::Send { socket: at, .. })
                if result == -libc::EAGAIN =>
            {
                self.wait_for(at, key, operation)?;
            }
            (result, _) => self.ready.push((key, result)),
        }
        Ok(())
    }

    fn cancel(&mut self, key: usize) -> io::Result<()> {
        let is_it = |waiting: &Waiting| waiting.reader.is_some_and(|(reader, _)| reader == key);
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(_, waiting)| is_it(waiting)) {
            waiting.reader = None;
            self.ready.push((key, -libc::ECANCELED));
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<(usize, i32)>) -> io::Result<()> {
        let timeout = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Err(Errno::INTR) => {}
            waited => drop(waited?),
        }
        for event in events {
            let (flags, data) = (event.flags, event.data);
            self.retry(data.u64() as RawFd, flags)?;
        }
        done.append(&mut self.ready);
        Ok(())
    }
}
