//! Writing to streams that may be closed, full, or a pipe that nobody reads.

use crate::base::failure::Failure;
use std::fmt;
use std::io::Write;

/// Writes to standard error. What cannot be said there can be said nowhere, and is no reason to fail.
pub fn say(text: fmt::Arguments) {
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes a command's result to standard output. A reader that has seen enough ends the command, as any other's.
pub fn print(text: &str) -> Result<(), Failure> {
    // SAFETY: sets a signal's default action; the standard library ignores this one.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut out = std::io::stdout();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    done.map_err(|e| Failure::of_weir(format!("cannot write to standard output: {e}")))
}
