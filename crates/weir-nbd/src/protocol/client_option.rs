//! What a client says in the handshake.

use super::constants::OPTION_MAGIC;
use super::wire::Fields;

/// Length of an option's header, bytes.
pub const HEADER: usize = 16;
/// Longest option that is parsed, bytes: a name of 4 KiB, and [`MAX_QUERIES`] queries of 60 bytes.
pub const MAX_OPTION: u32 = 64 << 10;
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
        let mut fields = Fields::new(bytes);
        let magic = fields.u64()?;
        let (option, length) = (fields.u32()?, fields.u32()?);
        (magic == OPTION_MAGIC).then_some(Self { option, length })
    }
}

/// Data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// What the client wants to be told.
    pub wanted: Vec<u16>,
}

impl<'a> ExportRequest<'a> {
    /// `None`: the data is not what the protocol says.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields::new(data);
        let length = fields.u32()?;
        let name = fields.string(length)?;
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Option<_>>()?;
        fields.is_empty().then_some(Self { name, wanted })
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
    pub fn parse(data: &'a [u8]) -> Result<Self, BadQueries> {
        let mut fields = Fields::new(data);
        let mut string = || {
            let length = fields.u32()?;
            fields.string(length)
        };
        let name = string().ok_or(BadQueries::Malformed)?;
        let count = fields.u32().ok_or(BadQueries::Malformed)?;
        if count > MAX_QUERIES {
            return Err(BadQueries::TooMany);
        }
        let mut queries = Vec::new();
        for _ in 0..count {
            let length = fields.u32().ok_or(BadQueries::Malformed)?;
            let query = fields.string(length).ok_or(BadQueries::Malformed)?;
            // Without a colon there is no namespace: it belongs to none that could be skipped.
            queries.push(Some(query).filter(|query| query.contains(':')).ok_or(BadQueries::Malformed)?);
        }
        if fields.is_empty() { Ok(Self { name, queries }) } else { Err(BadQueries::Malformed) }
    }
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

    fn context_request(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.bytes());
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query.bytes());
        }
        data
    }

    #[test]
    fn a_length_that_does_not_fit_is_refused() {
        let good = export_request("disk", &[3]);
        assert_eq!(ExportRequest::parse(&good), Some(ExportRequest { name: "disk", wanted: vec![3] }));
        assert_eq!(ExportRequest::parse(&good[..good.len() - 1]), None);
        assert_eq!(ExportRequest::parse(&[good.as_slice(), &[0]].concat()), None);
        let mut beyond = good;
        beyond[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(ExportRequest::parse(&beyond), None);
    }

    #[test]
    fn strings_are_utf8_without_nul_and_of_bounded_length() {
        assert_eq!(ExportRequest::parse(&export_request("a\0b", &[])), None);
        assert_eq!(ExportRequest::parse(&export_request(&"x".repeat(4097), &[])), None);
        assert!(ExportRequest::parse(&export_request(&"x".repeat(4096), &[])).is_some());
        let mut data = export_request("ab", &[]);
        data[4] = 0xff;
        assert_eq!(ExportRequest::parse(&data), None);
    }

    #[test]
    fn queries_need_a_namespace_and_are_counted() {
        assert_eq!(
            ContextRequest::parse(&context_request("", &["base:", "x-a:b"])),
            Ok(ContextRequest { name: "", queries: vec!["base:", "x-a:b"] })
        );
        assert_eq!(ContextRequest::parse(&context_request("", &["base"])), Err(BadQueries::Malformed));
        assert_eq!(ContextRequest::parse(&context_request("", &["a:"; 1025])), Err(BadQueries::TooMany));
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
