//! Messages of a client in the handshake.

use super::constants::{MAX_STRING, OPTION_MAGIC};
use bytes::Buf;

/// Length of an option's header, bytes.
pub const HEADER: usize = 16;
/// Longest option that is parsed, bytes: a name of 4 KiB, and some queries. It is in no budget, and clients that have not
/// chosen an export may be many.
pub const MAX_OPTION: u32 = 8 << 10;
/// Most queries in one option for metadata contexts.
const MAX_QUERIES: u32 = 1024;

/// An option's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// Length of its data, bytes.
    pub length: u32,
}

impl OptionHeader {
    /// `None`: these bytes are no option.
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let mut fields = &bytes[..];
        let (magic, option, length) = (fields.get_u64(), fields.get_u32(), fields.get_u32());
        (magic == OPTION_MAGIC).then_some(Self { option, length })
    }
}

/// Data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// The kinds of information that the client wants to be told.
    pub wanted: Vec<u16>,
}

impl<'a> ExportRequest<'a> {
    /// `None`: the data is not what the protocol says.
    pub fn parse(mut data: &'a [u8]) -> Option<Self> {
        let name = string(&mut data)?;
        let count = data.try_get_u16().ok()?;
        let wanted = (0..count).map(|_| data.try_get_u16()).collect::<Result<_, _>>().ok()?;
        data.is_empty().then_some(Self { name, wanted })
    }
}

/// Why the data of an option for metadata contexts was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQueries {
    /// Not what the protocol says.
    Malformed,
    /// Too many queries.
    TooMany,
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRequest<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// Which contexts: `namespace:leaf`.
    pub queries: Vec<&'a str>,
}

impl<'a> ContextRequest<'a> {
    /// Parses an option's data.
    pub fn parse(mut data: &'a [u8]) -> Result<Self, BadQueries> {
        let name = string(&mut data).ok_or(BadQueries::Malformed)?;
        let count = data.try_get_u32().map_err(|_| BadQueries::Malformed)?;
        if count > MAX_QUERIES {
            return Err(BadQueries::TooMany);
        }
        // Without a colon there is no namespace: it belongs to none that could be skipped.
        let query = |_| string(&mut data).filter(|query| query.contains(':'));
        let queries = (0..count).map(query).collect::<Option<_>>().ok_or(BadQueries::Malformed)?;
        if data.is_empty() { Ok(Self { name, queries }) } else { Err(BadQueries::Malformed) }
    }
}

/// Takes a string, with its length before it, off the front of `data`: UTF-8, no NUL, no longer than the protocol allows.
fn string<'a>(data: &mut &'a [u8]) -> Option<&'a str> {
    let length = data.try_get_u32().ok()? as usize;
    let (head, rest) = data.split_at_checked(length).filter(|_| length <= MAX_STRING)?;
    *data = rest;
    std::str::from_utf8(head).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export_request(name: &str, wanted: &[u16]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.bytes());
        data.extend((wanted.len() as u16).to_be_bytes());
        data.extend(wanted.iter().flat_map(|wanted| wanted.to_be_bytes()));
        data
    }

    proptest! {
        #[test]
        fn what_was_written_is_parsed(name in "[a-z/é]{0,40}", wanted in prop::collection::vec(any::<u16>(), 0..9)) {
            let data = export_request(&name, &wanted);
            prop_assert_eq!(ExportRequest::parse(&data), Some(ExportRequest { name: &name, wanted }));
        }

        #[test]
        fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ExportRequest::parse(&data);
            let _ = ContextRequest::parse(&data);
        }
    }
}
