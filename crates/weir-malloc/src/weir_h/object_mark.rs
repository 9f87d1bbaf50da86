//! A mark behind an object says whether the program holds it, in caches where a wrong free would go unnoticed.
//!
//! `free()` frees an object of a cache by its address alone, as it frees every block. That is right for a cache where
//! objects need nothing more. It is wrong where a free has to call a dtor or count the object. The few instructions of
//! `free` do not tell these caches apart. So their objects end in a word that only this module writes: [`HELD`] from
//! an allocation to `weir_cache_free()`, [`FREE`] after it. An object that is to be handed out, or to be finalized,
//! and still says that it is held, was given to `free()`. One that is to be freed and does not say so was freed
//! before, or overrun.
//!
//! The word is mixed with its own address. So a copy of an object elsewhere, or what another program part left in a
//! fresh page, is no mark.

use crate::misuse::{WrongCall, misuse};

/// Arbitrary: unlikely as a program's own data, and no pointer.
const HELD: usize = 0xa11c_0bec_7e1d_5eed;
const FREE: usize = !HELD;

/// Objects of up to so many bytes have a mark whatever it costs: a cache line.
const TINY: usize = 64;

/// Bytes of a mark.
const BYTES: usize = size_of::<usize>();

/// Where the objects of a cache have their mark.
#[derive(Clone, Copy)]
pub struct Mark {
    /// Bytes from an object's start; 0: there is none.
    at: usize,
}

impl Mark {
    /// None: the objects need nothing that `free()` does not do.
    pub const NONE: Self = Self { at: 0 };

    /// For objects of `size` bytes, aligned to `align`, in a heap with objects of up to `largest`. None where it would
    /// cost more than an eighth of the object, unless that is tiny: then such a free stays unnoticed.
    pub fn behind(size: usize, align: usize, largest: usize) -> Self {
        let align = align.max(16);
        let Some(end) = size.checked_next_multiple_of(BYTES).and_then(|at| at.checked_add(BYTES)) else {
            return Self::NONE;
        };
        let (Some(with), Some(without)) = (end.checked_next_multiple_of(align), size.checked_next_multiple_of(align))
        else {
            return Self::NONE;
        };
        let is_cheap = with - without <= without / 8 || with <= TINY;
        if size > 0 && end <= largest && is_cheap { Self { at: end - BYTES } } else { Self::NONE }
    }

    /// Bytes that an object takes, of which the program sees `size`.
    pub fn object_size(self, size: usize) -> usize {
        if self.at == 0 { size } else { self.at + BYTES }
    }

    /// Whether objects have one.
    pub fn is_there(self) -> bool {
        self.at != 0
    }

    fn of(self, object: *mut u8) -> *mut usize {
        object.wrapping_add(self.at).cast()
    }

    fn value(self, object: *mut u8, state: usize) -> usize {
        state ^ self.of(object).addr()
    }

    /// The object is about to be handed out, or finalized: it must not be held.
    ///
    /// # Safety
    /// `object` is a free object of the cache, and the caller's.
    #[inline]
    pub unsafe fn check_free(self, object: *mut u8) {
        // SAFETY: the object has its mark inside, aligned to 8, as all objects are.
        if self.is_there() && unsafe { self.of(object).read() } == self.value(object, HELD) {
            misuse(WrongCall::FreedWithoutDtor, object.addr());
        }
    }

    /// The program holds the object from now on.
    ///
    /// # Safety
    /// As [`Mark::check_free`].
    #[inline]
    pub unsafe fn hold(self, object: *mut u8) {
        if self.is_there() {
            // SAFETY: the mark is inside the object, which is the caller's alone.
            unsafe { self.of(object).write(self.value(object, HELD)) }
        }
    }

    /// The program gives the object back; `false`: it must not be taken, as the program does not hold it.
    ///
    /// # Safety
    /// `object` and [`Mark::last_byte`] of it are addresses in slabs of the cache.
    #[inline]
    pub unsafe fn give_up(self, object: *mut u8) -> bool {
        if !self.is_there() {
            return true;
        }
        let mark = self.of(object);
        // SAFETY: the caller promises that the mark's bytes are in a slab, which is mapped. A pointer into the middle
        // of an object may make the mark unaligned, and what is read then is the program's data.
        let found = unsafe { mark.read_unaligned() };
        if found != self.value(object, HELD) {
            // Neither value: also of an object that was free for so long that its page was released.
            misuse(
                if found == self.value(object, FREE) { WrongCall::FreedTwice } else { WrongCall::NotHeld },
                object.addr(),
            );
            return false;
        }
        // SAFETY: only `hold` wrote such a value there, so an object begins at `object`, and the program gives it up.
        unsafe { mark.write(self.value(object, FREE)) };
        true
    }

    /// The last byte of the object and its mark, as far as they are known: for the check that both are in the cache.
    pub fn last_byte(self, object: *mut u8) -> usize {
        object.addr().wrapping_add(if self.is_there() { self.at + BYTES - 1 } else { 0 })
    }
}
