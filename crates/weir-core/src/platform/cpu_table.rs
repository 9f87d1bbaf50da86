//! Memory that the restartable sections of the fast path work on. A table has an entry for each CPU, which points to a slab of
//! buckets. The protocol is in [`crate::caches::cpu::buckets`].

use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering::Relaxed};

use crate::base::size_class::{CLASS, MIN_ALIGN};
use crate::base::units::{Class, PAGE};

/// CPU indices that the table has room for.
pub const MAX_CPUS: usize = 1024;
/// The index of a thread that has none: its entry is the dummy for good. A platform's threads have it before the fast
/// path is set up, so that what they began then can never touch buckets that exist after.
pub const NO_CPU: usize = MAX_CPUS;
/// Classes there may be.
pub(crate) const CLASSES: usize = 256;
/// Classes that buckets may have: the last few are marks.
pub(crate) const BUCKETS: usize = CLASSES - 3;
/// Words (of 8 bytes) before the first slot: a header a class, then two counters of four bytes a class.
pub(crate) const FIRST_SLOT: usize = CLASSES * 2;
/// Bytes before the first slot: whole pages.
pub(crate) const SLOTS: usize = FIRST_SLOT * 8;
const _: () = assert!(size_of::<CpuSlab>() == SLOTS && SLOTS.is_multiple_of(PAGE));
/// Where a class's slots are, in words from the slab's start. `slot[current - 1]` is the object on top, or zero.
///
/// Two words, so that a commit stores `current` alone: all of what the next section loads, and nothing of `end`. A load of bytes
/// that two stores wrote waits for the cache.
#[repr(C)]
pub(crate) struct Header {
    /// The slot that a push writes next.
    pub(crate) current: AtomicU32,
    /// The slot at which a push is refused.
    pub(crate) end: AtomicU32,
}

/// One CPU's buckets: for each class a header, counters, and slots.
#[repr(C, align(64))]
pub struct CpuSlab {
    pub(crate) headers: [Header; CLASSES],
    /// Objects pushed one by one.
    pub(crate) pushes: [AtomicU32; CLASSES],
    /// Objects that came from the depot, less those that went there: by this CPU's slow paths, modulo 2^32.
    pub(crate) came: [AtomicU32; BUCKETS],
    /// Frees of runs that found no room in a bucket, modulo 2^16.
    pub(crate) refused: AtomicU16,
    /// The run class that slow paths handed out last, and how often in a row. 0: none yet.
    pub(crate) asked: AtomicU16,
    /// A run that waits for the CPU's next visit to its zone, with its class in the bits below a page.
    pub(crate) waiting: AtomicPtr<u8>,
}

/// Where in a header `end` is, bytes: for the platform's assembly.
pub const END_OFFSET: usize = core::mem::offset_of!(Header, end);
/// Where in a slab the counters of pushes begin, bytes: for the platform's assembly.
pub const PUSHES_OFFSET: usize = core::mem::offset_of!(CpuSlab, pushes);

#[repr(C, align(64))]
struct DummySlab(CpuSlab, [u64; 2]);

/// Current and end of a bucket that is empty and full at once: the word before its first slot is zero.
pub(crate) const DUMMY_SLOT: u32 = FIRST_SLOT as u32 + 1;

impl Header {
    const fn new(begin: u32, objects: u32) -> Self {
        Self { current: AtomicU32::new(begin), end: AtomicU32::new(begin + objects) }
    }
}

static DUMMY: DummySlab = DummySlab(
    CpuSlab {
        headers: [const { Header::new(DUMMY_SLOT, 0) }; CLASSES],
        pushes: [const { AtomicU32::new(0) }; CLASSES],
        came: [const { AtomicU32::new(0) }; BUCKETS],
        refused: AtomicU16::new(0),
        asked: AtomicU16::new(0),
        waiting: AtomicPtr::new(core::ptr::null_mut()),
    },
    [0; 2],
);

/// Outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The object is in the bucket.
    Done,
    /// The bucket is full.
    Full,
    /// This object is on the bucket's top already: it was freed twice.
    Twice,
}

/// Table that the fast path reads: each CPU's slab, and the class of a size. They lie beside each other so that one register
/// holds the address of both.
#[repr(C, align(64))]
pub struct Table {
    entries: [AtomicPtr<CpuSlab>; MAX_CPUS + 1],
    classes: [Class; CLASS.len()],
}

