//! Requests: their header, and which of them are valid.

use super::constants::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, command, command_flag};
use super::fault::{ErrorCode, Fault};
use super::reply::Style;
use bytes::Buf;

/// Length of a compact request's header, bytes.
pub const COMPACT: usize = 28;
/// Length of an extended request's header, bytes.
pub const EXTENDED: usize = 32;

/// A request's header, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Command flags.
    pub flags: u16,
    /// Which command.
    pub kind: u16,
    /// Chosen by the client, returned with each reply.
    pub cookie: u64,
    /// Where in the export, bytes.
    pub offset: u64,
    /// How much of the export, or of payload, bytes.
    pub length: u64,
    /// Length of the payload that follows, bytes.
    pub payload: u64,
}

impl Header {
    /// `None`: these bytes are no request.
    pub fn parse(mut bytes: &[u8], style: Style) -> Option<Self> {
        let is_extended = style == Style::Extended;
        if bytes.len() < if is_extended { EXTENDED } else { COMPACT } {
            return None;
        }
        let (magic, flags, kind) = (bytes.get_u32(), bytes.get_u16(), bytes.get_u16());
        let (cookie, offset) = (bytes.get_u64(), bytes.get_u64());
        let length = if is_extended { bytes.get_u64() } else { bytes.get_u32().into() };
        let has_payload = match is_extended {
            true => flags & command_flag::PAYLOAD_LEN != 0,
            false => kind == command::WRITE,
        };
        let payload = if has_payload { length } else { 0 };
        let expected = if is_extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        (magic == expected).then_some(Self { flags, kind, cookie, offset, length, payload })
    }
}

/// A valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Data of a range, in one chunk if so asked.
    Read { offset: u64, length: u32, unfragmented: bool },
    /// New data for a range, durable before the reply if so asked.
    Write { offset: u64, length: u32, durable: bool },
    /// The end of the session.
    Disconnect,
    /// All that was written has to be durable.
    Flush,
    /// A range is no longer needed.
    Trim { offset: u64, length: u64, durable: bool },
    /// A range will be read soon.
    Cache { offset: u64, length: u64 },
    /// Zeroes for a range: with storage behind them, only if that is fast.
    WriteZeroes { offset: u64, length: u64, durable: bool, no_hole: bool, fast: bool },
    /// Which parts of a range are holes; the first extent alone if so asked.
    BlockStatus { offset: u64, length: u64, one: bool },
}

/// Terms that were agreed in the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The replies' form.
    pub style: Style,
    /// The export's size, bytes.
    pub size: u64,
    /// The export cannot be written.
    pub read_only: bool,
    /// The client has chosen `base:allocation`.
    pub has_allocation: bool,
    /// Longest data of one request, bytes.
    pub max_payload: u32,
}

const BEYOND_END: &str = "the range ends beyond the export's end";

