//! The protocol's numbers, written down a second time: a slip in the server's own is seen.

pub const NBDMAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
pub const IHAVEOPT: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub const OPTION_REPLY: u64 = 0x3e889045565a9;
pub const REQUEST: u32 = 0x25609513;
pub const EXTENDED_REQUEST: u32 = 0x21e41c71;
pub const SIMPLE_REPLY: u32 = 0x67446698;
pub const STRUCTURED_REPLY: u32 = 0x668e33ef;
pub const EXTENDED_REPLY: u32 = 0x6e8a278c;

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED: u32 = 8;
pub const LIST_META: u32 = 9;
pub const SET_META: u32 = 10;
pub const EXTENDED: u32 = 11;

pub const ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META: u32 = 4;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_POLICY: u32 = 0x8000_0002;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_TLS_REQD: u32 = 0x8000_0005;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;
pub const ERR_EXT_HEADER_REQD: u32 = 0x8000_000a;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const ZEROES: u16 = 6;
pub const STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;
pub const PAYLOAD_LEN: u16 = 32;

pub const DATA: u16 = 1;
pub const HOLE: u16 = 2;
pub const BLOCK_STATUS: u16 = 5;
pub const BLOCK_STATUS_EXT: u16 = 6;
pub const ERROR: u16 = 0x8001;
pub const ERROR_OFFSET: u16 = 0x8002;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;
pub const ENOTSUP: u32 = 95;