/// Where in a table the classes by `(size + 15) / 16` begin, bytes: for the platform's assembly.
pub const CLASSES_OFFSET: usize = core::mem::offset_of!(Table, classes);

impl Table {
    /// All entries are the dummy.
    pub(crate) const fn new() -> Self {
        Self { entries: [const { AtomicPtr::new(dummy()) }; MAX_CPUS + 1], classes: CLASS }
    }

    /// The class of objects of `size` bytes, at most [`MAX_SIZE`](crate::base::size_class::MAX_SIZE).
    #[inline(always)]
    pub(crate) fn class_of(&self, size: usize) -> Class {
        self.classes[size.div_ceil(MIN_ALIGN)]
    }

    /// The slab that `cpu`'s fast path uses now.
    pub fn entry(&self, cpu: usize) -> &AtomicPtr<CpuSlab> {
        &self.entries[cpu]
    }
}

pub(crate) const fn dummy() -> *mut CpuSlab {
    (&raw const DUMMY.0).cast_mut()
}

impl CpuSlab {
    /// The slot at `word`.
    pub(crate) fn slot(slab: *const Self, word: u32) -> *mut *mut u8 {
        slab.cast::<*mut u8>().cast_mut().wrapping_add(word as usize)
    }

    /// Stores `object` at `word`, in one piece: figures read slots while their CPU goes on.
    ///
    /// # Safety
    /// `word` names a slot of the slab.
    unsafe fn put(slab: *const Self, word: u32, object: *mut u8) {
        // SAFETY: the caller says that the slot is there; it is aligned, and what reads it meanwhile does so by atomics.
        unsafe { AtomicPtr::from_ptr(Self::slot(slab, word)) }.store(object, Relaxed);
    }

    /// Pops without restartable sections.
    ///
    /// # Safety
    /// Nobody else works on the slab now.
    pub unsafe fn pop(slab: *const Self, class: Class) -> *mut u8 {
        // SAFETY: the caller promises that no other thread works on the slab. `current` is above the word before the class's
        // first slot, so that `top` names that word, which is zero, or a slot.
        unsafe {
            let current = &(*slab).headers[class.index()].current;
            let top = current.load(Relaxed) - 1;
            let object = *Self::slot(slab, top);
            if !object.is_null() {
                current.store(top, Relaxed);
            }
            object
        }
    }

    /// Pushes the first of `objects`, as many as fit, without restartable sections; returns how many. They are not
    /// counted as frees: they may come from the depot.
    ///
    /// # Safety
    /// Nobody else works on the slab now.
    pub unsafe fn push_batch(slab: *const Self, class: Class, objects: &[*mut u8]) -> usize {
        // SAFETY: the caller promises that no other thread works on the slab. `end` is at most the end of the class's slots, so
        // the `n` slots from `current` on are the class's.
        unsafe {
            let header = &(*slab).headers[class.index()];
            let current = header.current.load(Relaxed);
            let n = objects.len().min(header.end.load(Relaxed).saturating_sub(current) as usize);
            for (i, &object) in objects[..n].iter().enumerate() {
                Self::put(slab, current + i as u32, object);
            }
            header.current.store(current + n as u32, Relaxed);
            n
        }
    }

    /// Pushes without restartable sections.
    ///
    /// # Safety
    /// Nobody else works on the slab now.
    pub unsafe fn push(slab: *const Self, class: Class, object: *mut u8) -> Pushed {
        // SAFETY: the caller promises that no other thread works on the slab. The word before `current` is a slot of the class
        // or the zero word before them; `current` is written to only below `end`, where it names a slot.
        unsafe {
            let header = &(*slab).headers[class.index()];
            let current = header.current.load(Relaxed);
            if *Self::slot(slab, current - 1) == object {
                return Pushed::Twice;
            }
            if current >= header.end.load(Relaxed) {
                return Pushed::Full;
            }
            Self::put(slab, current, object);
            (*slab).pushes[class.index()].store((*slab).pushes[class.index()].load(Relaxed).wrapping_add(1), Relaxed);
            header.current.store(current + 1, Relaxed);
            Pushed::Done
        }
    }
}
