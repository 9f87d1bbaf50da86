//! Big-endian numbers and strings out of a message.

use super::constants::MAX_STRING;

/// A message that is read from its beginning. Each read is `None` where the message is too short.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Reads `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    /// 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    /// 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    /// A string of `length` bytes: UTF-8, no NUL, no longer than the protocol allows.
    pub fn string(&mut self, length: u32) -> Option<&'a str> {
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_STRING)?;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(head).ok().filter(|text| !text.contains('\0'))
    }
    /// All has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
