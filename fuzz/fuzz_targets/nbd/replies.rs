//! The server's messages, held against what the model expects of it.

use crate::model::{Model, OptionResult, Request, Style};

/// Bytes of the longest reply to an option: an error's text, a name, a description.
const OPTION: usize = 8192;
/// The error values of the protocol.
const ERRORS: [u32; 7] = [1, 5, 12, 22, 28, 75, 95];
const NOT_SUPPORTED: u32 = 95;

/// See the module.
pub struct Replies {
    model: Model,
    /// Bytes that were heard of the next message.
    heard: Vec<u8>,
    is_greeted: bool,
    /// Options that were answered.
    options: usize,
    /// Requests, by number: how far the data of a read has come; `None`: answered.
    read: Vec<Option<u64>>,
    answered: usize,
}

impl Replies {
    pub fn new(model: Model) -> Self {
        let read = vec![Some(0); model.requests.len()];
        Self { model, heard: Vec::new(), is_greeted: false, options: 0, read, answered: 0 }
    }

    /// Requests that were answered.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// Takes what was heard, as far as it is whole messages.
    pub fn take(&mut self, bytes: &[u8]) {
        self.heard.extend(bytes);
        let mut at = 0;
        while let Some(length) = self.message(at) {
            at += length;
        }
        self.heard.drain(..at);
    }

    /// The session is over.
    pub fn finish(&self) {
        assert!(self.is_greeted && self.heard.is_empty(), "{:?}", self.heard);
        assert_eq!((self.options, self.answered), (self.model.options.len(), self.model.requests.len()));
    }

    /// Reads one message; its length, if it is whole.
    fn message(&mut self, at: usize) -> Option<usize> {
        let rest = &self.heard[at..];
        if !self.is_greeted {
            let greeting = rest.get(..18)?;
            assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
            self.is_greeted = true;
            return Some(18);
        }
        if let Some(expected) = self.model.options.get(self.options) {
            let (length, is_last) = option_reply(rest, expected)?;
            self.options += usize::from(is_last);
            return Some(length);
        }
        match self.model.style {
            Style::Simple => self.simple(at),
            _ => self.chunk(at),
        }
    }

    fn simple(&mut self, at: usize) -> Option<usize> {
        let header = self.heard.get(at..at + 16)?;
        assert_eq!(header[..4], 0x6744_6698u32.to_be_bytes());
        let (error, number) = (number(&header[4..8]) as u32, number(&header[8..16]) as usize);
        let request = &self.model.requests[number];
        let data = if request.kind == 0 && error == 0 { request.length as usize } else { 0 };
        let bytes = self.heard.get(at + 16..at + 16 + data)?;
        check_error(request, error);
        check_data(request, 0, bytes);
        self.answer(number);
        Some(16 + data)
    }

    fn chunk(&mut self, at: usize) -> Option<usize> {
        let is_extended = self.model.style == Style::Extended;
        let (size, magic): (usize, u32) = if is_extended { (32, 0x6e8a_278c) } else { (20, 0x668e_33ef) };
        let header = self.heard.get(at..at + size)?;
        assert_eq!(header[..4], magic.to_be_bytes());
        let (flags, kind, number) =
            (number(&header[4..6]), number(&header[6..8]) as u16, number(&header[8..16]) as usize);
        let length = self::number(&header[size - if is_extended { 8 } else { 4 }..]) as usize;
        let request = &self.model.requests[number];
        assert!(!is_extended || self::number(&header[16..24]) == request.offset, "the request's offset");
        assert!(flags <= 1 && length <= 8 + request.length.clamp(64 << 10, crate::SIZE) as usize, "{length} bytes");
        let payload = self.heard.get(at + size..at + size + length)?;
        let done = self.read[number].expect("it was answered before");
        let read = done + check_chunk(request, kind, payload, done);
        self.read[number] = Some(read);
        if flags == 1 {
            let is_whole = request.kind != 0 || kind & 0x8000 != 0 || read == request.length;
            assert!(is_whole, "{read} bytes of {}", request.length);
            self.answer(number);
        }
        Some(size + length)
    }

