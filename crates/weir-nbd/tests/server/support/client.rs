//! A client: it sends what it is told, right or wrong, and reads what comes.

use super::PATIENCE;
use super::wire::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// A stream of bytes both ways.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A client.
pub struct Client {
    pub wire: Box<dyn Wire>,
    is_extended: bool,
    cookie: u64,
}

/// A chunk of a structured or extended reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub is_last: bool,
    pub kind: u16,
    pub cookie: u64,
    pub payload: Vec<u8>,
}

impl Chunk {
    /// The error's value.
    pub fn error(&self) -> Option<u32> {
        (self.kind & 0x8000 != 0).then(|| number(&self.payload[..4]) as u32)
    }
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Client {
    pub fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Self::over(socket)
    }

    pub fn tcp(address: &str) -> Self {
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self::over(socket)
    }

    pub fn over(wire: impl Wire + 'static) -> Self {
        Self { wire: Box::new(wire), is_extended: false, cookie: 0 }
    }

    // ---- bytes

    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).expect("the server reads");
    }

    pub fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.wire.read_exact(&mut bytes).expect("the server writes");
        bytes
    }

    pub fn number(&mut self, length: usize) -> u64 {
        number(&self.receive(length))
    }

    /// The server has closed the connection; what it still sent is returned.
    pub fn ends(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.wire.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(why) if matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => rest,
            Err(why) => panic!("the connection is still open: {why}"),
        }
    }

    // ---- handshake

    pub fn greet(&mut self) {
        self.greet_as(3);
    }

    pub fn greet_as(&mut self, flags: u32) {
        assert_eq!((self.number(8), self.number(8), self.number(2)), (NBDMAGIC, IHAVEOPT, 3));
        self.send(&flags.to_be_bytes());
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        self.send(&[&IHAVEOPT.to_be_bytes()[..], &option.to_be_bytes(), &length, data].concat());
    }

    /// One reply to an option: its kind and data.
    pub fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        assert_eq!((self.number(8), self.number(4) as u32), (OPTION_REPLY, option));
        let kind = self.number(4) as u32;
        let length = self.number(4) as usize;
        (kind, self.receive(length))
    }

    /// All replies to an option. The last is an acknowledgement or an error.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply(option);
            let is_last = reply.0 == ACK || reply.0 & 0x8000_0000 != 0;
            replies.push(reply);
            if is_last {
                return replies;
            }
        }
    }

    /// The kind of the last reply.
    pub fn outcome(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).last().expect("a reply").0
    }

    pub fn go(&mut self, export: &str) {
        assert_eq!(self.outcome(GO, &export_request(export, &[])), ACK);
    }

    pub fn structured(&mut self) {
        assert_eq!(self.outcome(STRUCTURED, b""), ACK);
    }

    pub fn extended(&mut self) {
        assert_eq!(self.outcome(EXTENDED, b""), ACK);
        self.is_extended = true;
    }

    /// Chooses `base:allocation`, and returns its number.
    pub fn set_allocation(&mut self, export: &str) -> u32 {
        let replies = self.option(SET_META, &context_request(export, &["base:allocation"]));
        assert_eq!((replies.len(), replies[0].0, &replies[0].1[4..]), (2, REP_META, &b"base:allocation"[..]));
        number(&replies[0].1[..4]) as u32
    }

    // ---- requests

    /// Sends a request, and returns its cookie.
    pub fn request(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> u64 {
        self.cookie += 1;
        let cookie = self.cookie;
        self.request_as(cookie, kind, flags, offset, length, payload);
        cookie
    }

    pub fn request_as(&mut self, cookie: u64, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) {
        let has_length = self.is_extended && !payload.is_empty();
        let flags = if has_length { flags | PAYLOAD_LEN } else { flags };
        let magic = if self.is_extended { EXTENDED_REQUEST } else { REQUEST };
        let mut out = [&magic.to_be_bytes()[..], &flags.to_be_bytes(), &kind.to_be_bytes()].concat();
        out.extend(cookie.to_be_bytes());
        out.extend(offset.to_be_bytes());
        match self.is_extended {
            true => out.extend(length.to_be_bytes()),
            false => out.extend((length as u32).to_be_bytes()),
        }
        out.extend(payload);
        self.send(&out);
    }

    /// A simple reply without data: its error and cookie.
    pub fn simple_reply(&mut self) -> (u32, u64) {
        assert_eq!(self.number(4) as u32, SIMPLE_REPLY);
        (self.number(4) as u32, self.number(8))
    }

    /// A request with a simple reply: its error.
    pub fn simple(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> u32 {
        let cookie = self.request(kind, flags, offset, length, payload);
        let (error, answered) = self.simple_reply();
        assert_eq!(answered, cookie);
        error
    }

    /// A read with simple replies.
    pub fn read_simple(&mut self, offset: u64, length: usize) -> Vec<u8> {
        assert_eq!(self.simple(READ, 0, offset, length as u64, b""), 0);
        self.receive(length)
    }

    pub fn chunk(&mut self) -> Chunk {
        let magic = if self.is_extended { EXTENDED_REPLY } else { STRUCTURED_REPLY };
        assert_eq!(self.number(4) as u32, magic);
        let (flags, kind, cookie) = (self.number(2), self.number(2) as u16, self.number(8));
        let length = match self.is_extended {
            true => {
                let _offset = self.number(8);
                self.number(8)
            }
            false => self.number(4),
        };
        Chunk { is_last: flags & 1 != 0, kind, cookie, payload: self.receive(length as usize) }
    }

    /// A request, and all chunks of its reply.
    pub fn chunks(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> Vec<Chunk> {
        let cookie = self.request(kind, flags, offset, length, payload);
        let mut chunks = Vec::new();
        loop {
            let chunk = self.chunk();
            assert_eq!(chunk.cookie, cookie);
            let is_last = chunk.is_last;
            chunks.push(chunk);
            if is_last {
                return chunks;
            }
        }
    }

    /// A request with structured replies: its error, or 0.
    pub fn error(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> u32 {
        self.chunks(kind, flags, offset, length, payload).iter().find_map(Chunk::error).unwrap_or(0)
    }

    /// A read with structured replies, put together.
    pub fn read(&mut self, flags: u16, offset: u64, length: usize) -> Vec<u8> {
        let chunks = self.chunks(READ, flags, offset, length as u64, b"");
        let mut data = vec![None; length];
        for chunk in chunks {
            let Chunk { kind, payload, .. } = chunk;
            let (bytes, at) = match kind {
                DATA => (payload[8..].to_vec(), number(&payload[..8])),
                HOLE => (vec![0; number(&payload[8..]) as usize], number(&payload[..8])),
                other => panic!("chunk {other:#x}: {payload:?}"),
            };
            let at = (at - offset) as usize;
            for (place, byte) in data[at..at + bytes.len()].iter_mut().zip(bytes) {
                assert!(place.replace(byte).is_none(), "chunks overlap");
            }
        }
        data.into_iter().map(|byte| byte.expect("every byte has come")).collect()
    }

    /// The extents of a range: lengths and flags.
    pub fn status(&mut self, flags: u16, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let chunks = self.chunks(STATUS, flags, offset, length, b"");
        assert_eq!(chunks.len(), 1, "one context, one chunk");
        let (kind, skip, width) = if self.is_extended { (BLOCK_STATUS_EXT, 8, 8) } else { (BLOCK_STATUS, 4, 4) };
        assert_eq!(chunks[0].kind, kind, "{chunks:?}");
        let extents = &chunks[0].payload[skip..];
        extents.chunks(2 * width).map(|extent| (number(&extent[..width]), number(&extent[width..]))).collect()
    }
}

/// Data of INFO and GO.
pub fn export_request(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|wanted| wanted.to_be_bytes()));
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn context_request(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.bytes());
    }
    data
}
