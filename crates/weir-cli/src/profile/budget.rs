//! How much memory one object file may take.
//!
//! A file of another user's may claim anything of itself: sections of zeros that were compressed a thousandfold, sections
//! that all lie on the same bytes, names that overlap. Its length is what it cost its maker. So all that is read of it, that is
//! made of it by decompression, and that is copied, is charged to one budget, which goes by the length.

use object::ReadRef;
use object::read::{ReadCache, ReadCacheOps};
use procfs::Current;
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Bytes of memory for each byte of the file: debug information that is compressed is a third to a tenth of what it was.
const EXPANSION: u64 = 16;
/// Small files may take as much, bytes.
const LEAST: u64 = 16 << 20;
/// None takes more, bytes: the largest programs' debug information is below it.
const MOST: u64 = 4 << 30;
/// Nor more than this part of the memory that is available: 1 / SHARE. Three files are read at a time at most.
const SHARE: u64 = 4;

/// See the module. A clone is the same budget.
#[derive(Clone)]
pub struct Budget(Rc<Inner>);

struct Inner {
    left: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    /// For a file of this length.
    pub fn for_length(length: u64) -> Self {
        let available = procfs::Meminfo::current().ok().and_then(|it| it.mem_available);
        let most = available.map_or(MOST, |available| MOST.min(available / SHARE));
        let left = length.saturating_mul(EXPANSION).max(LEAST).min(most);
        Self(Rc::new(Inner { left: Cell::new(left), is_exceeded: Cell::new(false) }))
    }

    /// Takes so many bytes, if there are as many left.
    pub fn take(&self, bytes: u64) -> Option<()> {
        let left = self.0.left.get().checked_sub(bytes);
        self.0.is_exceeded.set(self.0.is_exceeded.get() || left.is_none());
        left.map(|left| self.0.left.set(left))
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.0.left.get()
    }

    /// Whether more was wanted than there was.
    pub fn is_exceeded(&self) -> bool {
        self.0.is_exceeded.get()
    }
}

/// The bytes of a file, within its budget.
#[derive(Clone, Copy)]
pub struct Bounded<'a> {
    pub cache: &'a ReadCache<Charged>,
    pub budget: &'a Budget,
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    /// The cache makes room for all of it before it reads the first byte.
    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > self.budget.left() {
            self.budget.0.is_exceeded.set(true);
            return Err(());
        }
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

/// A file of which each byte that is read is charged.
pub struct Charged {
    file: File,
    at: u64,
    budget: Budget,
}

impl Charged {
    pub fn new(file: File, budget: Budget) -> Self {
        Self { file, at: 0, budget }
    }
}

impl ReadCacheOps for Charged {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|meta| meta.len()).map_err(drop)
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, ()> {
        self.budget.take(to.len() as u64).ok_or(())?;
        let read = self.file.read_at(to, self.at).map_err(drop)?;
        self.at += read as u64;
        Ok(read)
    }

    fn read_exact(&mut self, to: &mut [u8]) -> Result<(), ()> {
        self.budget.take(to.len() as u64).ok_or(())?;
        self.file.read_exact_at(to, self.at).map_err(drop)?;
        self.at += to.len() as u64;
        Ok(())
    }
}
