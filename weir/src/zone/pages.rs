//! Runs of pages of a zone.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use weir_core::page::PAGE;
use weir_linux::process::heap::HEAP;

use super::Zone;

/// A run of pages of a [`Zone`], given back when dropped. It reads and writes as a slice of bytes.
#[derive(Debug)]
pub struct Pages<'a> {
    zone: &'a Zone,
    run: NonNull<[u8]>,
    zero: bool,
}

// SAFETY: the pages are this value's alone.
unsafe impl Send for Pages<'_> {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for Pages<'_> {}

impl<'a> Pages<'a> {
    pub(super) fn new(zone: &'a Zone, run: NonNull<[u8]>, zero: bool) -> Self {
        Self { zone, run, zero }
    }

    /// Whether all of it read as zero when it was handed out. If not, it holds anything.
    pub fn was_zero(&self) -> bool {
        self.zero
    }

    /// Gives the run up without freeing it: for C, for a device, or for a ring of pointers. See [`Zone::pages_from_raw`].
    ///
    /// ```
    /// let zone = weir::zone::Zone::anonymous(2 << 20)?;
    /// let run = zone.alloc(8192).unwrap().into_raw();
    /// assert_eq!((run.len(), zone.usage().used_bytes), (8192, 8192));
    /// // SAFETY: the run is that of `into_raw`, turned back once.
    /// drop(unsafe { zone.pages_from_raw(run) });
    /// assert_eq!(zone.usage().used_bytes, 0);
    /// # Ok::<(), weir::zone::ZoneError>(())
    /// ```
    pub fn into_raw(self) -> NonNull<[u8]> {
        ManuallyDrop::new(self).run
    }
}

impl Deref for Pages<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped memory of that length, this value's alone; mapped bytes always have a value.
        unsafe { self.run.as_ref() }
    }
}

impl DerefMut for Pages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped memory of that length, this value's alone, and the value is borrowed exclusively.
        unsafe { self.run.as_mut() }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        let (addr, pages) = (self.run.addr().get(), self.run.len() / PAGE);
        let given = HEAP.engine().zone_give(self.zone.0.zone(), addr, pages);
        debug_assert_eq!(given, Ok(()));
    }
}
