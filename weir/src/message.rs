//! One line to the program's standard error, with no allocation.

use crate::os::fd;
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

    /// Writes the line and its end.
    pub(crate) fn say(&mut self) {
        self.text[self.len] = b'\n';
        let _ = fd::write(2, &self.text[..=self.len]);
    }
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
