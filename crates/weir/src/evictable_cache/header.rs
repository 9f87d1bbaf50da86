//! What every entry begins with, and what the parts of a cache need to be told of its contents.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;
use weir_core::evict::pins::Pins;

/// It was changed since it was last written back, or handed out to be.
const DIRTY: u8 = 1;
/// A write-back of it is under way.
const WRITING: u8 = 2;
/// It is not in the cache any more, and lives until its last hold is given up.
const OUT: u8 = 4;
/// Its last write-back failed.
const FAILED: u8 = 8;
/// Its block is of the program's allocator.
const SPARE: u8 = 16;

/// The beginning of an entry's block. The cells are read and written under the lock of the entry's shard.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// The key's hash, spread.
    pub hash: u64,
    /// What it counts in the cache's bytes. Written before the entry is shared.
    pub weight: usize,
    /// Who holds it.
    pub pins: Pins,
    /// Its number in the shard's policy.
    pub number: Cell<u32>,
    state: Cell<u8>,
    /// The next and the previous one in the shard's list of dirty entries, or of those being written back.
    pub links: Cell<[Option<NonNull<Header>>; 2]>,
}

/// An entry's state, by name.
macro_rules! states {
    ($($(#[doc = $what:literal])+ $get:ident $set:ident $bit:ident;)*) => {$(
        $(#[doc = $what])+
        pub fn $get(&self) -> bool {
            self.state.get() & $bit != 0
        }
        /// Sets that.
        pub fn $set(&self, on: bool) {
            self.state.set(if on { self.state.get() | $bit } else { self.state.get() & !$bit });
        }
    )*};
}

impl Header {
    /// Of an entry that is to be put in: the cache will hold it, and the guard that its maker gets.
    pub const fn new(hash: u64) -> Self {
        let links = Cell::new([None; 2]);
        Self { hash, weight: 0, pins: Pins::new(2), number: Cell::new(0), state: Cell::new(0), links }
    }

    states! {
        /// Whether it was changed since it was last handed out to be written back.
        is_dirty set_dirty DIRTY;
        /// Whether it is being written back.
        is_writing set_writing WRITING;
        /// Whether it was taken out of the cache.
        is_out set_out OUT;
        /// Whether its last write-back failed.
        is_failed set_failed FAILED;
        /// Whether its block is of the program's allocator, as the cache's place had none. Set before the entry is shared.
        is_spare set_spare SPARE;
    }
}

/// What a cache's entries hold: keys and values of two types, or bytes.
///
/// # Safety
/// `layout` is that which the entry's block was allocated with; `key` and `value` lie in the block.
pub unsafe trait Content: 'static + Sized {
    /// What entries are found by.
    type Key: ?Sized;
    /// What they hold.
    type Value: ?Sized;

    /// Whether two keys are the same.
    fn is_same(a: &Self::Key, b: &Self::Key) -> bool;

    /// The block's layout.
    ///
    /// # Safety
    /// The entry is valid.
    unsafe fn layout(entry: NonNull<Header>) -> Layout;

    /// The key.
    ///
    /// # Safety
    /// The entry is valid and has its key as long as the reference lives.
    unsafe fn key<'a>(entry: NonNull<Header>) -> &'a Self::Key;

    /// The value.
    ///
    /// # Safety
    /// The entry is valid and has its value as long as the reference lives.
    unsafe fn value<'a>(entry: NonNull<Header>) -> &'a Self::Value;

    /// Drops the key.
    ///
    /// # Safety
    /// The entry has its key, which is not used afterwards.
    unsafe fn drop_key(entry: NonNull<Header>);

    /// Drops the value.
    ///
    /// # Safety
    /// The entry has its value, which is not used afterwards.
    unsafe fn drop_value(entry: NonNull<Header>);
}
