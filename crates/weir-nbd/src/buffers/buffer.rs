//! Memory for a request's data. Every byte that a client sends or is sent lies in one of these.
//!
//! What is a page or more lies in locked memory first, if there is any. Else, in a connection's task, it is a run of the
//! connection's page pool, and goes back there wherever it is dropped. What is shorter, or longer than such a run can be, and
//! what stays for long (blocks of the cache), is memory of the heap.

use super::{connection_pool, locked};
use bytes::BufMut;
use bytes::buf::UninitSlice;
use std::alloc::{Layout, alloc, dealloc};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use weir::PoolPages;
use weir::zone::Pages;

/// Alignment of runs of pages, bytes: what the kernel's direct I/O needs at most.
const PAGE: usize = 4096;
/// Alignment of less than a page, bytes: a cache line.
const LINE: usize = 64;

/// Memory at a fixed address, filled from its beginning. What is not filled is not initialised and never shown.
pub struct Buffer {
    memory: NonNull<u8>,
    capacity: usize,
    filled: usize,
    owner: Owner,
}

/// The owner that a buffer's memory goes back to.
enum Owner {
    Pool { _run: PoolPages },
    Locked { _run: Pages<'static> },
    Heap(Layout),
}

// SAFETY: the buffer owns its memory, which has no tie to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the memory is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Room for `capacity` bytes, for a request; an error if there is no memory.
    pub fn take(capacity: usize) -> io::Result<Self> {
        if !(PAGE..=weir::PagePool::MAX_PAGES * PAGE).contains(&capacity) {
            return Self::keep(capacity);
        }
        if let Some(buffer) = Self::locked(capacity) {
            return Ok(buffer);
        }
        let Some(mut run) = connection_pool::get(capacity.div_ceil(PAGE)) else { return Self::keep(capacity) };
        let memory = NonNull::new(run.as_mut_ptr()).expect("a run is somewhere");
        Ok(Self { memory, capacity, filled: 0, owner: Owner::Pool { _run: run } })
    }

    /// Room for `capacity` bytes of locked memory; `None`: there is none to spare, or it is less than a page.
    fn locked(capacity: usize) -> Option<Self> {
        let mut run = (capacity >= PAGE).then(|| locked::take(capacity)).flatten()?;
        let memory = NonNull::new(run.as_mut_ptr()).expect("a run is somewhere");
        Some(Self { memory, capacity, filled: 0, owner: Owner::Locked { _run: run } })
    }

    /// Whether the memory is locked.
    pub fn is_locked(&self) -> bool {
        matches!(self.owner, Owner::Locked { .. })
    }

    /// Room for `capacity` bytes that stay for longer than a request; an error if there is no memory.
    pub fn keep(capacity: usize) -> io::Result<Self> {
        if let Some(buffer) = Self::locked(capacity) {
            return Ok(buffer);
        }
        let align = if capacity < PAGE { LINE } else { PAGE };
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let layout = Layout::from_size_align(capacity, align).map_err(|_| no_memory())?;
        let memory = match capacity {
            // No memory at all, at an address that is aligned.
            0 => NonNull::dangling(),
            // SAFETY: the layout's size is not 0.
            _ => NonNull::new(unsafe { alloc(layout) }).ok_or_else(no_memory)?,
        };
        Ok(Self { memory, capacity, filled: 0, owner: Owner::Heap(layout) })
    }

    /// Room for `length` zeroes, filled with them.
    pub fn zeroes(length: usize) -> io::Result<Self> {
        let mut buffer = Self::take(length)?;
        buffer.fill(0, length);
        Ok(buffer)
    }

    /// The bytes that have been filled.
    pub fn filled(&self) -> &[u8] {
        // SAFETY: the first `filled` bytes are initialised. Nothing writes to them while `self` is borrowed, as an operation of
        // the kernel holds the buffer by value.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.filled) }
    }

