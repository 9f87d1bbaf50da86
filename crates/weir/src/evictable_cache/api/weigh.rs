//! How much of the program's heap values own: weight by itself.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::ffi::CString;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::any::{Any, TypeId};
use core::mem::needs_drop;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize,
};

use crate::evictable_cache::host::program_block_size;

/// Values that know how much memory they own. A cache of them weighs its entries by
/// [`weighed`](crate::EvictableCacheBuilder::weighed), and by itself where they are of common types. `Bytes` of the crate `bytes`
/// is one with this crate's feature of that name.
///
/// ```
/// use weir::Weigh;
///
/// struct Page { url: String, body: Vec<u8> }
///
/// impl Weigh for Page {
///     fn heap_bytes(&self) -> usize {
///         self.url.heap_bytes() + self.body.heap_bytes()
///     }
/// }
///
/// let page = Page { url: "/".repeat(100), body: vec![0; 5000] };
/// assert!((5100..7000).contains(&page.heap_bytes()));
/// assert_eq!((7u64, Some('x')).heap_bytes(), 0);
/// ```
pub trait Weigh {
    /// Bytes of the heap that belong to the value, beside its own size. Blocks count as
    /// [`heap::program_block_size`](crate::heap::program_block_size) says. A sum that is too large is `usize::MAX`.
    fn heap_bytes(&self) -> usize;
}

/// Types whose values own none.
macro_rules! none {
    ($($type:ty)*) => {$(
        impl Weigh for $type {
            #[inline]
            fn heap_bytes(&self) -> usize {
                0
            }
        }
    )*};
}

none! {
    () bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64
    AtomicBool AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicUsize AtomicI8 AtomicI16 AtomicI32 AtomicI64 AtomicIsize
    core::num::NonZeroU8 core::num::NonZeroU16 core::num::NonZeroU32 core::num::NonZeroU64 core::num::NonZeroU128
    core::num::NonZeroUsize core::time::Duration core::cmp::Ordering
    core::net::IpAddr core::net::Ipv4Addr core::net::Ipv6Addr core::net::SocketAddr
}

/// A borrowed value belongs to another.
impl<T: ?Sized> Weigh for &T {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: Weigh> Weigh for [T] {
    fn heap_bytes(&self) -> usize {
        // What has nothing to drop owns nothing: a million numbers are not visited.
        if needs_drop::<T>() { self.iter().map(T::heap_bytes).fold(0, usize::saturating_add) } else { 0 }
    }
}

impl<T: Weigh, const N: usize> Weigh for [T; N] {
    fn heap_bytes(&self) -> usize {
        self.as_slice().heap_bytes()
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
}

impl<T: Weigh, E: Weigh> Weigh for Result<T, E> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or_else(E::heap_bytes, T::heap_bytes)
    }
}

/// Bytes of a block of so many places for values.
fn array<T>(capacity: usize) -> usize {
    Layout::array::<T>(capacity).map_or(usize::MAX, program_block_size)
}

impl<T: Weigh> Weigh for Vec<T> {
    fn heap_bytes(&self) -> usize {
        array::<T>(self.capacity()).saturating_add(self.as_slice().heap_bytes())
    }
}

impl<T: Weigh> Weigh for VecDeque<T> {
    fn heap_bytes(&self) -> usize {
        let (front, back) = self.as_slices();
        array::<T>(self.capacity()).saturating_add(front.heap_bytes()).saturating_add(back.heap_bytes())
    }
}

impl<T: Weigh> Weigh for BinaryHeap<T> {
    fn heap_bytes(&self) -> usize {
        array::<T>(self.capacity()).saturating_add(self.as_slice().heap_bytes())
    }
}

impl Weigh for String {
    fn heap_bytes(&self) -> usize {
        array::<u8>(self.capacity())
    }
}

impl Weigh for CString {
    fn heap_bytes(&self) -> usize {
        array::<u8>(self.as_bytes_with_nul().len())
    }
}

/// The part that it shows, as if it had that for itself: what it is a part of, and who shares it, it does not tell.
#[cfg(feature = "bytes")]
impl Weigh for bytes::Bytes {
    fn heap_bytes(&self) -> usize {
        array::<u8>(self.len())
    }
}

#[cfg(feature = "bytes")]
impl Weigh for bytes::BytesMut {
    fn heap_bytes(&self) -> usize {
        array::<u8>(self.capacity())
    }
}

/// Bytes of a tree's nodes, two thirds full as keys that come in any order leave them.
fn tree<K, V>(len: usize) -> usize {
    type Node<K, V> = ([K; 11], [V; 11], [usize; 3]);
    len.div_ceil(7).saturating_mul(program_block_size(Layout::new::<Node<K, V>>()))
}

