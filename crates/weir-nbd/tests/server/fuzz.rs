//! Garbage: sessions that are wrong in all ways. The server lives on, answers in the protocol's own form, and forgets
//! them.
//!
//! A fixed set. The fuzz target `nbd` finds new ones, and holds the replies against a model.

use crate::support::client::{context_request, export_request, number};
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{Numbers, engines, eventually};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// The size of the export, bytes.
const SIZE: u64 = 1 << 20;

/// The view that the client's side has to have of a session.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Options, then nothing.
    Handshake,
    /// Valid options, then requests with chunks for replies.
    Transmission { is_extended: bool },
    /// Anything: only the server's life counts.
    Bytes,
}

/// A number at the edge of something, or any.
fn edge(numbers: &mut Numbers) -> u64 {
    let edges = [0, 1, 511, 512, 4095, 4096, 65_536, SIZE - 1, SIZE, SIZE + 1, 32 << 20, 33 << 20];
    let huge = [u64::from(u32::MAX), 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
    match numbers.below(4) {
        0 => huge[numbers.below(huge.len() as u64) as usize],
        1 => numbers.next() >> numbers.below(64),
        _ => edges[numbers.below(edges.len() as u64) as usize],
    }
}

fn bytes(numbers: &mut Numbers, most: u64) -> Vec<u8> {
    (0..numbers.below(most + 1)).map(|_| numbers.next() as u8).collect()
}

fn raw_option(option: u32, length: u32, data: &[u8]) -> Vec<u8> {
    [&IHAVEOPT.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    raw_option(option, data.len() as u32, data)
}

/// An option that may be right, and data that may be its own. Never one that ends the handshake well.
fn some_option(numbers: &mut Numbers) -> Vec<u8> {
    let names = ["m", "", "nothing", "m\0", &"n".repeat(4097)].map(String::from);
    let name = &names[numbers.below(names.len() as u64) as usize];
    let queries = ["base:allocation", "base:", "x:", "nocolon"];
    let data = match numbers.below(5) {
        0 => Vec::new(),
        1 => export_request(name, &[0, 3, numbers.next() as u16]),
        2 => context_request(name, &queries[..numbers.below(5) as usize]),
        3 => {
            let mut data = context_request(name, &queries);
            let at = numbers.below(data.len() as u64) as usize;
            data[at] ^= numbers.next() as u8;
            data
        }
        _ => bytes(numbers, 300),
    };
    let kinds = [ABORT, LIST, STARTTLS, INFO, STRUCTURED, LIST_META, SET_META, EXTENDED, 4, 99, numbers.next() as u32];
    let kind = kinds[numbers.below(kinds.len() as u64) as usize];
    let kind = if kind == GO || kind == EXPORT_NAME { LIST } else { kind };
    match numbers.below(30) {
        0 => raw_option(kind, edge(numbers) as u32, &data),
        1 => bytes(numbers, 40),
        _ => option(kind, &data),
    }
}

fn some_request(numbers: &mut Numbers, cookie: u64, is_extended: bool) -> Vec<u8> {
    let kind = if numbers.below(10) == 0 { numbers.next() as u16 } else { numbers.below(9) as u16 };
    let flags = if numbers.below(3) == 0 { numbers.next() as u16 } else { (1 << numbers.below(7)) & 0x3f };
    let flags = if numbers.below(2) == 0 { 0 } else { flags };
    let (offset, length) = (edge(numbers), edge(numbers));
    // Payloads are rarely of more than a few pages, so that the test moves on.
    let length = if length > 64 << 10 && numbers.below(4) > 0 { length % 5000 } else { length };
    let (flags, has_payload) = match is_extended {
        true if kind == WRITE && numbers.below(4) > 0 => (flags | PAYLOAD_LEN, true),
        true => (flags, flags & PAYLOAD_LEN != 0),
        false => (flags, kind == WRITE),
    };
    let (magic, length) = match is_extended {
        true => (EXTENDED_REQUEST, length),
        false => (REQUEST, length & u64::from(u32::MAX)),
    };
    let magic = if numbers.below(200) == 0 { numbers.next() as u32 } else { magic };
    let mut out = [&magic.to_be_bytes()[..], &flags.to_be_bytes(), &kind.to_be_bytes()].concat();
    out.extend(cookie.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(&length.to_be_bytes()[if is_extended { 0 } else { 4 }..]);
    if has_payload {
        // What is longer is cut off: the session ends there.
        out.extend(vec![numbers.next() as u8; length.min(100_000) as usize]);
    }
    out
}

/// All that a client of this kind says.
fn script(numbers: &mut Numbers, kind: Kind) -> Vec<u8> {
    let mut out = 3u32.to_be_bytes().to_vec();
    match kind {
        Kind::Handshake => (0..numbers.below(12)).for_each(|_| out.extend(some_option(numbers))),
        Kind::Transmission { is_extended } => {
            out.extend(option(if is_extended { EXTENDED } else { STRUCTURED }, b""));
            out.extend(option(SET_META, &context_request("m", &["base:allocation"])));
            out.extend(option(GO, &export_request("m", &[])));
            (0..numbers.below(30)).for_each(|cookie| out.extend(some_request(numbers, cookie, is_extended)));
        }
        Kind::Bytes => {
            let is_extended = numbers.below(2) == 0;
            out = script(numbers, Kind::Transmission { is_extended });
            for _ in 0..=numbers.below(8) {
                let at = numbers.below(out.len() as u64) as usize;
                match numbers.below(3) {
                    0 => out[at] = numbers.next() as u8,
                    1 => out.truncate(at.max(1)),
                    _ => drop(out.splice(at..at, bytes(numbers, 20))),
                }
            }
        }
    }
    out
}

/// Says all of `script`, and returns all that the server says. It has to end the session.
fn converse(server: &Server, script: &[u8]) -> Vec<u8> {
    let mut socket = UnixStream::connect(server.socket()).expect("the server listens");
    socket.set_read_timeout(Some(crate::support::PATIENCE)).expect("a socket");
    let mut writer = socket.try_clone().expect("a socket");
    let said = script.to_vec();
    let speaker = std::thread::spawn(move || {
        // The server may have ended the session long before.
        let _ = writer.write_all(&said).and_then(|()| writer.shutdown(Shutdown::Write));
    });
    let mut heard = Vec::new();
    if let Err(why) = socket.read_to_end(&mut heard) {
        assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset, "the server ends the session");
    }
    speaker.join().expect("the speaker ends");
    heard
}

/// Takes replies to options from the front of what was heard. A reply may be cut off at the end alone.
fn skip_option_replies(mut heard: &[u8], most: usize) -> &[u8] {
    let mut acknowledged = 0;
    while heard.len() >= 20 && acknowledged < most {
        assert_eq!(number(&heard[..8]), OPTION_REPLY, "a reply to an option");
        let (kind, length) = (number(&heard[12..16]) as u32, number(&heard[16..20]) as usize);
        assert!((1..=4).contains(&kind) || (ERR_UNSUP..=ERR_EXT_HEADER_REQD).contains(&kind), "{kind:#x}");
        assert!(length <= 8192);
        heard = &heard[(20 + length).min(heard.len())..];
        acknowledged += usize::from(kind == ACK);
    }
    heard
}

/// Checks that what was heard is what a server may say, and returns how many requests were answered.
fn check(heard: &[u8], kind: Kind) -> u64 {
    if kind == Kind::Bytes {
        return 0;
    }
    assert_eq!((number(&heard[..8]), number(&heard[8..16])), (NBDMAGIC, IHAVEOPT));
    let Kind::Transmission { is_extended } = kind else {
        assert!(skip_option_replies(&heard[18..], usize::MAX).len() < 20);
        return 0;
    };
    let mut answered = 0;
    let mut heard = skip_option_replies(&heard[18..], 3);
    let (magic, size) = if is_extended { (EXTENDED_REPLY, 32) } else { (STRUCTURED_REPLY, 20) };
    while heard.len() >= size {
        assert_eq!(number(&heard[..4]) as u32, magic);
        let (flags, kind, cookie) = (number(&heard[4..6]), number(&heard[6..8]) as u16, number(&heard[8..16]));
        let length = number(&heard[size - if is_extended { 8 } else { 4 }..size]) as usize;
        assert!(flags <= 1 && cookie < 30, "{flags} {cookie}");
        let status = if is_extended { BLOCK_STATUS_EXT } else { BLOCK_STATUS };
        assert!([0, DATA, HOLE, status, ERROR, ERROR_OFFSET].contains(&kind), "{kind:#x}");
        let payload = &heard[size..(size + length).min(heard.len())];
        if payload.len() == length && kind & 0x8000 != 0 {
            let error = number(&payload[..4]) as u32;
            assert!([EPERM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP].contains(&error), "error {error}");
        }
        heard = &heard[size + payload.len()..];
        answered += flags;
    }
    answered
}

#[test]
fn garbage_is_survived_and_forgotten() {
    const SESSIONS: u64 = 500;
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:1M", "--io", engine]);
        let mut answered = 0;
        for session in 0..SESSIONS {
            let kind = match session % 4 {
                0 => Kind::Handshake,
                1 => Kind::Transmission { is_extended: false },
                2 => Kind::Transmission { is_extended: true },
                _ => Kind::Bytes,
            };
            let script = script(&mut Numbers(1 ^ session.wrapping_mul(0xd134_2543_de82_ef95)), kind);
            eprintln!("session {session}");
            answered += check(&converse(&server, &script), kind);
            if session % 50 == 0 {
                server.simple("m").read_simple(0, 512);
            }
        }
        assert!(answered > SESSIONS, "requests get as far as an answer");
        eventually("every session is forgotten", || server.stat()["connections"] == 0);
        let used = server.stat()["heap_live_bytes"].as_u64().expect("a number");
        assert!(used < 4 << 20, "{used} bytes are left after {SESSIONS} sessions");
        server.stop();
    }
}
