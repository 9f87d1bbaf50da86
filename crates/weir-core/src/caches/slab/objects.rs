//! Objects come from a cache's slabs and go back to them a batch at a time. For each slab there is one look at its
//! header, and one change of its count of free objects and of its list. For each word of its bitmap there is one store.

use core::sync::atomic::Ordering::Relaxed;

use crate::base::invalid_free::InvalidFree;
use crate::base::units::{PageNo, Pages};
use crate::caches::geometry::{Geometry, NUMBER_WORD};
use crate::caches::slab::lists::{NEW, SlabLists, list_of};
use crate::caches::slab::pieces::{Piece, Pieces};
use crate::caches::slab::{Slab, State, is_slab_page};
use crate::pages::window::Window;

impl SlabLists {
    /// Takes up to `most` free objects of the fullest slabs, ascending within each, into `out`; returns how many there
    /// were. `most` is at most [`MAX_BATCH`](crate::caches::geometry::MAX_BATCH).
    pub fn take(&mut self, window: &Window, g: &Geometry, most: usize, out: &mut Pieces) -> usize {
        let mut n = 0;
        while n < most {
            let Some(&page) = self.heads.iter().find(|&&h| h != PageNo::NONE) else { break };
            let slab = Slab { window, page };
            let got = self.take_from(slab, g, most - n, out);
            n += got;
            self.relist(slab, g, slab.free() - got as u32, slab.look());
        }
        self.free -= n;
        n
    }

    /// Takes up to `most` objects out of `slab`'s bitmap, lowest first; pages they lie on are no longer reported.
    /// Returns how many.
    pub(super) fn take_from(&mut self, slab: Slab<'_>, g: &Geometry, most: usize, out: &mut Pieces) -> usize {
        let (reported, merged, mut n, mut touched) = (slab.reported(), self.merged_pages(slab, g), 0, 0);
        for word in 0..usize::from(g.objects).div_ceil(32) {
            let free = slab.get(g.header_words() + word);
            if free == 0 {
                continue;
            }
            let taken = lowest(free, most - n);
            slab.set(g.header_words() + word, free & !taken);
            out.push(slab.page, word as u16, taken);
            n += taken.count_ones() as usize;
            if reported | merged != 0 {
                touched |= slab.pages_of(g, word, taken);
            }
            if n == most {
                break;
            }
        }
        let touched = if reported & touched == 0 { touched } else { slab.around(touched) };
        let again = (reported & touched).count_ones() as usize;
        if again > 0 {
            slab.set(3, reported & !touched);
            self.reported -= again;
            let lately = self.recent.taken(Pages(again));
            self.fresh += Pages(again - lately.pages as usize);
            self.again = self.again.and(lately);
        }
        self.leave(slab, g, merged & touched);
        n
    }

    /// Takes the objects of a batch back, slab by slab. Slabs may be empty then: see [`SlabLists::take_empty`]. Returns
    /// whether all were in use; if not, `batch` keeps those that were not.
    ///
    /// Not inlined: it has the registers to itself.
    #[inline(never)]
    pub fn give(&mut self, window: &Window, g: &Geometry, batch: &mut Pieces) -> bool {
        let (mut given, mut is_whole) = (0, true);
        let class = g.class();
        let mut rest = batch.all();
        while let Some(&Piece { page, .. }) = rest.first() {
            let slab = Slab { window, page };
            let state_word = slab.state_word();
            let state = State(state_word.load(Relaxed));
            // Otherwise another thread has just emptied it, and its pages may be of another cache by now.
            let is_here = window.class_of(page) == class
                && state.class() == class
                && (!g.is_numbered() || slab.get(NUMBER_WORD) == g.number);
            let (mut n, mut done) = (0, 0);
            while let Some(piece) = rest.get_mut(done)
                && piece.page == page
            {
                done += 1;
                if !is_here {
                    is_whole = false;
                    continue;
                }
                let word = window.word(page, g.header_words() + usize::from(piece.word));
                let free = word.load(Relaxed);
                word.store(free | piece.mask, Relaxed);
                n += u32::from(piece.count);
                piece.mask &= free;
                if piece.mask != 0 {
                    n -= piece.mask.count_ones();
                    is_whole = false;
                }
            }
            rest = &mut rest[done..];
            if n == 0 {
                continue;
            }
            given += n as usize;
            let free = state.free() + n;
            if free < u32::from(g.objects) && list_of(g, free, NEW) == state.list() {
                state_word.store(State::new(free, class, state.list(), NEW).0, Relaxed);
            } else {
                self.relist(slab, g, free, NEW);
            }
        }
        if given > 0 {
            self.free += given;
            self.came_back += given;
        }
        is_whole
    }

    /// Fault of the free of `object`, at which no object of `g` begins.
    pub(crate) fn fault_of(&self, window: &Window, g: &Geometry, object: *mut u8) -> InvalidFree {
        match window.page_of(object as usize) {
            None => InvalidFree::ForeignPointer,
            Some(page) if is_slab_page(window, g, page) && Slab::of(window, g, page).is_of(g) => {
                InvalidFree::InteriorPointer
            }
            // It was of a slab that is gone.
            Some(_) => InvalidFree::DoubleFree,
        }
    }
}

/// The lowest `most` bits that are set in `bits`, all of them if there are no more.
fn lowest(bits: u32, most: usize) -> u32 {
    if most >= 32 {
        return bits;
    }
    let rest = (0..most).fold(bits, |rest, _| rest & rest.wrapping_sub(1));
    bits & !rest
}
