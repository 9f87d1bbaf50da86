//! Memory for a request's data. Every byte that a client sends or is sent lies in one of these.
//!
//! Today a buffer is a run of pages of the heap, taken for one request and freed with it.

use std::alloc::{Layout, alloc, dealloc};
use std::io;
use std::ptr::NonNull;

/// Alignment of runs of pages, bytes: what the kernel's direct I/O needs at most.
const PAGE: usize = 4096;
/// Alignment of less than a page, bytes: a cache line.
const LINE: usize = 64;

/// Memory at a fixed address, filled from its beginning. What is not filled is not initialised and never shown.
pub struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    filled: usize,
}

// SAFETY: the buffer owns its memory, which has no tie to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the memory is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Room for `capacity` bytes; an error if there is no memory.
    pub fn take(capacity: usize) -> io::Result<Self> {
        let align = if capacity < PAGE { LINE } else { PAGE };
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let layout = Layout::from_size_align(capacity, align).map_err(|_| no_memory())?;
        let memory = match capacity {
            // No memory at all, at an address that is aligned.
            0 => NonNull::dangling(),
            // SAFETY: the layout's size is not 0.
            _ => NonNull::new(unsafe { alloc(layout) }).ok_or_else(no_memory)?,
        };
        Ok(Self { memory, layout, filled: 0 })
    }

    /// Room for `length` zeroes, filled with them.
    pub fn zeroes(length: usize) -> io::Result<Self> {
        let mut buffer = Self::take(length)?;
        buffer.fill(0, length);
        Ok(buffer)
    }

    /// What has been filled.
    pub fn filled(&self) -> &[u8] {
        // SAFETY: the first `filled` bytes are initialised, and nothing writes to them while `self` is borrowed: an
        // operation of the kernel holds the buffer by value.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.filled) }
    }

    /// The same, to change it.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `filled` bytes are initialised, and nothing else reads or writes them while `self` is
        // borrowed as mutable: an operation of the kernel holds the buffer by value.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.filled) }
    }

    /// A buffer with a copy of `bytes`, as large as they are.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut buffer = Self::take(bytes.len())?;
        buffer.append(bytes);
        Ok(buffer)
    }

    /// Where the next bytes go, and how many there is room for. The address stays as it is when the buffer moves.
    pub fn spare(&mut self) -> (*mut u8, usize) {
        // SAFETY: `filled` is at most the size of the memory.
        (unsafe { self.memory.as_ptr().add(self.filled) }, self.layout.size() - self.filled)
    }

    /// Counts the next `length` bytes as filled.
    ///
    /// # Safety
    /// They have been written.
    pub unsafe fn advance(&mut self, length: usize) {
        assert!(length <= self.layout.size() - self.filled, "more was written than there is room for");
        self.filled += length;
    }

    /// Appends as much of `bytes` as there is room for, and returns how much.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let (spare, room) = self.spare();
        let length = bytes.len().min(room);
        // SAFETY: there is room for `length` bytes at `spare`, in memory that this buffer owns and lends to none while
        // it is borrowed as mutable, so it does not overlap `bytes`. They are initialised by the copy.
        unsafe {
            spare.copy_from_nonoverlapping(bytes.as_ptr(), length);
            self.advance(length);
        }
        length
    }

    /// Appends `length` bytes of one value.
    pub fn fill(&mut self, value: u8, length: usize) {
        let (spare, room) = self.spare();
        assert!(length <= room, "more is filled than there is room for");
        // SAFETY: there is room for `length` bytes at `spare`, as was checked, and the call initialises them.
        unsafe {
            spare.write_bytes(value, length);
            self.advance(length);
        }
    }

    /// Forgets what has been filled.
    pub fn clear(&mut self) {
        self.filled = 0;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `memory` came from `alloc` with this layout, and is freed once.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_filled_is_shown() {
        let mut buffer = Buffer::take(10).expect("memory");
        assert!(buffer.filled().is_empty());
        assert_eq!(buffer.append(b"abc"), 3);
        buffer.fill(b'x', 2);
        assert_eq!(buffer.append(b"0123456789"), 5);
        assert_eq!(buffer.filled(), b"abcxx01234");
        assert_eq!(buffer.spare().1, 0);
        buffer.clear();
        assert!(buffer.filled().is_empty());
    }

    #[test]
    fn pages_are_aligned_and_none_at_all_is_an_error() {
        let mut pages = Buffer::take(3 * PAGE).expect("memory");
        assert_eq!(pages.spare().0 as usize % PAGE, 0);
        assert!(Buffer::take(0).expect("nothing").filled().is_empty());
        assert_eq!(Buffer::take(usize::MAX).err().and_then(|why| why.raw_os_error()), Some(libc::ENOMEM));
        assert_eq!(Buffer::take(1 << 60).err().and_then(|why| why.raw_os_error()), Some(libc::ENOMEM));
    }

    #[test]
    #[should_panic(expected = "more is filled")]
    fn no_more_is_filled_than_there_is_room_for() {
        Buffer::take(4).expect("memory").fill(0, 5);
    }
}
