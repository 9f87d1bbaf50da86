//! Resizes blocks: in place where it can be done, else by a copy.

use core::ptr::{self, null_mut};

use super::Heap;
use super::lookup::Found;
use crate::base::run_class;
use crate::base::size_class::{MAX_SIZE, SIZE};
use crate::base::units::{Class, PAGE, Pages};
use crate::blocks::FIRST_MAPPED;
use crate::platform::Platform;

impl<P: Platform> Heap<P> {
    /// Resizes a block, in place where it can; null when memory is refused (the block is then unchanged). A block of
    /// [`Heap::samples`] counts as freed, and the new one is not sampled.
    ///
    /// # Safety
    /// `block` was allocated here and not freed; `size` is not 0.
    pub unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        if self.stays(block, size) {
            return block;
        }
        let Some(found) = self.lookup(block as usize) else {
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
                pages.bytes()
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
            Found::Run { .. } if size > old => match self.large().map_grown(size) {
                new if new.is_null() => self.alloc(size),
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
        }
        new
    }

    /// Whether a resize to `size` bytes leaves the block as it is: its size class serves that too, or its pages are as many. Told
    /// by the class map and a run's length. Of what is told otherwise (samples, which are of no class, objects of caches, blocks
    /// mapped on their own, wrong pointers) it says no.
    #[inline(always)]
    pub fn stays(&self, block: *mut u8, size: usize) -> bool {
        let window = &self.pages().normal;
        let Some(page) = window.page_of(block as usize) else { return false };
        let class = window.class_of(page);
        match SIZE.get(class.index()) {
            Some(&now) => size.wrapping_sub(1) < now as usize && (size > now as usize / 2 || class == Class(1)),
            None if run_class::contains(class) => {
                let is_whole = (block as usize).is_multiple_of(PAGE);
                is_whole && size > MAX_SIZE && Pages::to_hold(size) == window.run_pages(page)
            }
            None => false,
        }
    }
}
