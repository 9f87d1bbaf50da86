//! Why there is no zone, or a range of it does not go out of use.

use core::fmt;
use weir_linux::os::syscall::Errno;

use super::geometry::{BLOCK, MAX_SIZE};

/// A refusal by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsError(Errno);

impl OsError {
    pub(super) fn new(why: Errno) -> Self {
        Self(why)
    }

    /// The number that `errno(3)` lists, as `std::io::Error::from_raw_os_error` takes it.
    pub fn errno(self) -> i32 {
        self.0.0
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.name(), self.0.0)
    }
}

impl core::error::Error for OsError {}

/// Why there is no zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZoneError {
    /// The size is 0, no multiple of [`BLOCK`], or more than the address space has.
    Size {
        /// The size that was wanted, bytes.
        size: usize,
    },
    /// The file is shorter than the zone.
    FileTooShort {
        /// The size that was wanted, bytes.
        size: usize,
        /// The file's length, bytes.
        file: u64,
    },
    /// The kernel refused the memory.
    Os(OsError),
}

impl From<OsError> for ZoneError {
    fn from(why: OsError) -> Self {
        Self::Os(why)
    }
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size } => {
                write!(f, "zone of {size} bytes: a zone's size is a multiple of {BLOCK}, from {BLOCK} to {MAX_SIZE}")
            }
            Self::FileTooShort { size, file } => write!(f, "zone of {size} bytes: the file has {file}"),
            Self::Os(why) => write!(f, "the kernel refused the zone's memory: {why}"),
        }
    }
}

impl core::error::Error for ZoneError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Os(why) => Some(why),
            _ => None,
        }
    }
}

/// Why a range of a zone was not taken out of use, or put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfflineError {
    /// The range is empty, not whole blocks of [`BLOCK`] bytes, or not all of it is in the zone.
    Range {
        /// First byte of the range.
        start: usize,
        /// End of the range.
        end: usize,
        /// The zone's size.
        size: usize,
    },
    /// Memory in the range is in use.
    InUse {
        /// So many bytes of it.
        bytes: usize,
    },
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { start, end, size } => {
                write!(f, "range {start}..{end}: must be multiples of {BLOCK} within 0..{size}, and not empty")
            }
            Self::InUse { bytes } => write!(f, "{bytes} bytes of the range are in use"),
        }
    }
}

impl core::error::Error for OfflineError {}
