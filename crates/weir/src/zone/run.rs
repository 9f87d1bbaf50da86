//! A run of pages of a zone.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::backing::Home;
use crate::filling::{Filling, shows_what_is_filled};

/// A run of pages of a [`Zone`](crate::zone::Zone), freed when dropped. It is filled from its beginning, and shows what was
/// filled.
///
/// ```compile_fail,E0308
/// let zone = weir::zone::Zone::anonymous(2 << 20).unwrap();
/// let pages = zone.alloc(4096).unwrap();
/// let stale: &[u8] = &pages;
/// ```
#[derive(Debug)]
pub struct Pages<'a> {
    zone: &'a Home,
    memory: Filling,
    zero: bool,
}

// SAFETY: the pages are this value's alone.
unsafe impl Send for Pages<'_> {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for Pages<'_> {}

impl<'a> Pages<'a> {
    /// # Safety
    /// The run is in use in this zone, and nothing else's. `zero` is true only where the zone's memory comes as zeros, and
    /// nothing was written to the run since it came from the kernel.
    pub(super) unsafe fn new(zone: &'a Home, run: NonNull<[u8]>, zero: bool) -> Self {
        // SAFETY: a run in use is mapped, and this value's as the caller promises. Where the memory is a file's, whoever
        // made the zone promised what others write.
        let memory = unsafe { Filling::new(run) };
        Self { zone, memory, zero }
    }

    shows_what_is_filled!();

    /// Whether all of it read as zero when it was handed out. If not, it holds anything.
    pub fn was_zero(&self) -> bool {
        self.zero
    }

    /// Gives the run up without freeing it: for C, for a device, or for a ring of pointers. See
    /// [`Zone::pages_from_raw`](crate::zone::Zone::pages_from_raw).
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
        ManuallyDrop::new(self).memory.memory()
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.zone.give(self.memory.memory());
    }
}
