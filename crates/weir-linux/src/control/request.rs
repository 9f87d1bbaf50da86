//! The meaning of a client's message.

use core::fmt;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, with a setting's name or for all of them.
    Get(Option<&'a str>),
    /// `set NAME VALUE`.
    Set(&'a str, &'a str),
    /// `trim`: what is idle is released, and caches down to what they will want again.
    Trim,
    /// `drain`: all that is free is released.
    Drain,
    /// `report`: where the memory is now. The page of counters is brought up to date.
    Report,
    /// `mergeable`: what merging sparse pages would release.
    Mergeable,
    /// `subscribe`: from now on the client is sent events.
    Subscribe,
    /// `target BYTES`: as long as the client is connected no more is to be resident; 0 takes that back.
    Target(u64),
}

/// Why a message is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// The message is longer than a request may be.
    TooLong,
    /// The message has other bytes than printable ASCII.
    NotText,
    /// The message's first word is none of the commands.
    Unknown,
    /// The message has too few words, or too many.
    WrongWords(&'static str),
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the request is longer than {} bytes", super::LONGEST_REQUEST),
            Self::NotText => f.write_str("the request is not one line of ASCII text"),
            Self::Unknown => {
                f.write_str("no such command: get, set, trim, drain, report, mergeable, subscribe, target")
            }
            Self::WrongWords(form) => write!(f, "write: {form}"),
        }
    }
}

impl<'a> Request<'a> {
    /// Reads a message, at the end of which there may be a line's end.
    pub fn parse(message: &'a [u8]) -> Result<Self, BadRequest> {
        if message.len() > super::LONGEST_REQUEST {
            return Err(BadRequest::TooLong);
        }
        let line = message.trim_ascii();
        let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
        let text = core::str::from_utf8(line).ok().filter(|line| line.as_bytes().iter().all(is_printable));
        let mut words = text.ok_or(BadRequest::NotText)?.split_ascii_whitespace();
        let command = words.next().ok_or(BadRequest::Unknown)?;
        let rest = [words.next(), words.next(), words.next()];
        let alone = |request, form| if rest[0].is_none() { Ok(request) } else { Err(BadRequest::WrongWords(form)) };
        match (command, rest) {
            ("get", [name, None, None]) => Ok(Self::Get(name)),
            ("get", _) => Err(BadRequest::WrongWords("get [NAME]")),
            ("set", [Some(name), Some(value), None]) => Ok(Self::Set(name, value)),
            ("set", _) => Err(BadRequest::WrongWords("set NAME VALUE")),
            ("trim", _) => alone(Self::Trim, "trim"),
            ("drain", _) => alone(Self::Drain, "drain"),
            ("report", _) => alone(Self::Report, "report"),
            ("mergeable", _) => alone(Self::Mergeable, "mergeable"),
            ("subscribe", _) => alone(Self::Subscribe, "subscribe"),
            ("target", [Some(bytes), None, None]) => {
                bytes.parse().map(Self::Target).map_err(|_| BadRequest::WrongWords("target BYTES"))
            }
            ("target", _) => Err(BadRequest::WrongWords("target BYTES")),
            _ => Err(BadRequest::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn requests_are_read() {
        for (message, request) in [
            (&b"get"[..], Request::Get(None)),
            (b"get limit\n", Request::Get(Some("limit"))),
            (b"  set   limit  64M \r\n", Request::Set("limit", "64M")),
            (b"trim", Request::Trim),
            (b"drain", Request::Drain),
            (b"report\n", Request::Report),
            (b"mergeable", Request::Mergeable),
            (b"subscribe", Request::Subscribe),
            (b"target 4096", Request::Target(4096)),
        ] {
            assert_eq!(Request::parse(message), Ok(request));
        }
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (message, bad) in [
            (&b""[..], BadRequest::Unknown),
            (b"\n", BadRequest::Unknown),
            (b"GET", BadRequest::Unknown),
            (b"get a b", BadRequest::WrongWords("get [NAME]")),
            (b"set limit", BadRequest::WrongWords("set NAME VALUE")),
            (b"set limit 1 2", BadRequest::WrongWords("set NAME VALUE")),
            (b"trim now", BadRequest::WrongWords("trim")),
            (b"target", BadRequest::WrongWords("target BYTES")),
            (b"target 4K", BadRequest::WrongWords("target BYTES")),
            (b"target -1", BadRequest::WrongWords("target BYTES")),
            (b"get a\nget b", BadRequest::NotText),
            (b"get \0", BadRequest::NotText),
            (b"get \xc3\xa9", BadRequest::NotText),
            (&[b'a'; 257], BadRequest::TooLong),
        ] {
            assert_eq!(Request::parse(message), Err(bad), "{}", message.escape_ascii());
            assert!(!std::format!("{bad}").is_empty());
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_names_are_of_the_message(message: Vec<u8>) {
            if let Ok(Request::Set(name, value)) = Request::parse(&message) {
                prop_assert!(name.len() + value.len() < message.len() && !name.contains(' '));
            }
        }
    }
}
