//! What is sent in one call: headers and data, gathered from where they lie.

use crate::buffers::Buffer;
use std::ptr;

/// Most parts of a message: the kernel takes 1,024.
pub const MAX_PARTS: usize = 64;

/// A run of bytes to send.
pub enum Part {
    /// A header.
    Bytes(Vec<u8>),
    /// A request's data: all that has been filled.
    Data(Buffer),
}

impl Part {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Data(buffer) => buffer.filled(),
        }
    }
}

/// Bytes on their way to a socket.
pub struct Message {
    parts: Vec<Part>,
    /// Parts that have gone out, and bytes of the next one.
    sent: (usize, usize),
    /// What the kernel reads: at fixed addresses.
    call: Box<Call>,
}

struct Call {
    header: libc::msghdr,
    vectors: [libc::iovec; MAX_PARTS],
}

impl Message {
    /// A message of at most [`MAX_PARTS`] parts.
    pub fn new(parts: Vec<Part>) -> Self {
        assert!(parts.len() <= MAX_PARTS, "more parts than one call takes");
        let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message header is numbers and pointers, for which zero is a value.
        let header = unsafe { std::mem::zeroed() };
        let call = Box::new(Call { header, vectors: [none; MAX_PARTS] });
        let mut message = Self { parts, sent: (0, 0), call };
        message.advance(0);
        message
    }

    /// All has been sent.
    pub fn is_empty(&self) -> bool {
        self.sent.0 == self.parts.len()
    }

    /// The header of a call that sends the rest. It and what it names keep their addresses while the message moves.
    pub(super) fn header(&mut self) -> *const libc::msghdr {
        let (first, skip) = self.sent;
        let call = &mut *self.call;
        let mut count = 0;
        for (index, part) in self.parts[first..].iter().enumerate() {
            let bytes = &part.bytes()[if index == 0 { skip } else { 0 }..];
            call.vectors[count] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        call.header.msg_iov = call.vectors.as_mut_ptr();
        call.header.msg_iovlen = count;
        &call.header
    }

    /// Counts `length` more bytes as sent.
    pub(super) fn advance(&mut self, mut length: usize) {
        while let Some(part) = self.parts.get(self.sent.0) {
            let left = part.bytes().len() - self.sent.1;
            if length < left {
                self.sent.1 += length;
                return;
            }
            length -= left;
            self.sent = (self.sent.0 + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_sent() {
        let mut data = Buffer::take(3).expect("memory");
        data.append(b"xyz");
        let parts =
            vec![Part::Bytes(b"ab".to_vec()), Part::Bytes(Vec::new()), Part::Data(data), Part::Bytes(vec![b'!'])];
        let mut message = Message::new(parts);
        let mut seen = Vec::new();
        while !message.is_empty() {
            // SAFETY: the header and what it names belong to the message, which is not changed meanwhile.
            let first = unsafe {
                let header = &*message.header();
                let first = &*header.msg_iov;
                std::slice::from_raw_parts(first.iov_base.cast::<u8>(), first.iov_len)
            };
            seen.push(first.to_vec());
            message.advance(2);
        }
        // Two bytes at a time: "ab", "xy", then "z" and "!" together.
        assert_eq!(seen, [b"ab".to_vec(), b"xyz".to_vec(), b"z".to_vec()]);
    }
}
