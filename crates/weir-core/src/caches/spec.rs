//! What a user cache is made from, and why one cannot be made or set.

use crate::base::units::PAGE;
use crate::caches::geometry::{MAX_OBJECT, MIN_OBJECT};

/// Bytes of a cache's name.
pub const NAME_BYTES: usize = 32;

/// Brings an object of a new slab into its constructed state: `object`, its size, the cache's data. `false`: it cannot.
/// It may unwind: then the slab goes back, and so far as it was initialised it is finalized before.
pub type Init = unsafe extern "C-unwind" fn(*mut u8, usize, *mut u8) -> bool;
/// The finalizer: undoes [`Init`] before the slab goes back. It may not unwind: the thread that calls it has no caller
/// to pass a panic to.
pub type Fini = unsafe extern "C" fn(*mut u8, usize, *mut u8);

/// What a cache does beyond handing out objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Objects are zero when they are handed out.
    pub zero: bool,
    /// No trim, drain or pressure touches the cache.
    pub no_reclaim: bool,
}

/// What a new cache is to be.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Its name in statistics; cut at 31 bytes.
    pub name: &'a [u8],
    /// Object size, bytes: 1 to [`MAX_OBJECT`]; rounded up to the alignment, and to 16.
    pub size: usize,
    /// Alignment of objects, a power of two up to a page; at least 8.
    pub align: usize,
    /// What it does beyond that.
    pub flags: Flags,
    /// For each object of a new slab.
    pub init: Option<Init>,
    /// For each object before its slab goes back.
    pub fini: Option<Fini>,
    /// The last argument of both.
    pub data: *mut u8,
    /// Objects that may be out at a time; `usize::MAX`: any number. A limit costs each call an atomic addition.
    pub limit: usize,
}

impl Default for Spec<'_> {
    fn default() -> Self {
        Self {
            name: b"",
            size: MIN_OBJECT,
            align: 8,
            flags: Flags::default(),
            init: None,
            fini: None,
            data: core::ptr::null_mut(),
            limit: usize::MAX,
        }
    }
}

/// Why a cache could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeError {
    /// The object size is 0 or above [`MAX_OBJECT`].
    Size,
    /// The alignment is not a power of two, or above a page.
    Align,
    /// There is no memory for what goes with it.
    NoMemory,
}

impl core::fmt::Display for MakeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Size => write!(f, "an object of a cache has 1 to {MAX_OBJECT} bytes"),
            Self::Align => write!(f, "the alignment of a cache is a power of two up to {PAGE}"),
            Self::NoMemory => f.write_str("there is no memory for the cache"),
        }
    }
}

impl core::error::Error for MakeError {}

/// A setting of a cache was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The cache was made without a limit: its objects are not counted.
    Uncounted,
    /// There is no memory for the reserve; what could be had of it is kept.
    NoMemory,
}

impl core::fmt::Display for LimitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Uncounted => "the cache was made without a limit, so its objects are not counted",
            Self::NoMemory => "there is no memory for the reserve",
        })
    }
}

impl core::error::Error for LimitError {}
