//! Initialised objects: a user cache's `init` is called for each object of a new slab, its finalizer (`fini`) before
//! the slab goes back.
//!
//! In between an object keeps its contents while it is free, so the pages of such slabs are never reported from inside.
//! A finalizer is a program's own code. So it is called with no lock held, and only where a program's code may run:
//!
//! - inside [`crate::heap::user_caches::UserCaches::destroy`];
//! - inside [`crate::heap::Heap::purge`];
//! - inside [`crate::heap::user_caches::UserCaches::run_finalizers`], for which the platform has a thread of the
//!   program's kind.
//!
//! A slab whose finalizers run is on no list, and the end of the cache waits for them ([`crate::caches::cache::life`]).

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use crate::base::units::PAGE;
use crate::base::unwind::OnUnwind;
use crate::caches::cache::Cache;
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::{FIRST_USER, Geometry};
use crate::caches::heap_caches::Caches;
use crate::caches::slab::Empty;
use crate::caches::user_cache::spec::UserPart;
use crate::caches::user_cache::spec::{Fini, Init};
use crate::platform::Platform;

impl UserPart {
    /// Initialises the objects of a new slab. `false`: `init` failed for one, and the others were finalized again.
    pub(crate) fn init_objects(&self, slab: *mut u8, g: &Geometry) -> bool {
        let init = self.init.load(Relaxed);
        if init.is_null() {
            return true;
        }
        // SAFETY: it is not null, so it was stored by `set` from a function of this very type.
        let init = unsafe { core::mem::transmute::<*mut (), Init>(init) };
        let (size, data) = (g.size as usize, self.data.load(Relaxed));
        let done = Cell::new(0);
        // Dropped on unwinding, and where `init` failed: the objects before are finalized.
        let undo = OnUnwind(|| self.finalize_objects(slab, size, done.get()));
        for i in 0..usize::from(g.objects) {
            // SAFETY: the slab is on no list yet, so the object is this thread's alone, and `size` bytes long. The
            // pointer and the function came together in the cache's `Spec`, from a caller that answers for both.
            if !unsafe { init(slab.wrapping_add(i * size), size, data) } {
                return false;
            }
            done.set(i + 1);
        }
        core::mem::forget(undo);
        true
    }

    /// Calls the finalizer for the first `count` objects of a slab.
    fn finalize_objects(&self, slab: *mut u8, size: usize, count: usize) {
        let fini = self.fini.load(Relaxed);
        if fini.is_null() {
            return;
        }
        // SAFETY: it is not null, so it was stored by `set` from a function of this very type.
        let fini = unsafe { core::mem::transmute::<*mut (), Fini>(fini) };
        let data = self.data.load(Relaxed);
        for i in 0..count {
            // SAFETY: the slab is on no list and its first `count` objects are initialised, so this one is this
            // thread's alone. The pointer and the function came together in the cache's `Spec`, from a caller that
            // answers for both.
            unsafe { fini(slab.wrapping_add(i * size), size, data) };
        }
    }
}

impl<P: Platform> Caches<P> {
    /// Calls the finalizers of empty slabs' objects and gives the slabs back; returns bytes. Calls the caches' own
    /// functions: to be called where a program's code may run, by a thread that holds nothing of the program's.
    pub(crate) fn run_finalizers(&self) -> usize {
        let mut bytes = 0;
        for cache in self.table.numbers().filter(|&number| number >= FIRST_USER).map(|number| self.table.get(number)) {
            for domain in cache.domains() {
                while let Some(slab) = self.next_to_finalize(cache, domain) {
                    bytes += usize::from(cache.shape.get().pages) * PAGE;
                    self.finalize_slab(cache, slab);
                    cache.life.end_finalizers(&self.pages.platform);
                }
            }
        }
        bytes
    }

    /// An empty slab of a live cache with a finalizer; the cache cannot be destroyed before its finalizers have ended.
    fn next_to_finalize(&self, cache: &Cache, domain: &Domain) -> Option<Empty> {
        if !cache.user.has_finalizer() {
            return None;
        }
        // Under the lock it is asked again: the number may have become another cache's since.
        let _batch = self.pages.batch(0);
        if !cache.is_live() || !cache.user.has_finalizer() || cache.user.is_exempt() {
            return None;
        }
        let slab = self.next_empty(cache, domain)?;
        cache.life.begin_finalizers();
        Some(slab)
    }

    /// Takes an empty slab off its list, as far as the cache's reserve lets it go.
    pub(super) fn next_empty(&self, cache: &Cache, domain: &Domain) -> Option<Empty> {
        let (g, reserve) = (cache.shape.get(), cache.user.reserve.load(Relaxed));
        domain.slabs.lock(&self.pages.platform).take_empty(&self.pages.normal, &g, reserve)
    }

    /// Finalizes the objects of an empty slab that is on no list any more, and gives it back.
    pub(super) fn finalize_slab(&self, cache: &Cache, slab: Empty) {
        let g = cache.shape.get();
        let first = self.pages.normal.addr_of(slab.page) as *mut u8;
        cache.user.finalize_objects(first, g.size as usize, g.objects.into());
        self.give_slab(&g, slab);
    }
}
