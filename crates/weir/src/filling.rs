//! Memory that is filled from its beginning, as the standard library's `BorrowedBuf` is: what is not filled is never shown.
//!
//! A run that is handed out holds what was freed there before, perhaps another part's secrets. And where the setting
//! `report_lazily` is on, a page that was not written since changes by itself: the kernel drops what it held
//! (`MADV_FREE`). Written bytes stay. So only bytes that were written become a slice.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A run of bytes, the first of which are filled.
#[derive(Debug)]
pub(crate) struct Filling {
    memory: NonNull<[u8]>,
    filled: usize,
}

impl Filling {
    /// Nothing of it is filled.
    ///
    /// # Safety
    /// The memory is mapped, to be read and written, and this value's alone for as long as it is used. No other process
    /// writes to it while a slice of it is borrowed.
    pub unsafe fn new(memory: NonNull<[u8]>) -> Self {
        Self { memory, filled: 0 }
    }

    pub fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }

    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.as_ptr().cast()
    }

    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    pub fn filled(&self) -> &[u8] {
        // SAFETY: the first `filled` bytes were written, and are this value's alone, which is borrowed.
        unsafe { core::slice::from_raw_parts(self.as_mut_ptr(), self.filled) }
    }

    pub fn filled_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `filled` bytes were written, and are this value's alone, which is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr(), self.filled) }
    }

    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: this value's alone, which is borrowed exclusively; any byte is a `MaybeUninit`.
        let all = unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.capacity()) };
        &mut all[self.filled..]
    }

    /// # Safety
    /// The next `length` bytes have a value that does not change by itself.
    pub unsafe fn advance(&mut self, length: usize) {
        assert!(length <= self.capacity() - self.filled, "more was written than the run has room for");
        self.filled += length;
    }

    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.capacity() - self.filled);
        // SAFETY: that many bytes behind `filled` are within the run and this value's alone, which is borrowed exclusively:
        // what is copied from lies elsewhere.
        unsafe { self.as_mut_ptr().add(self.filled).copy_from_nonoverlapping(bytes.as_ptr(), length) };
        self.filled += length;
        length
    }

    pub fn fill(&mut self, value: u8) {
        // SAFETY: all of it is this value's alone, which is borrowed exclusively.
        unsafe { self.as_mut_ptr().write_bytes(value, self.capacity()) };
        self.filled = self.capacity();
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }
}

/// Methods by which a run of pages shows its memory, for a type with a field `memory` of the type [`Filling`].
macro_rules! shows_what_is_filled {
    () => {
        /// The first byte, at a multiple of 4,096. It stays where it is when the value moves.
        pub fn as_ptr(&self) -> *const u8 {
            self.memory.as_mut_ptr()
        }

        /// The first byte, to write to.
        pub fn as_mut_ptr(&mut self) -> *mut u8 {
            self.memory.as_mut_ptr()
        }

        /// Bytes of the run.
        pub fn capacity(&self) -> usize {
            self.memory.capacity()
        }

        /// The bytes that were filled: none at first.
        pub fn filled(&self) -> &[u8] {
            self.memory.filled()
        }

        /// The bytes that were filled, to change them.
        pub fn filled_mut(&mut self) -> &mut [u8] {
            self.memory.filled_mut()
        }

        /// The bytes behind those, which hold anything. For a call that writes there; [`advance`](Self::advance) then
        /// says how many it wrote.
        pub fn spare(&mut self) -> &mut [core::mem::MaybeUninit<u8>] {
            self.memory.spare()
        }

        /// Counts the next `length` bytes as filled.
        ///
        /// # Safety
        /// They were written since the run was handed out; or it came as zeros, where it says so (a zone's run, by
        /// `was_zero`). To have read them is not enough: until it is written, a page may change by itself.
        ///
        /// # Panics
        /// If there are not so many.
        pub unsafe fn advance(&mut self, length: usize) {
            // SAFETY: as the caller promises.
            unsafe { self.memory.advance(length) }
        }

        /// Appends as much of `bytes` as there is room for; returns how much.
        pub fn append(&mut self, bytes: &[u8]) -> usize {
            self.memory.append(bytes)
        }

        /// Fills all of the run with one value.
        pub fn fill(&mut self, value: u8) {
            self.memory.fill(value);
        }

        /// Fills all of the run with zeros, and lends it.
        pub fn zeroed(&mut self) -> &mut [u8] {
            self.memory.fill(0);
            self.memory.filled_mut()
        }

        /// Counts nothing as filled any more.
        pub fn clear(&mut self) {
            self.memory.clear();
        }
    };
}
pub(crate) use shows_what_is_filled;