    /// The bytes that have been filled, to change them.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `filled` bytes are initialised. Nothing else reads or writes them while `self` is borrowed as
        // mutable, as an operation of the kernel holds the buffer by value.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.filled) }
    }

    /// A buffer with a copy of `bytes`, as large as they are, for a request.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        Self::take(bytes.len()).map(|buffer| buffer.with(bytes))
    }

    /// A buffer with a copy of `bytes`, as [`Self::copy_of`] makes, to stay for longer.
    pub fn kept_copy(bytes: &[u8]) -> io::Result<Self> {
        Self::keep(bytes.len()).map(|buffer| buffer.with(bytes))
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.append(bytes);
        self
    }

    /// Where the next bytes go. The address stays as it is when the buffer moves.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = self.capacity - self.filled;
        // SAFETY: the memory has room for so many more bytes, and nothing else uses them while `self` is borrowed as mutable.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(self.filled).cast(), room) }
    }

    /// Counts the next `length` bytes as filled.
    ///
    /// # Safety
    /// They have been written.
    pub unsafe fn advance(&mut self, length: usize) {
        assert!(length <= self.capacity - self.filled, "more was written than there is room for");
        self.filled += length;
    }

    /// Appends as much of `bytes` as there is room for, and returns how much.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let length = bytes.len().min(spare.len());
        spare[..length].write_copy_of_slice(&bytes[..length]);
        // SAFETY: so many bytes have been copied.
        unsafe { self.advance(length) };
        length
    }

    /// Appends `length` bytes of one value.
    pub fn fill(&mut self, value: u8, length: usize) {
        let spare = self.spare();
        assert!(length <= spare.len(), "more is filled than there is room for");
        spare[..length].fill(MaybeUninit::new(value));
        // SAFETY: so many bytes have been written.
        unsafe { self.advance(length) };
    }

    /// Forgets what has been filled but for the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.filled = self.filled.min(length);
    }

    /// Forgets what has been filled but for the bytes from `start` on, which come first from now on.
    pub fn keep_from(&mut self, start: usize) {
        self.filled_mut().copy_within(start.., 0);
        self.filled -= start;
    }
}

// SAFETY: `remaining_mut` is the length of what `chunk_mut` returns: the room that is left, in one piece.
unsafe impl BufMut for Buffer {
    fn remaining_mut(&self) -> usize {
        self.capacity - self.filled
    }
    unsafe fn advance_mut(&mut self, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.advance(length) };
    }
    fn chunk_mut(&mut self) -> &mut UninitSlice {
        UninitSlice::uninit(self.spare())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner
            && layout.size() > 0
        {
            // SAFETY: `memory` came from `alloc` with this layout, and is freed once.
            unsafe { dealloc(self.memory.as_ptr(), layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{ConnectionPool, Pools};
    use futures_util::FutureExt;

    #[test]
    fn only_what_was_filled_is_shown() {
        let mut buffer = Buffer::take(10).expect("memory");
        assert!(buffer.filled().is_empty());
        assert_eq!(buffer.append(b"abc"), 3);
        buffer.fill(b'x', 2);
        assert_eq!(buffer.append(b"0123456789"), 5);
        assert_eq!(buffer.filled(), b"abcxx01234");
        assert_eq!(buffer.spare().len(), 0);
        buffer.keep_from(3);
        assert_eq!((buffer.filled(), buffer.remaining_mut()), (&b"xx01234"[..], 3));
        buffer.truncate(8);
        buffer.truncate(2);
        assert_eq!(buffer.filled(), b"xx");
        buffer.keep_from(2);
        assert!(buffer.filled().is_empty());
    }

    #[test]
    fn pages_are_aligned_and_none_at_all_is_an_error() {
        let mut pages = Buffer::take(3 * PAGE).expect("memory");
        assert_eq!(pages.spare().as_ptr().addr() % PAGE, 0);
        assert!(Buffer::take(0).expect("nothing").filled().is_empty());
        assert_eq!(Buffer::take(usize::MAX).err().and_then(|why| why.raw_os_error()), Some(libc::ENOMEM));
        assert_eq!(Buffer::take(1 << 60).err().and_then(|why| why.raw_os_error()), Some(libc::ENOMEM));
    }

    #[test]
    fn a_connections_requests_use_the_same_pages_in_turn() {
        let pools = Pools::new();
        let connection = ConnectionPool::new(&pools, "test");
        let now = || (pools.figures().in_flight_pages, pools.figures().idle_pages);
        let task = connection.run(async {
            let mut first = Buffer::take(5000).expect("memory");
            first.fill(7, 5000);
            assert_eq!(first.spare().len(), 0, "no more room than was asked for, although its pages have more");
            assert_eq!(now(), (2, 0));
            let at = first.filled().as_ptr();
            // Wherever it is dropped.
            std::thread::spawn(move || drop(first)).join().expect("a thread");
            assert_eq!(now(), (0, 2));
            let again = Buffer::copy_of(&[1; 8192]).expect("memory");
            assert_eq!((again.filled().as_ptr(), again.filled()), (at, &[1; 8192][..]));
            // What is short, what is long, and what stays is the heap's.
            let others =
                [Buffer::take(4095), Buffer::take((4 << 20) + 1), Buffer::keep(4096), Buffer::kept_copy(&[0; 4096])];
            assert!(others.iter().all(Result::is_ok));
            assert_eq!(now(), (2, 0));
        });
        task.now_or_never().expect("it waits for nothing");
    }

    #[test]
    #[should_panic(expected = "more is filled")]
    fn no_more_is_filled_than_there_is_room_for() {
        Buffer::take(4).expect("memory").fill(0, 5);
    }
}
