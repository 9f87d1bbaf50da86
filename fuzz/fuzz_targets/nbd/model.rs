//! The answers that the server has to give to a script, by a reading of its own. That is the results of options and requests,
//! and the bytes of each read.
//!
//! Requests that are under way at a time are done in any order. Where one of them changes what another touches, and the client
//! does not wait between them, these bytes are unknown.

use crate::script::{Piece, Script};
use crate::{REQUEST, SIZE};
use std::ops::Range;

const MAX_OPTION: usize = 64 << 10;
const MAX_SKIPPED: u64 = 32 << 20;
const MAX_OPTIONS: usize = 1024;
const MAX_STRING: usize = 4096;
const ALLOCATION: &[u8] = b"base:allocation";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Simple,
    Structured,
    Extended,
}

/// The answer to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionResult {
    pub option: u32,
    pub is_ok: bool,
    /// EXPORT_NAME: no header, and as many bytes.
    pub raw: Option<usize>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Request {
    pub kind: u16,
    pub flags: u16,
    pub offset: u64,
    pub length: u64,
    pub is_ok: bool,
    /// The bytes of a read.
    pub data: Bytes,
}

pub struct Model {
    pub options: Vec<OptionResult>,
    pub style: Style,
    pub requests: Vec<Request>,
}

impl Model {
    /// Reads a script. Its requests are given numbers, and it is cut into pieces.
    pub fn of(script: &mut Script) -> Self {
        let mut it = Self { options: Vec::new(), style: Style::Simple, requests: Vec::new() };
        let mut barriers = Vec::new();
        let begun = it.handshake(&script.bytes);
        if let Some((at, has_allocation)) = begun {
            barriers = it.transmission(script, at, has_allocation);
        }
        script.pieces = pieces(script, &barriers);
        it
    }

    /// Where the requests begin, if they do, and whether extents may be asked for.
    fn handshake(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        let flags = u32::from_be_bytes(*bytes.first_chunk()?);
        if flags & !3 != 0 {
            return None;
        }
        let (mut at, mut has_allocation) = (4, false);
        for _ in 0..MAX_OPTIONS {
            let header = bytes.get(at..at + 16).filter(|header| header.starts_with(b"IHAVEOPT"))?;
            let [option, length] = [8, 12].map(|at| u32::from_be_bytes(*header[at..].first_chunk().expect("4 bytes")));
            if flags & 1 == 0 && option != 1 || option == 1 && length as usize > MAX_STRING {
                return None;
            }
            if u64::from(length) > MAX_SKIPPED {
                return None;
            }
            let data = bytes.get(at + 16..at + 16 + length as usize)?;
            at += 16 + length as usize;
            if option == 1 {
                if self.style == Style::Extended || !is_export(data) {
                    return None;
                }
                let raw = Some(if flags & 2 != 0 { 10 } else { 134 });
                self.options.push(OptionResult { option, is_ok: true, raw });
                return Some((at, has_allocation));
            }
            let is_ok = data.len() <= MAX_OPTION && self.option(option, data, &mut has_allocation);
            self.options.push(OptionResult { option, is_ok, raw: None });
            match option {
                2 if is_ok => return None,
                7 if is_ok => return Some((at, has_allocation)),
                _ => {}
            }
        }
        None
    }

    fn option(&mut self, option: u32, data: &[u8], has_allocation: &mut bool) -> bool {
        match option {
            2 => true,
            3 => data.is_empty(),
            6 | 7 => is_export_request(data),
            8 if data.is_empty() && self.style != Style::Extended => {
                self.style = Style::Structured;
                true
            }
            11 if data.is_empty() => {
                self.style = Style::Extended;
                true
            }
            9 | 10 => {
                let queries = contexts(data).filter(|_| self.style != Style::Simple);
                if option == 10 {
                    *has_allocation = queries.as_ref().is_some_and(|queries| queries.contains(&ALLOCATION));
                }
                queries.is_some()
            }
            _ => false,
        }
    }

    /// Where the client waits, and for how many answers.
    fn transmission(&mut self, script: &mut Script, mut at: usize, has_allocation: bool) -> Vec<(usize, usize)> {
        let is_extended = self.style == Style::Extended;
        let (size, magic): (usize, u32) = if is_extended { (32, 0x21e4_1c71) } else { (28, 0x2560_9513) };
        let (mut volume, mut since) = (Bytes::zeros(SIZE as usize), 0);
        let mut barriers = Vec::new();
        loop {
            let number = self.requests.len();
            if script.waits.contains(&at) {
                since = number;
                barriers.push((at, number));
            }
            let Some(header) = script.bytes.get_mut(at..at + size) else { break };
            if header[..4] != magic.to_be_bytes() {
                break;
            }
            header[8..16].copy_from_slice(&(number as u64).to_be_bytes());
            let [flags, kind] = [4, 6].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
            let offset = u64::from_be_bytes(*header[16..].first_chunk().expect("8 bytes"));
            let length = header[24..].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            let has_payload = if is_extended { flags & 32 != 0 } else { kind == 1 };
            let is_ok = self.is_valid(kind, flags, offset, length, has_allocation);
            let payload = if has_payload { length } else { 0 };
            // The end that was asked for has no answer.
            if kind == 2 && is_ok || !is_ok && payload > MAX_SKIPPED {
                break;
            }
            at += size;
            let Some(data) = usize::try_from(payload).ok().and_then(|len| script.bytes.get(at..at.checked_add(len)?))
            else {
                break;
            };
            at += data.len();
            self.requests.push(Request { kind, flags, offset, length, is_ok, data: Bytes::default() });
            if is_ok {
                self.apply(&mut volume, since, data);
            }
        }
        barriers
    }

