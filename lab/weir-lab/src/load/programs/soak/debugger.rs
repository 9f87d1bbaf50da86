//! A debugger, which reads and writes the blocks of the program by `ptrace` while it has one thread of it stopped.
//!
//! The kernel takes a page that it merged from its copies for such a write too, as for one of the program.

use super::child::forked;
use super::filled_block::{FilledBlock, corrupt};
use std::ptr::null_mut;

/// A word, as `ptrace` moves it.
const WORD: usize = size_of::<libc::c_long>();

/// A child that has this thread stopped, reads a part of `blocks`, writes a word of each, and lets it go on. Where none may
/// trace this process, nothing happens.
pub fn looks_at(blocks: &mut [FilledBlock]) {
    // SAFETY: it has no arguments.
    let thread = unsafe { libc::gettid() };
    // The child reads its own copies, and those of the thread that waits for it.
    forked(|| {
        if stop(thread) {
            blocks.iter_mut().step_by(13).for_each(|block| look_at(thread, block));
            request(libc::PTRACE_DETACH, thread, 0, 0);
        }
    });
}

/// Is `thread` stopped? Signals that come to it meanwhile are handed on.
fn stop(thread: libc::pid_t) -> bool {
    if request(libc::PTRACE_SEIZE, thread, 0, 0) != 0 || request(libc::PTRACE_INTERRUPT, thread, 0, 0) != 0 {
        return false;
    }
    loop {
        let mut status = 0;
        // SAFETY: it writes the status.
        if unsafe { libc::waitpid(thread, &mut status, libc::__WALL) } != thread || !libc::WIFSTOPPED(status) {
            corrupt("a debugger lost its thread");
        }
        if status >> 16 == libc::PTRACE_EVENT_STOP {
            return true;
        }
        request(libc::PTRACE_CONT, thread, 0, libc::WSTOPSIG(status) as usize);
    }
}

/// Writes a word, as it is and changed and as it is again, and reads the whole block.
fn look_at(thread: libc::pid_t, block: &mut FilledBlock) {
    let at = block.block.address().addr().next_multiple_of(WORD);
    let place = at - block.block.address().addr();
    let word = block.bytes()[place..place + WORD].try_into().map_or(0, usize::from_ne_bytes);
    for value in [word, !word, word] {
        if request(libc::PTRACE_POKEDATA, thread, at, value) != 0 {
            corrupt("a debugger cannot write a block");
        }
    }
    let mut read = vec![0_u8; block.len];
    let here = libc::iovec { iov_base: read.as_mut_ptr().cast(), iov_len: block.len };
    let there = libc::iovec { iov_base: block.block.address().cast(), iov_len: block.len };
    // SAFETY: the bytes are written to `read`, which is as long; what is read is another process's.
    let got = unsafe { libc::process_vm_readv(thread, &here, 1, &there, 1, 0) };
    if got != block.len as isize || read != block.bytes() {
        corrupt("a debugger reads something else than the program wrote");
    }
}

fn request(what: libc::c_uint, thread: libc::pid_t, at: usize, value: usize) -> libc::c_long {
    // SAFETY: the requests that are made here read and write memory of the thread that is traced, at blocks that it holds and
    // waits with; of this process they take plain numbers.
    unsafe { libc::ptrace(what, thread, null_mut::<u8>().wrapping_add(at), null_mut::<u8>().wrapping_add(value)) }
}
