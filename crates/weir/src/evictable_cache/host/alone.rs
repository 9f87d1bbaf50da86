//! Caches that no process knows: nothing calls them but their program.

use core::ptr::NonNull;

use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::victims::Victims;
use crate::evictable_cache::parts::Part;
use crate::evictable_cache::shared::Shared;

/// # Safety
/// None.
pub unsafe fn enter<C: Content>(_: NonNull<Shared<C>>) -> bool {
    true
}

/// # Safety
/// None.
pub unsafe fn stop<C: Content>(_: &Shared<C>) {}

/// # Safety
/// None.
pub unsafe fn leave<C: Content>(_: &Shared<C>) {}

impl<C: Content> Shared<C> {
    /// Evicts as the program asks for it. What its allocator does with that is its own affair.
    pub fn evict_for_program(&self, bytes: usize) -> usize {
        self.evict(bytes, Part::All, Victims::tell_and_drop)
    }

    /// Nothing here waits for write-back.
    pub fn set_congested(&self, _: bool) {}
}
