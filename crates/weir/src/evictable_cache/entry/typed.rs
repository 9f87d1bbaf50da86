//! Entries of a key and a value of two types.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::mem::needs_drop;
use core::ptr::NonNull;

use super::header::{Content, Header};

/// The block of an entry.
#[repr(C)]
pub struct Block<K, V> {
    header: Header,
    pair: Pair<K, V>,
}

/// The key is beside the header, so that a search reads one line of a large entry.
///
/// Both are dropped, the second also where the first drop panics.
#[repr(C)]
struct Pair<K, V> {
    key: K,
    value: V,
}

/// Keys `K` and values `V`.
#[derive(Debug)]
pub struct Typed<K, V>(PhantomData<(K, V)>);

impl<K, V> Typed<K, V> {
    /// Where the key is, or is to be.
    ///
    /// # Safety
    /// The entry has a block of `K` and `V`.
    pub unsafe fn key_at(entry: NonNull<Header>) -> *mut K {
        // SAFETY: inside the block; no reference to what may not be there yet is made.
        unsafe { &raw mut (*entry.cast::<Block<K, V>>().as_ptr()).pair.key }
    }

    /// Where the value is, or is to be.
    ///
    /// # Safety
    /// The entry has a block of `K` and `V`.
    pub unsafe fn value_at(entry: NonNull<Header>) -> *mut V {
        // SAFETY: inside the block, whose value may not be there yet: no reference is made.
        unsafe { &raw mut (*entry.cast::<Block<K, V>>().as_ptr()).pair.value }
    }
}

// SAFETY: every block has one layout, that of `Block`, in which key and value are fields.
unsafe impl<K: Eq + 'static, V: 'static> Content for Typed<K, V> {
    type Key = K;
    type Value = V;

    const OWNS_MEMORY: bool = needs_drop::<K>() || needs_drop::<V>();

    #[inline]
    fn is_same(a: &K, b: &K) -> bool {
        a == b
    }

    unsafe fn layout(_: NonNull<Header>) -> Layout {
        Layout::new::<Block<K, V>>()
    }

    #[inline]
    unsafe fn key<'a>(entry: NonNull<Header>) -> &'a K {
        // SAFETY: the caller promises an entry with its key.
        unsafe { &*Self::key_at(entry) }
    }

    #[inline]
    unsafe fn value<'a>(entry: NonNull<Header>) -> &'a V {
        // SAFETY: the caller promises an entry with its value.
        unsafe { &*Self::value_at(entry) }
    }

    unsafe fn drop_content(entry: NonNull<Header>, has_value: bool) {
        // SAFETY: the caller gives up the key, and the value where it says that there is one.
        unsafe {
            match has_value {
                true => (&raw mut (*entry.cast::<Block<K, V>>().as_ptr()).pair).drop_in_place(),
                false => Self::key_at(entry).drop_in_place(),
            }
        }
    }
}
