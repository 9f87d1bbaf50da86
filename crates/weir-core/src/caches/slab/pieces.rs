//! Objects of one batch by the bitmap words that they have in their slabs. What goes to slabs, or comes from them, under a lock
//! is words and masks. The objects' addresses are taken apart before the lock is taken, and put together after it is given back.

use crate::base::units::{PAGE, PAGE_SHIFT, PageNo};
use crate::caches::geometry::{Geometry, MAX_BATCH};
use crate::pages::window::Window;

/// Objects of one bitmap word of a slab.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// First page of the slab.
    pub(super) page: PageNo,
    /// Bit i: object i of the word.
    pub(super) mask: u32,
    /// Which word of the bitmap.
    pub(super) word: u16,
    /// Objects that were put in: as many as `mask` had bits then.
    pub(super) count: u16,
}

/// Pieces of a batch: those of a slab that come one after the other are dealt with at once.
pub struct Pieces {
    list: [Piece; MAX_BATCH],
    len: usize,
}

/// Objects of a batch that are in no piece: bit i stands for object i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Objects of the batch that begin where no object of a slab does, or lie outside of the window.
    pub odd: u64,
    /// Objects of the batch that are in the piece of one before them.
    pub twice: u64,
}

impl Pieces {
    /// No pieces.
    pub const NONE: Self = Self { list: [Piece { page: PageNo::NONE, mask: 0, word: 0, count: 0 }; MAX_BATCH], len: 0 };

    /// Takes apart at most [`MAX_BATCH`] objects of `g`, into pieces, of which there are none yet.
    ///
    /// Neighbours in the batch share a piece, others of a slab do not. So a program that frees in some order has few pieces, and
    /// one that frees in none pays for no search.
    ///
    /// Not inlined: it has the registers to itself.
    #[inline(never)]
    pub fn collect(&mut self, window: &Window, g: &Geometry, objects: &[*mut u8]) -> Faults {
        let (base, top) = (window.addr_of(PageNo(0)), window.top().index());
        // Slabs begin at a multiple of the power of two above their length.
        let align = usize::from(g.pages).next_power_of_two();
        let (mut len, mut faults) = (0, Faults::default());
        let mut piece = &mut Piece { page: PageNo::NONE, mask: 0, word: 0, count: 0 };
        let mut places = self.list.iter_mut();
        for (i, &object) in objects.iter().enumerate() {
            let addr = object as usize;
            let page = addr.wrapping_sub(base) >> PAGE_SHIFT;
            let (index, rest) = g.object_at(addr & (align * PAGE - 1));
            if page >= top || rest != 0 || index >= usize::from(g.objects) {
                faults.odd |= 1 << i;
                continue;
            }
            let (page, word, bit) = (PageNo((page & !(align - 1)) as u32), (index / 32) as u16, 1 << (index % 32));
            if piece.page != page || piece.word != word {
                let Some(place) = places.next() else { break };
                *place = Piece { page, mask: bit, word, count: 1 };
                piece = place;
                len += 1;
            } else if piece.mask & bit == 0 {
                piece.mask |= bit;
                piece.count += 1;
            } else {
                faults.twice |= 1 << i;
            }
        }
        self.len = len;
        faults
    }

    /// Adds objects of a word of a slab's bitmap.
    pub(super) fn push(&mut self, page: PageNo, word: u16, mask: u32) {
        self.list[self.len % MAX_BATCH] = Piece { page, mask, word, count: 0 };
        self.len += 1;
    }

    /// All pieces.
    pub(super) fn all(&mut self) -> &mut [Piece] {
        let len = self.len.min(MAX_BATCH);
        &mut self.list[..len]
    }

    /// Calls `f` with each object, ascending in each word.
    pub fn for_each(&self, window: &Window, g: &Geometry, mut f: impl FnMut(*mut u8)) {
        for piece in &self.list[..self.len] {
            let first = window.addr_of(piece.page) + usize::from(piece.word) * 32 * g.size as usize;
            bits(piece.mask.into()).for_each(|i| f((first + i * g.size as usize) as *mut u8));
        }
    }
}

/// The numbers of the bits that are set.
pub(in crate::caches) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

const _: () = assert!(MAX_BATCH <= u64::BITS as usize && MAX_BATCH.is_power_of_two());