/// About, as the standard library does not tell how its nodes lie.
impl<K: Weigh, V: Weigh> Weigh for BTreeMap<K, V> {
    fn heap_bytes(&self) -> usize {
        let owned = self.iter().map(|(key, value)| key.heap_bytes().saturating_add(value.heap_bytes()));
        let owned = if needs_drop::<(K, V)>() { owned.fold(0, usize::saturating_add) } else { 0 };
        tree::<K, V>(self.len()).saturating_add(owned)
    }
}

/// About, as of a [`BTreeMap`].
impl<T: Weigh> Weigh for BTreeSet<T> {
    fn heap_bytes(&self) -> usize {
        let owned = if needs_drop::<T>() { self.iter().map(T::heap_bytes).fold(0, usize::saturating_add) } else { 0 };
        tree::<T, ()>(self.len()).saturating_add(owned)
    }
}

impl<T: Weigh + ?Sized> Weigh for Box<T> {
    fn heap_bytes(&self) -> usize {
        program_block_size(Layout::for_value::<T>(self)).saturating_add((**self).heap_bytes())
    }
}

/// The whole value, whoever else shares it.
impl<T: Weigh + ?Sized> Weigh for Arc<T> {
    fn heap_bytes(&self) -> usize {
        let counts = Layout::new::<[usize; 2]>();
        let block = counts.extend(Layout::for_value::<T>(self)).map(|(block, _)| block.pad_to_align());
        block.map_or(usize::MAX, program_block_size).saturating_add((**self).heap_bytes())
    }
}

impl<T: ToOwned + ?Sized> Weigh for Cow<'_, T>
where
    T::Owned: Weigh,
{
    fn heap_bytes(&self) -> usize {
        match self {
            Cow::Borrowed(_) => 0,
            Cow::Owned(owned) => owned.heap_bytes(),
        }
    }
}

macro_rules! tuples {
    ($($(($name:ident $at:tt))+;)*) => {$(
        impl<$($name: Weigh),+> Weigh for ($($name,)+) {
            fn heap_bytes(&self) -> usize {
                0usize $(.saturating_add(self.$at.heap_bytes()))+
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0) (B 1);
    (A 0) (B 1) (C 2);
    (A 0) (B 1) (C 2) (D 3);
    (A 0) (B 1) (C 2) (D 3) (E 4);
    (A 0) (B 1) (C 2) (D 3) (E 4) (F 5);
    (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6);
    (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6) (H 7);
}

/// Types whose values are weighed where the program says nothing: Rust cannot ask whether a type implements a trait.
macro_rules! common {
    ($($(#[$if:meta])? $type:ty),*) => {
        fn is_common(type_id: TypeId) -> bool {
            [$($(#[$if])? TypeId::of::<$type>()),*].contains(&type_id)
        }

        /// Bytes that a value of a common type owns; 0 for others.
        fn heap_bytes_of(value: &dyn Any) -> usize {
            $(
                $(#[$if])?
                if let Some(value) = value.downcast_ref::<$type>() {
                    return value.heap_bytes();
                }
            )*
            0
        }
    };
}

common! {
    Vec<u8>, String, Box<[u8]>, Box<str>, Arc<[u8]>, Arc<str>, Arc<Vec<u8>>, Arc<String>, Cow<'static, str>,
    Vec<u16>, Vec<u32>, Vec<u64>, Vec<usize>, Vec<i32>, Vec<i64>, Vec<f32>, Vec<f64>, Vec<String>, Vec<Vec<u8>>,
    Option<Vec<u8>>, Option<String>, Option<Arc<[u8]>>, Option<Arc<str>>, (String, String), (String, u32), (String, u64),
    #[cfg(feature = "bytes")] bytes::Bytes, #[cfg(feature = "bytes")] Option<bytes::Bytes>
}

/// How entries are weighed where the program does not say.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// Entries weigh their blocks, which are all that they have.
    Block,
    /// Entries are weighed by [`heap_bytes`].
    Common,
    /// How much the key owns is not known, or how much the value does: [`heap_bytes`] is what the other one owns.
    Part,
    /// How much entries own is not known.
    Nothing,
}

/// How entries of these types are weighed where the program does not say.
pub fn known<K: 'static, V: 'static>() -> Known {
    let owners = [(needs_drop::<K>(), TypeId::of::<K>()), (needs_drop::<V>(), TypeId::of::<V>())];
    let mut owners = owners.into_iter().filter(|(is_owner, _)| *is_owner).map(|(_, type_id)| is_common(type_id));
    match (owners.next(), owners.next()) {
        (None, _) => Known::Block,
        (Some(true), None | Some(true)) => Known::Common,
        (Some(true), _) | (_, Some(true)) => Known::Part,
        _ => Known::Nothing,
    }
}

/// Bytes that a key and a value own, as far as they are of common types.
pub fn heap_bytes<K: 'static, V: 'static>(key: &K, value: &V) -> usize {
    heap_bytes_of(key).saturating_add(heap_bytes_of(value))
}
