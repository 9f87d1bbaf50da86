//! A zone behind its lock, and what of it is known without the lock.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::FreeAreas;
use crate::base::units::Pages;
use crate::platform::Wait;
use crate::platform::lock::{Guard, Lock};
use crate::platform::rank;

/// A zone behind its lock.
pub struct Zone {
    areas: Lock<FreeAreas, { rank::ZONE }>,
    resident: Resident,
}

/// Pages that are in use, or free and backed, or on their way out of the zone. They have a line of their own: it stays in the
/// caches of those who read it as long as nothing becomes resident and nothing is released.
#[repr(align(64))]
struct Resident(AtomicUsize);

impl Zone {
    /// A zone with its lock open.
    pub const fn new(areas: FreeAreas) -> Self {
        let resident = Resident(AtomicUsize::new(areas.used.0 + areas.idle.0));
        Self { areas: Lock::new(areas), resident }
    }

    /// Takes the lock, waiting for it if it must.
    #[inline]
    pub fn lock<'a, P: Wait>(&'a self, platform: &'a P) -> ZoneTurn<'a, P> {
        ZoneTurn { areas: self.areas.lock(platform), resident: &self.resident.0 }
    }

    /// Takes the lock if it is free now.
    pub(crate) fn try_lock<'a, P: Wait>(&'a self, platform: &'a P) -> Option<ZoneTurn<'a, P>> {
        Some(ZoneTurn { areas: self.areas.try_lock(platform)?, resident: &self.resident.0 })
    }

    /// The lock alone, for those who take all of its rank.
    pub(in crate::pages) fn lock_of_rank(&self) -> &Lock<FreeAreas, { rank::ZONE }> {
        &self.areas
    }

    /// Pages in use, free and backed, or on their way out, as the last turn left them. The lock orders nothing here. Whoever is to
    /// see what a thread took must have synchronized with that thread since.
    pub(in crate::pages) fn resident(&self) -> Pages {
        Pages(self.resident.0.load(Relaxed))
    }
}

/// Holds the lock of a [`Zone`].
pub struct ZoneTurn<'a, P: Wait> {
    areas: Guard<'a, FreeAreas, P, { rank::ZONE }>,
    resident: &'a AtomicUsize,
}

impl<P: Wait> Deref for ZoneTurn<'_, P> {
    type Target = FreeAreas;
    #[inline]
    fn deref(&self) -> &FreeAreas {
        &self.areas
    }
}

impl<P: Wait> DerefMut for ZoneTurn<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut FreeAreas {
        &mut self.areas
    }
}

impl<P: Wait> Drop for ZoneTurn<'_, P> {
    /// The lock is given back after this.
    #[inline]
    fn drop(&mut self) {
        let resident = (self.areas.used + self.areas.idle + self.areas.leaving).0;
        if self.resident.load(Relaxed) != resident {
            self.resident.store(resident, Relaxed);
        }
    }
}
