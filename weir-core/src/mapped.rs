//! Blocks beyond the largest order, mapped on their own: where each begins, how long it is.
//!
//! An open-addressing table keyed by the block's address, in memory of the platform's; it doubles when it is half
//! full and never shrinks (16 bytes for each 4 MiB block and more).

use crate::lock::Lock;
use crate::page::PAGE;
use crate::platform::Run;

/// The blocks behind their lock.
pub type Mapped = Lock<Blocks, 4>;

/// All blocks mapped on their own.
pub struct Blocks {
    slots: *mut Run,
    capacity: usize,
    /// Blocks there are.
    pub count: usize,
    /// Bytes of them.
    pub bytes: usize,
}

// SAFETY: the table is reached only through the lock around it.
unsafe impl Send for Blocks {}

impl Blocks {
    /// No blocks.
    pub const fn new() -> Self {
        Self { slots: core::ptr::null_mut(), capacity: 0, count: 0, bytes: 0 }
    }

    fn slot(&self, i: usize) -> *mut Run {
        self.slots.wrapping_add(i & (self.capacity - 1))
    }

    /// The slot that holds `addr`, or the empty one where it would go.
    fn find(&self, addr: usize) -> *mut Run {
        let mut i = (addr / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        loop {
            let slot = self.slot(i);
            // SAFETY: inside the table; at least half of it is empty, so the loop ends.
            let at = unsafe { (*slot).addr };
            if at == addr || at == 0 {
                return slot;
            }
            i += 1;
        }
    }

    /// Length of the block that begins at `addr`.
    pub fn get(&self, addr: usize) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: `find` returns a slot of the table.
        let run = unsafe { *self.find(addr) };
        (run.addr == addr).then_some(run.len)
    }

    /// Whether there is room for one more block; if not, the capacity of the table to pass to [`Blocks::rehash`].
    pub fn wants(&self) -> Option<usize> {
        let room = (self.count + 1) * 2 <= self.capacity;
        (!room).then(|| (self.capacity * 2).max(PAGE / size_of::<Run>()))
    }

    /// Moves to a zeroed table of `capacity` slots at `table`; returns the memory to unmap: the old table, or the new
    /// one if another thread was quicker.
    pub fn rehash(&mut self, table: usize, capacity: usize) -> Option<Run> {
        if capacity <= self.capacity {
            return Some(Run { addr: table, len: capacity * size_of::<Run>() });
        }
        let old = core::mem::replace(self, Self { slots: table as *mut Run, capacity, count: 0, bytes: 0 });
        for i in 0..old.capacity {
            // SAFETY: inside the old table.
            let run = unsafe { *old.slots.add(i) };
            if run.addr != 0 {
                self.insert(run);
            }
        }
        let len = old.capacity * size_of::<Run>();
        (len != 0).then_some(Run { addr: old.slots as usize, len })
    }

    /// Adds a block; there is room for it.
    pub fn insert(&mut self, run: Run) {
        // SAFETY: `find` returns a slot of the table.
        unsafe { *self.find(run.addr) = run };
        self.count += 1;
        self.bytes += run.len;
    }

    /// Takes a block out; returns its length.
    pub fn remove(&mut self, addr: usize) -> Option<usize> {
        let len = self.get(addr)?;
        let mut hole = (self.find(addr) as usize - self.slots as usize) / size_of::<Run>();
        let mut at = hole;
        // Entries behind the hole that were pushed past it move back, so that no search stops short.
        loop {
            at += 1;
            // SAFETY: inside the table.
            let run = unsafe { *self.slot(at) };
            if run.addr == 0 {
                break;
            }
            let home = (run.addr / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let mask = self.capacity - 1;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                // SAFETY: inside the table.
                unsafe { *self.slot(hole) = run };
                hole = at;
            }
        }
        // SAFETY: inside the table.
        unsafe { *self.slot(hole) = Run { addr: 0, len: 0 } };
        self.count -= 1;
        self.bytes -= len;
        Some(len)
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self::new()
    }
}
