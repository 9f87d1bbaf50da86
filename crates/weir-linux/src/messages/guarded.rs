//! The lines about guarded blocks: what was done, the block, and a line for each frame of its stacks.

use super::{Bytes, say};
use crate::os::syscall::Errno;
use core::fmt;
use weir_core::base::invalid_free::InvalidFree;

/// A wrong access of a guarded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Before its begin, or past its end.
    Outside,
    /// The block was freed before.
    AfterFree,
}

/// The program freed what it may not.
pub fn wrong_free(what: InvalidFree, at: usize) {
    say(format_args!("weir: {what}: {at:#x}"));
}

/// The program read or wrote at `at`, which is so far from the block. `is_write`: which of both, where the processor says.
pub fn fault(access: Access, at: usize, is_write: Option<bool>, distance: isize) {
    let (verb, place) = (verb(is_write), Distance(distance));
    match access {
        Access::Outside if distance < 0 => say(format_args!("weir: buffer underflow: {verb} at {at:#x}, {place}")),
        Access::Outside => say(format_args!("weir: buffer overflow: {verb} at {at:#x}, {place}")),
        Access::AfterFree => say(format_args!("weir: use after free: {verb} at {at:#x}, {place}")),
    }
}

/// A wrong access to a page beside which no block was yet.
pub fn fault_nowhere(at: usize, is_write: Option<bool>) {
    say(format_args!("weir: wild access: {} at {at:#x}, between guarded blocks", verb(is_write)));
}

/// Bytes beside a block were written while the program had it.
pub fn written_beside(at: usize, distance: isize) {
    let kind = if distance < 0 { "underflow" } else { "overflow" };
    say(format_args!("weir: buffer {kind}: a write at {at:#x}, {}, found as the block is freed", Distance(distance)));
}

/// The block that it is about.
pub fn block(at: usize, size: usize) {
    say(format_args!("weir:   the block: {at:#x}, {size} bytes"));
}

/// The line that begins a stack.
pub fn stack(what: &str, thread: u32) {
    say(format_args!("weir:   {what} by thread {thread}:"));
}

/// One frame of it, with the object that the address is in and the offset there.
pub fn frame(at: usize, place: Option<(&[u8], usize)>) {
    match place {
        Some((name, offset)) => say(format_args!("weir:     {at:#x} {}+{offset:#x}", Bytes(end_of(name)))),
        None => say(format_args!("weir:     {at:#x}")),
    }
}

/// The pool cannot be mapped.
#[cold]
pub fn stays_off(why: Errno) {
    say(format_args!(
        "weir: no allocation is guarded: the kernel refuses 3 MiB of address space ({why}): raise the limit of address space \
         (ulimit -v), and set guard_every again"
    ));
}

/// Ends the process by `SIGABRT`.
pub fn end() -> ! {
    super::end()
}

fn verb(is_write: Option<bool>) -> &'static str {
    match is_write {
        Some(true) => "a write",
        Some(false) => "a read",
        None => "an access",
    }
}

/// The end of a path: as much as a line shows.
fn end_of(name: &[u8]) -> &[u8] {
    &name[name.len().saturating_sub(64)..]
}

/// Bytes before the block (below 0), inside (0), or past its end.
struct Distance(isize);

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("inside the block"),
            before @ ..0 => write!(f, "{} bytes before the block", before.unsigned_abs()),
            past => write!(f, "{past} bytes past its last byte"),
        }
    }
}
