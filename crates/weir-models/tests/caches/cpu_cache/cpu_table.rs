//! What sections work on: the table of one CPU, and its slab.

use std::cell::Cell;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{self, Relaxed};
use loom::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32};

use crate::Flaw;
use crate::base::units::Class;

pub const MAX_CPUS: usize = 1;
pub const NO_CPU: usize = MAX_CPUS;
pub const CLASSES: usize = 4;
pub const BUCKETS: usize = CLASSES - 1;
pub const FIRST_SLOT: usize = 0;
pub const DUMMY_SLOT: u32 = 1;
/// Words of a slab: three slots of each class, and one before them.
const WORDS: usize = 9;
pub const SLOTS: usize = 0;

thread_local! {
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

/// What is wrong in the models that this thread runs next.
pub fn set_flaw(flaw: Flaw) {
    FLAW.set(flaw);
}

/// One of a header's words: of its own, or half of a word that both share.
pub struct Word {
    word: Arc<AtomicU32>,
    shift: Option<u32>,
}

impl Word {
    pub fn load(&self, order: Ordering) -> u32 {
        let word = self.word.load(order);
        self.shift.map_or(word, |shift| word >> shift & 0xffff)
    }

    pub fn store(&self, value: u32, order: Ordering) {
        let Some(shift) = self.shift else { return self.word.store(value, order) };
        let other = self.word.load(Relaxed) & !(0xffff << shift);
        self.word.store(other | value << shift, order);
    }

    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        if FLAW.get() == Flaw::NoExchange {
            let before = self.load(order);
            self.store(value, order);
            return before;
        }
        self.word.swap(value, order)
    }
}

pub struct Header {
    pub current: Word,
    pub end: Word,
}

impl Header {
    fn new() -> Self {
        let word = || Arc::new(AtomicU32::new(0));
        if FLAW.get() == Flaw::OneWord {
            let both = word();
            return Self {
                current: Word { word: both.clone(), shift: Some(0) },
                end: Word { word: both, shift: Some(16) },
            };
        }
        Self { current: Word { word: word(), shift: None }, end: Word { word: word(), shift: None } }
    }
}

pub struct CpuSlab {
    pub headers: [Header; CLASSES],
    pub pushes: [AtomicU32; CLASSES],
    pub came: [AtomicU32; CLASSES],
    pub refused: AtomicU16,
    pub asked: AtomicU16,
    pub waiting: AtomicPtr<u8>,
    slots: [UnsafeCell<*mut u8>; WORDS],
}

impl CpuSlab {
    pub fn new() -> Self {
        Self {
            headers: std::array::from_fn(|_| Header::new()),
            pushes: std::array::from_fn(|_| AtomicU32::new(0)),
            came: std::array::from_fn(|_| AtomicU32::new(0)),
            refused: AtomicU16::new(0),
            asked: AtomicU16::new(0),
            waiting: AtomicPtr::new(std::ptr::null_mut()),
            slots: std::array::from_fn(|_| UnsafeCell::new(std::ptr::null_mut())),
        }
    }

    pub fn slot(slab: *const Self, word: u32) -> *mut *mut u8 {
        // SAFETY: the models' slabs live until their end, and audits, which read slots, are in none of them.
        unsafe { (&(*slab).slots)[word as usize].with(|slot| slot.cast_mut()) }
    }

    /// # Safety
    /// The slab is there. That nobody else works on it is what the protocol is to guarantee, and the checker to check.
    pub unsafe fn pop(slab: *const Self, class: Class) -> *mut u8 {
        // SAFETY: as the caller says.
        let slab = unsafe { &*slab };
        let current = &slab.headers[class.index()].current;
        let top = current.load(Relaxed) - 1;
        // SAFETY: as above.
        let object = slab.slots[top as usize].with(|slot| unsafe { *slot });
        if !object.is_null() {
            current.store(top, Relaxed);
        }
        object
    }

    /// # Safety
    /// As of [`CpuSlab::pop`].
    pub unsafe fn push(slab: *const Self, class: Class, object: *mut u8) -> bool {
        // SAFETY: as the caller says.
        let slab = unsafe { &*slab };
        let Header { current, end } = &slab.headers[class.index()];
        let at = current.load(Relaxed);
        if at >= end.load(Relaxed) {
            return false;
        }
        // SAFETY: as above.
        slab.slots[at as usize].with_mut(|slot| unsafe { *slot = object });
        current.store(at + 1, Relaxed);
        true
    }
}

/// The table's entry.
pub struct Entry(AtomicPtr<CpuSlab>);

impl Entry {
    pub fn load(&self, order: Ordering) -> *mut CpuSlab {
        self.0.load(order)
    }

    pub fn store(&self, slab: *mut CpuSlab, order: Ordering) {
        if FLAW.get() != Flaw::NoDummy || slab != dummy() {
            self.0.store(slab, order);
        }
    }
}

pub struct Table([Entry; MAX_CPUS]);

impl Table {
    pub fn new() -> Self {
        Self([Entry(AtomicPtr::new(dummy()))])
    }

    pub fn entry(&self, cpu: usize) -> &Entry {
        &self.0[cpu]
    }
}

/// No slab: its address tells it apart.
pub fn dummy() -> *mut CpuSlab {
    std::ptr::dangling_mut()
}
