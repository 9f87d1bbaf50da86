//! A path in a fixed buffer, always ended by a zero byte.

use core::ffi::CStr;
use core::fmt;

/// Longest path that Weir follows; a longer one counts as absent.
const CAPACITY: usize = 1024;

/// A path of at most `CAPACITY - 1` bytes. A plain array: with `ArrayVec`, unoptimised code moves paths through more
/// stack than Weir's threads have (the tests of `pressure/sources/` hold it to 56 KiB).
#[derive(Clone)]
pub struct FixedPath {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl FixedPath {
    /// The empty path.
    pub const fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: 0 }
    }

    /// A path made of parts, one after the other; `None` if it is too long or holds a zero byte.
    pub fn from_parts(parts: &[&[u8]]) -> Option<Self> {
        let mut path = Self::new();
        parts.iter().all(|part| path.push(part)).then_some(path)
    }

    /// A path from `format_args!`; `None` if it is too long or holds a zero byte.
    pub fn format(text: fmt::Arguments<'_>) -> Option<Self> {
        let mut path = Self::new();
        fmt::write(&mut path, text).is_ok().then_some(path)
    }

    /// Appends bytes; false, and the path as it was, if they do not fit or hold a zero byte.
    #[must_use]
    pub fn push(&mut self, part: &[u8]) -> bool {
        if part.len() >= CAPACITY - self.len || part.contains(&0) {
            return false;
        }
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        true
    }

    /// The bytes without the zero at the end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The path as system calls take it.
    pub fn as_c_str(&self) -> &CStr {
        // `push` refuses zero bytes and keeps one after the end, so the first one is at `len`.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Default for FixedPath {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for FixedPath {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Debug for FixedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_c_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_too_long_is_refused() {
        let mut path = FixedPath::from_parts(&[b"/proc", b"/self"]).unwrap();
        assert_eq!(path.as_c_str(), c"/proc/self");
        assert!(!path.push(&[b'x'; CAPACITY - 10]));
        assert!(!path.push(b"a\0b"));
        assert!(path.push(&[b'x'; CAPACITY - 11]));
        assert_eq!(path.as_c_str().to_bytes().len(), CAPACITY - 1);
        assert!(path.push(b"") && !path.push(b"y"));
        assert_eq!((FixedPath::new().as_c_str(), FixedPath::new().as_bytes()), (c"", &b""[..]));
        assert_eq!(FixedPath::format(format_args!("/proc/{}/fd", 12)).unwrap().as_c_str(), c"/proc/12/fd");
        assert!(FixedPath::format(format_args!("/{:1024}", 1)).is_none());
    }
}
