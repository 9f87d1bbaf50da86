//! Entries of a key and a value in bytes, of lengths given at insertion.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::header::{Content, Header};

/// The block of an entry. The value begins right behind it, and the key behind the value.
#[repr(C)]
struct Block {
    header: Header,
    key_len: usize,
    value_len: usize,
}

/// Where the value begins: so far from the block's begin that values are aligned to 16 bytes.
const VALUE: usize = size_of::<Block>();
const _: () = assert!(VALUE.is_multiple_of(ALIGN));
/// Alignment of a block.
const ALIGN: usize = 16;

/// Keys and values in bytes.
#[derive(Debug)]
pub struct Bytes(());

impl Bytes {
    /// The layout of an entry; `None`: it is larger than memory.
    pub fn layout_of(key_len: usize, value_len: usize) -> Option<Layout> {
        let size = VALUE.checked_add(value_len)?.checked_add(key_len)?;
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
            let at = entry.cast::<u8>().add(VALUE + value_len);
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
    }

    /// The value, as memory.
    ///
    /// # Safety
    /// The entry is valid.
    pub unsafe fn value_of(entry: NonNull<Header>) -> NonNull<[u8]> {
        // SAFETY: the block has its lengths, and its value lies behind it.
        unsafe {
            let len = (*entry.cast::<Block>().as_ptr()).value_len;
            NonNull::slice_from_raw_parts(entry.cast::<u8>().add(VALUE), len)
        }
    }
}

// SAFETY: the lengths in the block are those that its layout was made of; key and value lie behind one another in it.
unsafe impl Content for Bytes {
    type Key = [u8];
    type Value = [u8];

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
        // SAFETY: the block has its lengths; the key lies behind the value and does not change.
        unsafe {
            let block = entry.cast::<Block>().as_ptr();
            let at = entry.cast::<u8>().add(VALUE + (*block).value_len);
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
