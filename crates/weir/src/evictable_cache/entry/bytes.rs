//! Entries of a key and a value in bytes, of lengths given at insertion.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::header::{Content, Header};

/// The block of an entry. Key and value lie behind it: the key first where the value is large, so that a search reads one line
/// of the entry. Beside a small value it lies behind that, as values are aligned and keys are not.
#[repr(C)]
struct Block {
    header: Header,
    key_len: usize,
    value_len: usize,
}

/// Where the first of the two begins.
const CONTENT: usize = size_of::<Block>();
const _: () = assert!(CONTENT.is_multiple_of(ALIGN));
/// Alignment of a block, and of a value in it.
const ALIGN: usize = 16;
/// A value of so many bytes is large: what lies between key and value is at most a sixteenth of it.
const LARGE: usize = 256;

/// Where the value begins in a block of these lengths; `None`: that is beyond all memory.
#[inline]
fn value_offset(key_len: usize, value_len: usize) -> Option<usize> {
    if value_len < LARGE { Some(CONTENT) } else { CONTENT.checked_add(key_len)?.checked_next_multiple_of(ALIGN) }
}

/// Where the key begins in a block with a value of this length.
#[inline]
fn key_offset(value_len: usize) -> usize {
    if value_len < LARGE { CONTENT + value_len } else { CONTENT }
}

/// Keys and values in bytes.
#[derive(Debug)]
pub struct Bytes(());

impl Bytes {
    /// The layout of an entry; `None`: it is larger than memory.
    pub fn layout_of(key_len: usize, value_len: usize) -> Option<Layout> {
        let end = value_offset(key_len, value_len)?.checked_add(value_len)?;
        let size = end.max(key_offset(value_len).checked_add(key_len)?);
        Layout::from_size_align(size, ALIGN).ok()
    }

    /// Writes the lengths and the key into a block of that layout; the value is whatever is there.
    ///
    /// # Safety
    /// The block is of [`Bytes::layout_of`] these lengths, and the caller's alone.
    pub unsafe fn begin(entry: NonNull<Header>, key: &[u8], value_len: usize) {
        let block = entry.cast::<Block>().as_ptr();
        // SAFETY: inside the block, by its layout.
        unsafe {
            (&raw mut (*block).key_len).write(key.len());
            (&raw mut (*block).value_len).write(value_len);
            let at = entry.cast::<u8>().add(key_offset(value_len));
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
    }

    /// The value, as memory.
    ///
    /// # Safety
    /// The entry is valid.
    pub unsafe fn value_of(entry: NonNull<Header>) -> NonNull<[u8]> {
        // SAFETY: the block has its lengths, of which its layout was made: the value lies in it, at an offset that there is.
        unsafe {
            let block = entry.cast::<Block>().as_ptr();
            let (key, len) = ((*block).key_len, (*block).value_len);
            let at = value_offset(key, len).unwrap_unchecked();
            NonNull::slice_from_raw_parts(entry.cast::<u8>().add(at), len)
        }
    }

    /// The place of the value, to be written.
    ///
    /// # Safety
    /// The block was begun, and is the caller's alone as long as the reference lives.
    pub unsafe fn room<'a>(entry: NonNull<Header>) -> &'a mut [MaybeUninit<u8>] {
        // SAFETY: the block has its lengths.
        let value = unsafe { Self::value_of(entry) };
        // SAFETY: in the block, which the caller promises, and any bytes are such values.
        unsafe { core::slice::from_raw_parts_mut(value.cast().as_ptr(), value.len()) }
    }

    /// Zeros in such a place.
    pub fn zeroed(room: &mut [MaybeUninit<u8>]) -> &mut [u8] {
        // SAFETY: borrowed exclusively.
        unsafe { room.as_mut_ptr().write_bytes(0, room.len()) };
        // SAFETY: every byte was written, and the reference is the one that was given.
        unsafe { &mut *(core::ptr::from_mut(room) as *mut [u8]) }
    }
}

// SAFETY: the lengths in the block are those that its layout was made of; key and value lie behind one another in it.
unsafe impl Content for Bytes {
    type Key = [u8];
    type Value = [u8];

    const OWNS_MEMORY: bool = false;

    #[inline]
    fn is_same(a: &[u8], b: &[u8]) -> bool {
        a == b
    }

    unsafe fn layout(entry: NonNull<Header>) -> Layout {
        // SAFETY: the block has its lengths.
        let (key, value) = unsafe {
            let block = entry.cast::<Block>().as_ptr();
            ((*block).key_len, (*block).value_len)
        };
        Self::layout_of(key, value).expect("the block was allocated with it")
    }

    #[inline]
    unsafe fn key<'a>(entry: NonNull<Header>) -> &'a [u8] {
        // SAFETY: the block has its lengths; the key lies where they say, and does not change.
        unsafe {
            let block = entry.cast::<Block>().as_ptr();
            let at = entry.cast::<u8>().add(key_offset((*block).value_len));
            core::slice::from_raw_parts(at.as_ptr(), (*block).key_len)
        }
    }

    #[inline]
    unsafe fn value<'a>(entry: NonNull<Header>) -> &'a [u8] {
        // SAFETY: the caller's promise: a value, which nothing writes as long as the reference lives.
        unsafe { Self::value_of(entry).as_ref() }
    }

    unsafe fn drop_content(_: NonNull<Header>, _: bool) {}
}