impl Terms {
    /// Is this request valid?
    pub fn check(&self, header: &Header) -> Result<Command, Fault> {
        let Header { flags, offset, length, .. } = *header;
        self.check_flags(header)?;
        let durable = flags & command_flag::FUA != 0;
        let is_write = matches!(header.kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if is_write && self.read_only {
            return Err(Fault::new(ErrorCode::Permission, "the export is read-only"));
        }
        match header.kind {
            command::READ => {
                let length = self.data_length(length).map_err(|_| self.too_long_read())?;
                self.in_range(header, ErrorCode::Invalid)?;
                Ok(Command::Read { offset, length, unfragmented: flags & command_flag::DF != 0 })
            }
            command::WRITE => {
                let length = self.data_length(length)?;
                self.in_range(header, ErrorCode::NoSpace)?;
                Ok(Command::Write { offset, length, durable })
            }
            command::DISC => Ok(Command::Disconnect),
            command::FLUSH if offset != 0 || length != 0 => {
                Err(Fault::invalid("a flush has neither an offset nor a length"))
            }
            command::FLUSH => Ok(Command::Flush),
            command::TRIM => {
                self.in_range(header, ErrorCode::Invalid)?;
                Ok(Command::Trim { offset, length, durable })
            }
            command::CACHE => {
                self.in_range(header, ErrorCode::Invalid)?;
                Ok(Command::Cache { offset, length })
            }
            command::WRITE_ZEROES => {
                self.in_range(header, ErrorCode::NoSpace)?;
                let no_hole = flags & command_flag::NO_HOLE != 0;
                let fast = flags & command_flag::FAST_ZERO != 0;
                Ok(Command::WriteZeroes { offset, length, durable, no_hole, fast })
            }
            command::BLOCK_STATUS => {
                if !self.has_allocation {
                    return Err(Fault::invalid("no metadata context was chosen in the handshake"));
                }
                if length == 0 {
                    return Err(Fault::invalid("the status of no bytes"));
                }
                self.in_range(header, ErrorCode::Invalid)?;
                Ok(Command::BlockStatus { offset, length, one: flags & command_flag::REQ_ONE != 0 })
            }
            _ => Err(Fault::invalid("unknown command")),
        }
    }

    /// FUA is offered, so it has to be accepted with every command.
    fn check_flags(&self, header: &Header) -> Result<(), Fault> {
        let is_extended = self.style == Style::Extended;
        let own = match header.kind {
            command::READ if self.style != Style::Simple => command_flag::DF,
            command::WRITE if is_extended => command_flag::PAYLOAD_LEN,
            command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => 0,
        };
        if header.flags & !(own | command_flag::FUA) != 0 {
            return Err(Fault::invalid("a flag that this command does not have"));
        }
        if is_extended && header.kind == command::WRITE && header.flags & command_flag::PAYLOAD_LEN == 0 {
            return Err(Fault::invalid("a write without its payload"));
        }
        Ok(())
    }

    fn data_length(&self, length: u64) -> Result<u32, Fault> {
        let length = u32::try_from(length).ok().filter(|length| *length <= self.max_payload);
        length.ok_or(Fault::invalid("longer than the longest request"))
    }

    fn too_long_read(&self) -> Fault {
        // Without structured replies clients do not expect EOVERFLOW.
        let code = if self.style == Style::Simple { ErrorCode::Invalid } else { ErrorCode::Overflow };
        Fault::new(code, "longer than the longest request")
    }

    fn in_range(&self, header: &Header, code: ErrorCode) -> Result<(), Fault> {
        let end = header.offset.checked_add(header.length);
        if end.is_some_and(|end| end <= self.size) { Ok(()) } else { Err(Fault::new(code, BEYOND_END)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TERMS: Terms =
        Terms { style: Style::Structured, size: 1 << 20, read_only: false, has_allocation: true, max_payload: 1 << 16 };

    fn header(kind: u16, flags: u16, offset: u64, length: u64) -> Header {
        Header { flags, kind, cookie: 7, offset, length, payload: 0 }
    }

    fn code(terms: &Terms, header: &Header) -> Option<ErrorCode> {
        terms.check(header).err().map(|fault| fault.code)
    }

    #[test]
    fn flags_belong_to_commands() {
        use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
        for (kind, own) in [
            (command::READ, DF),
            (command::WRITE, 0),
            (command::FLUSH, 0),
            (command::TRIM, 0),
            (command::CACHE, 0),
            (command::WRITE_ZEROES, NO_HOLE | FAST_ZERO),
            (command::BLOCK_STATUS, REQ_ONE),
        ] {
            for bit in 0..16 {
                let length = if kind == command::FLUSH { 0 } else { 512 };
                let refused = code(&TERMS, &header(kind, 1 << bit, 0, length)).is_some();
                assert_eq!(refused, (1 << bit) & (own | FUA) == 0, "command {kind}, flag {bit}");
            }
        }
        let simple = Terms { style: Style::Simple, ..TERMS };
        assert_eq!(code(&simple, &header(command::READ, DF, 0, 512)), Some(ErrorCode::Invalid));
        let extended = Terms { style: Style::Extended, ..TERMS };
        assert_eq!(code(&extended, &header(command::WRITE, 0, 0, 512)), Some(ErrorCode::Invalid));
        assert_eq!(code(&extended, &header(command::WRITE, PAYLOAD_LEN, 0, 512)), None);
        assert_eq!(code(&extended, &header(command::TRIM, PAYLOAD_LEN, 0, 512)), Some(ErrorCode::Invalid));
    }

    proptest! {
        #[test]
        fn no_valid_command_leaves_the_export(bytes in prop::collection::vec(any::<u8>(), 32), kind in 0u16..9) {
            for style in [Style::Structured, Style::Extended] {
                let mut bytes = bytes.clone();
                let magic = if style == Style::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
                bytes[..4].copy_from_slice(&magic.to_be_bytes());
                bytes[6..8].copy_from_slice(&kind.to_be_bytes());
                let header = Header::parse(&bytes, style).expect("the magic is right");
                let end = match (Terms { style, ..TERMS }).check(&header) {
                    Ok(Command::Read { offset, length, .. } | Command::Write { offset, length, .. }) => {
                        prop_assert!(length <= TERMS.max_payload);
                        offset + u64::from(length)
                    }
                    Ok(
                        Command::Trim { offset, length, .. }
                        | Command::Cache { offset, length }
                        | Command::WriteZeroes { offset, length, .. }
                        | Command::BlockStatus { offset, length, .. },
                    ) => offset + length,
                    _ => 0,
                };
                prop_assert!(end <= TERMS.size);
            }
        }
    }
}
