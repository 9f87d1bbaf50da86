//! Caches that no process knows: nothing calls them but their program.

use core::ptr::NonNull;

use crate::evictable_cache::entry::header::Content;
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
    /// Nothing here waits for write-back.
    pub fn set_congested(&self, _: bool) {}
}
