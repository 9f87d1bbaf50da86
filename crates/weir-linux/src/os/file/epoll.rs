//! A descriptor that becomes readable when one of a changing set of descriptors does.

use crate::os::syscall::{Errno, Result, check, syscall1, syscall4, syscall6};
use linux_raw_sys::general as sys;

const EPOLL_CTL_ADD: usize = 1;
const EPOLL_CTL_DEL: usize = 2;
const EPOLLIN: u32 = 1;

/// What a descriptor is awaited for, and its number. On x86-64 there is no gap between the two, on other processors there is.
fn event(events: u32, number: u64) -> sys::epoll_event {
    sys::epoll_event { events, data: number }
}

/// An empty set, close-on-exec.
pub fn create() -> Result<i32> {
    // SAFETY: makes a new descriptor only.
    check(unsafe { syscall1(sys::__NR_epoll_create1, sys::O_CLOEXEC as usize) }).map(|fd| fd as i32)
}

/// Adds a descriptor under a number, for input and its end. Closing it takes it out again.
pub fn add(set: i32, fd: i32, number: u64) -> Result<()> {
    let event = event(EPOLLIN, number);
    let at = (&raw const event) as usize;
    // SAFETY: the kernel reads one event.
    check(unsafe { syscall4(sys::__NR_epoll_ctl, set as usize, EPOLL_CTL_ADD, fd as usize, at) }).map(drop)
}

/// Takes a descriptor out again.
pub fn remove(set: i32, fd: i32) -> Result<()> {
    // SAFETY: to take one out, the kernel reads no event.
    check(unsafe { syscall4(sys::__NR_epoll_ctl, set as usize, EPOLL_CTL_DEL, fd as usize, 0) }).map(drop)
}

/// The number of a descriptor that is ready, without waiting; `None`: none is.
pub fn next_ready(set: i32) -> Result<Option<u64>> {
    let mut event = event(0, 0);
    let at = (&raw mut event) as usize;
    // SAFETY: the kernel writes at most one event; no signal mask is given.
    match check(unsafe { syscall6(sys::__NR_epoll_pwait, set as usize, at, 1, 0, 0, 8) }) {
        Ok(0) | Err(Errno::EINTR) => Ok(None),
        Ok(_) => Ok(Some(event.data)),
        Err(error) => Err(error),
    }
}
