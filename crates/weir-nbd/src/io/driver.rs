//! What does operations.

use super::operation::Operation;
use std::io;
use std::time::Duration;

/// Does operations, each known by a key, in any order.
pub trait Driver {
    /// Starts an operation.
    ///
    /// # Safety
    /// The memory and descriptors that the operation names stay valid, and nothing else uses that memory, until `wait`
    /// has delivered its result or [`super::Reactor`] was told of it by its key.
    unsafe fn start(&mut self, key: usize, operation: Operation) -> io::Result<()>;

    /// Has an operation on a socket end early, if it can. Its result is delivered all the same: an error, or what it
    /// did.
    fn cancel(&mut self, key: usize) -> io::Result<()>;

    /// Makes `slots` empty slots for registered buffers, once.
    fn make_slots(&mut self, _slots: u16) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Registers memory in an empty slot.
    ///
    /// # Safety
    /// The memory is valid, and stays so until the slot has been emptied.
    unsafe fn fill_slot(&mut self, _slot: u16, _memory: *mut u8, _length: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Empties a slot that no operation under way uses.
    fn empty_slot(&mut self, _slot: u16) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Waits until something is done, at most `timeout`, and appends the keys and results of all that is.
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<(usize, i32)>) -> io::Result<()>;
}
