//! A worker's io_uring, for files. The ring raises an event when results are there or can be fetched, and the runtime waits for
//! that. The ring's own descriptor tells a poller nothing of results that the kernel has deferred.

use super::operation::Operation;
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;
use std::cell::{OnceCell, RefCell};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// Entries of the submission queue. More operations than this may be under way: a full queue is handed in early.
const ENTRIES: u32 = 256;

/// Until entries that the kernel has left are handed in again.
const PAUSE: Duration = Duration::from_millis(1);

/// One worker's ring.
pub struct Ring {
    ring: RefCell<IoUring>,
    event: AsyncFd<OwnedFd>,
    flights: RefCell<Slab<Flight>>,
    /// Operations were queued.
    queued: Notify,
}

/// An operation under way. It is kept until its result is there, also if the task that waited for it is gone.
struct Flight {
    operation: Operation,
    done: oneshot::Sender<(i32, Operation)>,
}

thread_local! {
    static RING: OnceCell<Rc<Ring>> = const { OnceCell::new() };
}

/// This thread's ring.
pub(super) fn current() -> Option<Rc<Ring>> {
    RING.with(|ring| ring.get().cloned())
}

/// Opens this thread's ring, if the kernel lets it use all that is needed. The thread has to be in its runtime.
pub(super) fn open() -> Result<Rc<Ring>> {
    let (ring, mut probe) = (build()?, Probe::new());
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
    if !needed.iter().all(|code| probe.is_supported(*code)) {
        return Err(Error::new(ErrorKind::Unsupported, "this kernel's io_uring is too old"));
    }
    // It hands in nothing: each of the system calls may be refused alone.
    hand_in(&ring)?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    ring.submitter().register_eventfd(event.as_raw_fd())?;
    // SAFETY: the descriptor is owned, and one and the same as long as it is registered.
    let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
    let (ring, flights) = (RefCell::new(ring), RefCell::default());
    let ring = Rc::new(Ring { ring, event, flights, queued: Notify::new() });
    RING.with(|cell| cell.set(ring.clone())).map_err(|_| Error::other("this thread has a ring"))?;
    Ok(ring)
}

/// A ring for one thread. Kernels before 6.1 do not have the cheaper way of completion, and get a plain ring.
fn build() -> Result<IoUring> {
    let mut single = IoUring::builder();
    single.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().dontfork();
    single.build(ENTRIES).or_else(|_| IoUring::builder().dontfork().build(ENTRIES))
}

impl Ring {
    /// Performs an operation. The result is the kernel's: a negative one is an error.
    pub(super) async fn perform(&self, mut operation: Operation) -> (i32, Operation) {
        let (entry, (done, result)) = (operation.entry(), oneshot::channel());
        let key = self.flights.borrow_mut().insert(Flight { operation, done });
        // SAFETY: the entry names the operation's file, and memory of its buffer, which lies at a fixed address and which
        // nothing else uses. The flight keeps both until the result is there.
        if let Err(why) = unsafe { self.push(&entry.user_data(key as u64)) } {
            let flight = self.flights.borrow_mut().remove(key);
            return (-why.raw_os_error().unwrap_or(libc::EIO), flight.operation);
        }
        self.queued.notify_one();
        result.await.expect("each operation has a result")
    }

    /// Queues an entry. A full queue is handed in first. The kernel may not take it before results have been fetched.
    ///
    /// # Safety
    /// What the entry names stays valid until its result is there.
    unsafe fn push(&self, entry: &squeue::Entry) -> Result<()> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.borrow_mut().submission().push(entry) }.is_ok() {
                return Ok(());
            }
            hand_in(&self.ring.borrow())?;
            self.deliver();
        }
    }

    /// Hands in what is queued and delivers results, as long as the worker lives. An error is the ring's.
    pub(super) async fn run(self: Rc<Self>) -> Error {
        loop {
            // What is queued together is handed in together: this task has its turn after those that queue.
            let handed_in = hand_in(&self.ring.borrow());
            let is_done = match handed_in {
                Ok(is_done) => is_done && self.ring.borrow_mut().submission().is_empty(),
                Err(why) => return why,
            };
            self.deliver();
            // The kernel was short of something. It has left entries, or results that have raised their event already:
            // nothing tells when the next call would do.
            if !is_done {
                sleep(PAUSE).await;
                continue;
            }
            tokio::select! {
                () = self.queued.notified() => {}
                ready = self.event.readable() => match ready {
                    // The event is not read: each time that it is raised wakes.
                    Ok(mut ready) => ready.clear_ready(),
                    Err(why) => return why,
                },
            }
        }
    }

    fn deliver(&self) {
        let results: Vec<_> =
            self.ring.borrow_mut().completion().map(|entry| (entry.user_data() as usize, entry.result())).collect();
        for (key, result) in results {
            let Flight { operation, done } = self.flights.borrow_mut().remove(key);
            // The task may be gone: what the operation used is dropped now.
            let _ = done.send((result, operation));
        }
    }
}

/// Hands in what is queued, and fetches results that the kernel has deferred. `false`: not all of it, as the kernel was
/// short of something, or a signal or results that have to be taken first have ended the call early.
fn hand_in(ring: &IoUring) -> Result<bool> {
    match ring.submit() {
        Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(false),
        other => other.map(|_| true),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What is still under way may use its memory later: it is leaked.
        std::mem::forget(self.flights.take());
    }
}
