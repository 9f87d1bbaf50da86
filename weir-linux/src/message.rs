//! One line to the program's standard error, with no allocation.

use crate::os::{fd, process};
use crate::threads::background;
use crate::threads::node_worker;
use core::fmt;

/// A line of at most 255 bytes; what is longer is cut.
pub(crate) struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { text: [0; 256], len: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.text.len() - 1 - self.len;
        let n = bytes.len().min(room);
        self.text[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    /// What was pushed so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    /// Writes the line and its end.
    pub(crate) fn say(&mut self) {
        self.text[self.len] = b'\n';
        let text = &self.text[..=self.len];
        if !is_own_thread() {
            let _ = fd::write(2, text);
            return;
        }
        // Its table has other files. It keeps none of the program's, whose other ends would wait for it. A socket cannot be
        // opened by its name, and a pipe that nobody reads would be waited for.
        let named = fd::open(c"/proc/self/fd/2", fd::O_WRONLY | fd::O_APPEND | fd::O_NONBLOCK);
        let error = named.or_else(|_| process::main_threads_file(2));
        if let Ok(error) = error {
            let _ = fd::write(error, text);
            let _ = fd::close(error);
        }
    }
}

/// Whether the caller is a thread of Weir's own, which has descriptors, and a thread pointer, of its own.
pub(crate) fn is_own_thread() -> bool {
    background::is_here() || node_worker::is_here()
}

impl fmt::Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text[..self.len].utf8_chunks().try_for_each(|c| f.write_str(c.valid()))
    }
}
