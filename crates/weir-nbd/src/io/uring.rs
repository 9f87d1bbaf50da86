//! Operations by io_uring.

use super::busy_poll::BusyPoll;
use super::driver::Driver;
use super::operation::Operation;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use std::io;
use std::time::{Duration, Instant};

/// Entries of the submission queue. More operations than this may be under way: a full queue is handed in early.
const ENTRIES: u32 = 256;

/// The key of cancellations, which have no one waiting for their results.
const CANCELLATION: u64 = u64::MAX;

/// One worker's ring.
pub struct Uring {
    ring: IoUring,
    busy_poll: BusyPoll,
}

impl Uring {
    /// A ring for one thread. Kernels before 6.1 do not have the cheaper way of completion, and get a plain ring.
    pub fn new() -> io::Result<Self> {
        let single = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .dontfork()
            .build(ENTRIES);
        let ring = single.or_else(|_| IoUring::builder().dontfork().build(ENTRIES))?;
        // Waiting with a timeout is of 5.11.
        if ring.params().is_feature_ext_arg() {
            Ok(Self { ring, busy_poll: BusyPoll::default() })
        } else {
            Err(unsupported())
        }
    }

    /// Does this kernel let this process use all that is needed?
    pub fn probe() -> io::Result<()> {
        let (uring, mut probe) = (Self::new()?, Probe::new());
        uring.ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Accept::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Recv::CODE,
            opcode::SendMsg::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if needed.iter().all(|code| probe.is_supported(*code)) { Ok(()) } else { Err(unsupported()) }
    }

    /// Queues an entry. A full queue is handed in first.
    ///
    /// # Safety
    /// What the entry names stays valid until its result is there.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.hand_in()?;
        }
    }

    /// Hands in what is queued and looks for results before it is worth sleeping; whether some are there.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if !self.busy_poll.is_worth_it() {
            return Ok(false);
        }
        self.hand_in()?;
        let ring = &mut self.ring;
        // What came for a socket is there when the next call asks for it.
        Ok(self.busy_poll.look(timeout, || ring.submission().taskrun() || !ring.completion().is_empty()))
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let waited = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        unless_early(waited)
    }

    /// Hands in what is queued, and takes what has come for sockets.
    fn hand_in(&self) -> io::Result<()> {
        unless_early(self.ring.submit())
    }

    fn entry(operation: Operation) -> squeue::Entry {
        match operation {
            Operation::Accept { listener } => {
                let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
                opcode::Accept::new(Fd(listener), no_address, no_length).flags(libc::SOCK_CLOEXEC).build()
            }
            Operation::Receive { socket, into, length } => opcode::Recv::new(Fd(socket), into, length).build(),
            Operation::Send { socket, message } => {
                opcode::SendMsg::new(Fd(socket), message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
            Operation::ReadEvent { event, into } => opcode::Read::new(Fd(event), into, 8).build(),
            Operation::Read { file, into, length, offset, slot: None } => {
                opcode::Read::new(Fd(file), into, length).offset(offset).build()
            }
            Operation::Read { file, into, length, offset, slot: Some(slot) } => {
                opcode::ReadFixed::new(Fd(file), into, length, slot).offset(offset).build()
            }
            Operation::Write { file, from, length, offset, slot: None } => {
                opcode::Write::new(Fd(file), from, length).offset(offset).build()
            }
            Operation::Write { file, from, length, offset, slot: Some(slot) } => {
                opcode::WriteFixed::new(Fd(file), from, length, slot).offset(offset).build()
            }
            Operation::Sync { file } => {
                opcode::Fsync::new(Fd(file)).flags(io_uring::types::FsyncFlags::DATASYNC).build()
            }
            Operation::Allocate { file, mode, offset, length } => {
                opcode::Fallocate::new(Fd(file), length).offset(offset).mode(mode).build()
            }
        }
    }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old (5.11 is needed)")
}

/// A call that a signal, the timeout, or results that have to be taken first have ended early has not failed.
fn unless_early(called: io::Result<usize>) -> io::Result<()> {
    match called {
        Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}

impl Driver for Uring {
    unsafe fn start(&mut self, key: usize, operation: Operation) -> io::Result<()> {
        // SAFETY: what the entry names stays valid until its result is delivered: the caller's promise.
        unsafe { self.push(&Self::entry(operation).user_data(key as u64)) }
    }

    fn cancel(&mut self, key: usize) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(key as u64).build().user_data(CANCELLATION);
        // SAFETY: a cancellation names no memory.
        unsafe { self.push(&entry) }
    }

    fn make_slots(&mut self, slots: u16) -> io::Result<()> {
        // Of Linux 5.19.
        self.ring.submitter().register_buffers_sparse(slots.into())
    }

    unsafe fn fill_slot(&mut self, slot: u16, memory: *mut u8, length: usize) -> io::Result<()> {
        let run = libc::iovec { iov_base: memory.cast(), iov_len: length };
        // SAFETY: the caller's promise.
        unsafe { self.ring.submitter().register_buffers_update(slot.into(), &[run], None) }
    }

    fn empty_slot(&mut self, slot: u16) -> io::Result<()> {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: nothing is registered, so that nothing has to stay valid.
        unsafe { self.ring.submitter().register_buffers_update(slot.into(), &[none], None) }
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<(usize, i32)>) -> io::Result<()> {
        if self.look(timeout)? {
            self.hand_in()?;
        } else {
            let began = Instant::now();
            self.sleep(timeout)?;
            self.busy_poll.slept(began.elapsed());
        }
        let results = self.ring.completion().filter(|entry| entry.user_data() != CANCELLATION);
        done.extend(results.map(|entry| (entry.user_data() as usize, entry.result())));
        Ok(())
    }
}
