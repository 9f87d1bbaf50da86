//! What other threads leave for a worker, and how it is woken.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// Things that are left for one thread.
pub struct Inbox<T> {
    things: Mutex<Vec<T>>,
    event: OwnedFd,
}

impl<T> Inbox<T> {
    pub fn new() -> io::Result<Self> {
        // Blocking: io_uring would not wait for one that is not. epoll's side reads it only when it is set.
        Ok(Self { things: Mutex::default(), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Leaves a thing, and sets the event if there was none yet.
    pub fn leave(&self, thing: T) {
        let was_empty = {
            let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
            things.push(thing);
            things.len() == 1
        };
        if was_empty {
            // It can fail only if the count would pass 2^64.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes all things.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.things.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is readable when there are things.
    pub fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