    fn answer(&mut self, number: usize) {
        assert!(self.read[number].take().is_some(), "it was answered before");
        self.answered += 1;
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The length of a reply to an option, and whether it is the option's last.
fn option_reply(rest: &[u8], expected: &OptionResult) -> Option<(usize, bool)> {
    if let Some(length) = expected.raw {
        let raw = rest.get(..length)?;
        assert_eq!(number(&raw[..8]), crate::SIZE);
        assert!(raw[10..].iter().all(|&byte| byte == 0));
        return Some((length, true));
    }
    let header = rest.get(..20)?;
    assert_eq!(number(&header[..8]), 0x0003_e889_0455_65a9);
    assert_eq!(number(&header[8..12]), expected.option.into());
    let (kind, length) = (number(&header[12..16]) as u32, number(&header[16..20]) as usize);
    let of_option = match expected.option {
        3 => 2,
        6 | 7 => 3,
        9 | 10 => 4,
        _ => 1,
    };
    let is_error = kind & 1 << 31 != 0;
    assert_eq!(is_error, !expected.is_ok, "{expected:?}");
    assert!(is_error || kind == 1 && length == 0 || kind == of_option, "kind {kind}");
    assert!(length <= OPTION);
    let data = rest.get(20..20 + length)?;
    assert!(kind != 3 || number(&data[..2]) != 0 || number(&data[2..10]) == crate::SIZE);
    Some((20 + length, is_error || kind == 1))
}

fn check_error(request: &Request, error: u32) {
    // The file system may not do it.
    let may_fail = request.kind == 6 && request.flags & 16 != 0 && error == NOT_SUPPORTED;
    assert!(
        (error == 0) == request.is_ok || may_fail,
        "error {error}: {} {} {}",
        request.kind,
        request.offset,
        request.length
    );
    assert!(error == 0 || ERRORS.contains(&error), "error {error}");
}

fn check_data(request: &Request, from: u64, bytes: &[u8]) {
    assert_eq!(
        request.data.differs(from as usize, bytes),
        None,
        "of {} bytes from {} on",
        bytes.len(),
        request.offset + from
    );
}

/// Checks a chunk of a structured reply; how many bytes of a read it has. `done`: those that came before.
fn check_chunk(request: &Request, kind: u16, payload: &[u8], done: u64) -> u64 {
    let is_next = || number(&payload[..8]) == request.offset + done;
    match (kind, request.kind) {
        (0, _) => {
            check_error(request, 0);
            assert!(payload.is_empty() && request.kind != 7 && (request.kind != 0 || request.length == 0));
            0
        }
        (1, 0) => {
            check_error(request, 0);
            assert!(is_next() && payload.len() > 8);
            check_data(request, done, &payload[8..]);
            payload.len() as u64 - 8
        }
        (2, 0) => {
            check_error(request, 0);
            let length = number(&payload[8..]);
            assert!(is_next() && payload.len() == 12 && request.flags & 4 == 0);
            check_data(request, done, &vec![0; length as usize]);
            length
        }
        (5, 7) => {
            check_extents(request, payload, 4, 8);
            0
        }
        (6, 7) => {
            assert_eq!(number(&payload[4..8]) as usize * 16, payload.len() - 8);
            check_extents(request, payload, 8, 16);
            0
        }
        (0x8001 | 0x8002, _) => {
            let (error, text) = (number(&payload[..4]) as u32, number(&payload[4..6]) as usize);
            assert!(error != 0 && payload.len() == 6 + text + if kind == 0x8002 { 8 } else { 0 });
            check_error(request, error);
            0
        }
        _ => panic!("chunk {kind:#x} for a request of kind {}", request.kind),
    }
}

/// Extents of the one context: at most the range, none empty, and one alone if that was asked for.
fn check_extents(request: &Request, payload: &[u8], head: usize, size: usize) {
    check_error(request, 0);
    assert_eq!(number(&payload[..4]), 1);
    let extents: Vec<(u64, u64)> =
        payload[head..].chunks(size).map(|extent| (number(&extent[..size / 2]), number(&extent[size / 2..]))).collect();
    assert!(!extents.is_empty() && (request.flags & 8 == 0 || extents.len() == 1));
    assert!(extents.iter().all(|&(length, flags)| length > 0 && (flags == 0 || flags == 3)));
    assert!(extents.iter().map(|(length, _)| length).sum::<u64>() <= request.length);
}
