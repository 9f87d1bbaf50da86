//! Replies to requests: simple, structured, extended.

use super::constants::{EXTENDED_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};
use super::fault::Fault;

/// The replies' form, agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Style {
    /// One header, and all of a read's data.
    #[default]
    Simple,
    /// Chunks.
    Structured,
    /// Chunks with 64-bit lengths, and requests with them.
    Extended,
}

/// The address that a reply has to name: the request's cookie, and in extended replies its offset.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The replies' form.
    pub style: Style,
    /// The request's.
    pub cookie: u64,
    /// The request's, bytes.
    pub offset: u64,
}

/// A run of bytes in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, not 0.
    pub length: u64,
    /// No storage is behind it, and it reads as zeroes.
    pub is_hole: bool,
}

impl Address {
    /// The request succeeded, and has no data.
    pub fn success(&self) -> Vec<u8> {
        match self.style {
            Style::Simple => self.simple(0),
            _ => self.chunk(chunk::DONE, chunk::NONE, 0),
        }
    }

    /// The request failed; at which offset, if that is known.
    pub fn failure(&self, fault: &Fault, at: Option<u64>) -> Vec<u8> {
        if self.style == Style::Simple {
            return self.simple(fault.code as u32);
        }
        let message = fault.message.as_bytes();
        let kind = if at.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
        let offset = at.map(u64::to_be_bytes);
        let offset: &[u8] = offset.as_ref().map_or(&[], |offset| offset);
        let mut out = self.chunk(chunk::DONE, kind, 6 + message.len() + offset.len());
        out.extend((fault.code as u32).to_be_bytes());
        out.extend((message.len() as u16).to_be_bytes());
        out.extend(message);
        out.extend(offset);
        out
    }

    /// Goes before `length` bytes of data from `offset` on. A simple reply has one of these, a structured one several.
    pub fn data(&self, offset: u64, length: usize, is_last: bool) -> Vec<u8> {
        if self.style == Style::Simple {
            return self.simple(0);
        }
        let mut out = self.chunk(done(is_last), chunk::OFFSET_DATA, 8 + length);
        out.extend(offset.to_be_bytes());
        out
    }

    /// `length` zeroes from `offset` on; not in simple replies.
    pub fn hole(&self, offset: u64, length: u32, is_last: bool) -> Vec<u8> {
        let mut out = self.chunk(done(is_last), chunk::OFFSET_HOLE, 12);
        out.extend(offset.to_be_bytes());
        out.extend(length.to_be_bytes());
        out
    }

    /// The extents of the metadata context `id`; not in simple replies.
    pub fn block_status(&self, id: u32, extents: &[Extent], flags: impl Fn(&Extent) -> u32) -> Vec<u8> {
        let is_extended = self.style == Style::Extended;
        let (kind, length) = match is_extended {
            true => (chunk::BLOCK_STATUS_EXT, 8 + 16 * extents.len()),
            false => (chunk::BLOCK_STATUS, 4 + 8 * extents.len()),
        };
        let mut out = self.chunk(chunk::DONE, kind, length);
        out.extend(id.to_be_bytes());
        if is_extended {
            out.extend((extents.len() as u32).to_be_bytes());
        }
        for extent in extents {
            if is_extended {
                out.extend(extent.length.to_be_bytes());
                out.extend(u64::from(flags(extent)).to_be_bytes());
            } else {
                // A request's length has 32 bits here, and no extent is longer than its request.
                out.extend((extent.length as u32).to_be_bytes());
                out.extend(flags(extent).to_be_bytes());
            }
        }
        out
    }

    fn simple(&self, error: u32) -> Vec<u8> {
        [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &self.cookie.to_be_bytes()].concat()
    }

    fn chunk(&self, flags: u16, kind: u16, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let is_extended = self.style == Style::Extended;
        let magic = if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        out.extend(magic.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        if is_extended {
            out.extend(self.offset.to_be_bytes());
            out.extend((length as u64).to_be_bytes());
        } else {
            out.extend((length as u32).to_be_bytes());
        }
        out
    }
}

fn done(is_last: bool) -> u16 {
    if is_last { chunk::DONE } else { 0 }
}
