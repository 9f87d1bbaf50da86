//! Why a request failed, as the client is told.

use std::borrow::Cow;
use std::io;

/// The error values that the protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Not permitted: a write to a read-only export.
    Permission = 1,
    /// The storage below failed.
    Io = 5,
    /// No memory for the request.
    NoMemory = 12,
    /// The request is not valid.
    Invalid = 22,
    /// Beyond the export's end, or the storage below is full.
    NoSpace = 28,
    /// Longer than the server takes.
    Overflow = 75,
    /// Not as fast as was asked for.
    NotSupported = 95,
}

/// A failed request: the error value, and a line for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// For the client's program.
    pub code: ErrorCode,
    /// For its user; at most [`super::constants::MAX_STRING`] bytes.
    pub message: Cow<'static, str>,
}

impl Fault {
    /// A fault with a fixed message.
    pub const fn new(code: ErrorCode, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }
    /// The request does not follow the protocol.
    pub const fn invalid(message: &'static str) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }
}

impl From<io::Error> for Fault {
    /// Errors of the storage below. The protocol has few values: what has none of its own is an I/O error.
    fn from(error: io::Error) -> Self {
        let code = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => ErrorCode::Permission,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorCode::NoSpace,
            Some(libc::ENOMEM) => ErrorCode::NoMemory,
            _ => ErrorCode::Io,
        };
        Self { code, message: Cow::Owned(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_below_become_the_protocols_own() {
        let code = |errno| Fault::from(io::Error::from_raw_os_error(errno)).code;
        assert_eq!(code(libc::ENOSPC), ErrorCode::NoSpace);
        assert_eq!(code(libc::EDQUOT), ErrorCode::NoSpace);
        assert_eq!(code(libc::EFBIG), ErrorCode::NoSpace);
        assert_eq!(code(libc::EROFS), ErrorCode::Permission);
        assert_eq!(code(libc::ENOMEM), ErrorCode::NoMemory);
        assert_eq!(code(libc::EIO), ErrorCode::Io);
        assert_eq!(code(libc::EBADF), ErrorCode::Io);
        assert_eq!(Fault::from(io::Error::from(io::ErrorKind::UnexpectedEof)).code, ErrorCode::Io);
    }
}