    fn is_valid(&self, kind: u16, flags: u16, offset: u64, length: u64, has_allocation: bool) -> bool {
        let (is_extended, is_simple) = (self.style == Style::Extended, self.style == Style::Simple);
        let own = match kind {
            0 if !is_simple => 4,
            1 if is_extended => 32,
            6 => 2 | 16,
            7 => 8,
            _ => 0,
        };
        let is_inside = u128::from(offset) + u128::from(length) <= u128::from(SIZE);
        flags & !(own | 1) == 0
            && match kind {
                0 => is_inside && length <= REQUEST.into(),
                1 => is_inside && length <= REQUEST.into() && (!is_extended || flags & 32 != 0),
                2 => true,
                3 => offset == 0 && length == 0,
                4..=6 => is_inside,
                7 => is_inside && has_allocation && length > 0,
                _ => false,
            }
    }

    /// The last request is done, with all since `since` under way.
    fn apply(&mut self, volume: &mut Bytes, since: usize, data: &[u8]) {
        let Some((last, others)) = self.requests.split_last_mut() else { return };
        let range = last.offset as usize..(last.offset + last.length) as usize;
        let since = since.min(others.len());
        let others = &mut others[since..];
        match last.kind {
            0 => {
                last.data = volume.part(range.clone());
                for other in others.iter().filter(|other| other.is_change()) {
                    last.data.forget(overlap(&range, other), range.start);
                }
                return;
            }
            1 => volume.set(range.clone(), |to| to.copy_from_slice(data)),
            // Of what was trimmed the protocol promises nothing, and the server zeros.
            4 | 6 => volume.set(range.clone(), |to| to.fill(0)),
            _ => return,
        }
        // Zeros that keep their storage, if that is fast: the file system may not do it.
        if last.kind == 6 && last.flags & 16 != 0 {
            volume.forget(range.clone(), 0);
        }
        for other in others {
            let same = overlap(&range, other);
            match other.kind {
                0 if other.is_ok => other.data.forget(same, other.offset as usize),
                _ if other.is_change() => volume.forget(same, 0),
                _ => {}
            }
        }
    }
}

impl Request {
    fn is_change(&self) -> bool {
        self.is_ok && matches!(self.kind, 1 | 4 | 6)
    }
}

fn overlap(range: &Range<usize>, other: &Request) -> Range<usize> {
    let end = other.offset.saturating_add(other.length).min(SIZE) as usize;
    let begin = other.offset.min(SIZE) as usize;
    range.start.max(begin)..range.end.min(end)
}

/// Bytes of the volume, as far as they are known.
#[derive(Debug, Default)]
pub struct Bytes {
    bytes: Vec<u8>,
    is_unknown: Vec<bool>,
}

impl Bytes {
    fn zeros(length: usize) -> Self {
        Self { bytes: vec![0; length], is_unknown: vec![false; length] }
    }

    fn part(&self, range: Range<usize>) -> Self {
        Self { bytes: self.bytes[range.clone()].into(), is_unknown: self.is_unknown[range].into() }
    }

    fn set(&mut self, range: Range<usize>, to: impl FnOnce(&mut [u8])) {
        to(&mut self.bytes[range.clone()]);
        self.is_unknown[range].fill(false);
    }

    /// `begin`: where these bytes begin in the volume.
    fn forget(&mut self, range: Range<usize>, begin: usize) {
        if !range.is_empty() {
            self.is_unknown[range.start - begin..range.end - begin].fill(true);
        }
    }

    /// The first of some bytes, from one on, that is another.
    pub fn differs(&self, from: usize, bytes: &[u8]) -> Option<usize> {
        let expected = &self.bytes[from..from + bytes.len()];
        if bytes == expected {
            return None;
        }
        (0..bytes.len()).find(|&at| bytes[at] != expected[at] && !self.is_unknown[from + at])
    }
}

/// The script is cut where it says, and where the client waits.
fn pieces(script: &Script, barriers: &[(usize, usize)]) -> Vec<Piece> {
    let mut cuts: Vec<usize> = [0, script.bytes.len()].into();
    cuts.extend(script.cuts.iter().chain(barriers.iter().map(|(at, _)| at)));
    cuts.sort_unstable();
    cuts.dedup();
    let after = |at: usize| barriers.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, count)| *count);
    let piece = |cut: &[usize]| Piece {
        range: cut[0]..cut[1],
        after: after(cut[0]),
        is_read_alone: script.cuts.contains(&cut[1]),
    };
    cuts.windows(2).map(piece).collect()
}

fn is_export(name: &[u8]) -> bool {
    name == b"m" || name.is_empty()
}

/// A length and as many bytes, and what is behind them: text as the protocol has it.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let is_text = text.len() <= MAX_STRING && std::str::from_utf8(text).is_ok() && !text.contains(&0);
    is_text.then_some((text, rest))
}

fn is_export_request(data: &[u8]) -> bool {
    let read = || {
        let (name, rest) = string(data)?;
        let (count, rest) = rest.split_first_chunk()?;
        Some(is_export(name) && rest.len() == 2 * usize::from(u16::from_be_bytes(*count)))
    };
    read().unwrap_or(false)
}

/// The queries for an export that there is.
fn contexts(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (name, rest) = string(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let count = u32::from_be_bytes(*count);
    let mut queries = Vec::new();
    for _ in 0..Some(count).filter(|&count| count <= 1024)? {
        let (query, behind) = string(rest)?;
        queries.push(Some(query).filter(|query| query.contains(&b':'))?);
        rest = behind;
    }
    (rest.is_empty() && is_export(name)).then_some(queries)
}
