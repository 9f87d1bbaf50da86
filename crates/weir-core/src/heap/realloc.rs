//! Resizes blocks: in place where it can be done, else by a copy.

use core::ptr::{self, null_mut};

use super::Heap;
use super::lookup::Found;
use crate::base::run_class;
use crate::base::size_class::{MAX_SIZE, SIZE};
use crate::base::units::{Class, PAGE, Pages};
use crate::blocks::FIRST_MAPPED;
use crate::platform::Platform;

/// A run may have this part of its pages more than its size needs: as much as lies between two run classes.
const SPARE_PART: usize = 8;
/// A run that grows by this part of its length or less grows by small steps.
const SMALL_STEP: usize = 4;

impl<P: Platform> Heap<P> {
    /// Resizes a block, in place where it can; null when more memory is refused (the block is then unchanged). A block of
    /// [`Heap::samples`] counts as freed, and the new one is not sampled.
    ///
    /// # Safety
    /// `block` was allocated here and not freed; `size` is not 0.
    pub unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        if self.stays(block, size) {
            return block;
        }
        let mapped = || self.mapped().resize_in_place(block as usize, size);
        let found = match self.lookup_pages(block as usize).ok_or_else(mapped) {
            Ok(found) => found,
            Err(Some((_, true))) => {
                self.samples().unsample(block);
                return block;
            }
            Err(found) => found.map(|(len, _)| Found::Mapped(len)),
        };
        let Some(found) = found else {
            self.platform().invalid_free(self.large().why_invalid(block as usize), block as usize, 0);
            return null_mut();
        };
        let old = match found {
            Found::Object(number) => {
                let now = self.caches.size_of(number);
                if size <= now && size > now / 2 {
                    // Of a cache of the program's.
                    return block;
                }
                now
            }
            Found::Run { page, pages, kind } => {
                if (self.large().is_held_low(kind, page) || !self.mapped().outgrows(pages, size))
                    && self.large().resize_run(kind, page, pages, size)
                {
                    self.samples().unsample(block);
                    return block;
                }
                pages.length()
            }
            Found::Mapped(len) => {
                if size >= FIRST_MAPPED {
                    return self.samples().resize_sampled(block, || self.large().resize_mapped(block, len, size));
                }
                len
            }
        };
        let new = match found {
            Found::Run { kind, page, .. } if self.large().is_held_low(kind, page) => self.alloc_low32(size),
            Found::Run { pages, .. } if size > old => match self.large().map_grown(size) {
                new if new.is_null() => self.alloc_grown(pages, size),
                new => new,
            },
            _ => self.alloc(size),
        };
        if !new.is_null() {
            // SAFETY: the old block holds `old` bytes and the new one at least `size`; they are distinct, as the old one is still
            // allocated. The caller gives the old one up by this call, so it may be freed.
            unsafe {
                ptr::copy_nonoverlapping(block, new, old.min(size));
                self.free(block);
            }
        } else if size <= old {
            // Programs do not expect that less may be refused: the block stays as it is.
            self.samples().unsample(block);
            return block;
        }
        new
    }

    /// A block for a run of `pages` pages that grows to `size` bytes; null when memory is refused. Nothing is reclaimed for its
    /// slack.
    fn alloc_grown(&self, pages: Pages, size: usize) -> *mut u8 {
        let roomy = self.with_slack(pages, size);
        let new = if roomy > size { self.large().alloc_run_at_hand(roomy) } else { null_mut() };
        if new.is_null() { self.alloc(size) } else { new }
    }

    /// Bytes to have for a run of `pages` pages that grows to `size` bytes. A buffer that grows by small steps gets what its class
    /// serves at once, so that not each step costs a look at the zone, or a copy. What it does not touch is no memory, but counts
    /// as some: so there is no slack under a hard limit.
    pub(super) fn with_slack(&self, pages: Pages, size: usize) -> usize {
        let is_step = Pages::to_hold(size) <= pages + pages / SMALL_STEP && self.pages().hard_limit().is_none();
        let class = if is_step { run_class::class_of_run(size) } else { None };
        class.map_or(size, run_class::size_of_class)
    }

    /// Whether a resize to `size` bytes leaves the block as it is: its size class serves that too, or a run has just the pages or
    /// few more. Told by the class map and a run's length. Of what is told otherwise (samples, which are of no class, objects of
    /// caches, blocks mapped on their own, wrong pointers) it says no.
    #[inline(always)]
    pub fn stays(&self, block: *mut u8, size: usize) -> bool {
        let window = &self.pages().normal;
        let Some(page) = window.page_of(block as usize) else { return false };
        let class = window.class_of(page);
        match SIZE.get(class.index()) {
            Some(&now) => size.wrapping_sub(1) < now as usize && (size > now as usize / 2 || class == Class(1)),
            None if run_class::contains(class) => {
                let (pages, wanted) = (window.run_pages(page), Pages::to_hold(size));
                let is_whole = (block as usize).is_multiple_of(PAGE);
                is_whole && size > MAX_SIZE && pages.0.wrapping_sub(wanted.0) <= pages.0 / SPARE_PART
            }
            None => false,
        }
    }
}
