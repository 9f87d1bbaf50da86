//! State of a machine with one CPU and no interrupts: nothing can come between two of its instructions.

use core::cell::{RefCell, RefMut};

/// A value for which no lock is needed. Entering it twice is a panic, not a data race.
pub struct OneCpu<T>(RefCell<T>);

// SAFETY: whoever made the value promised (see `new`) that one thread of execution uses it.
unsafe impl<T> Sync for OneCpu<T> {}

impl<T> OneCpu<T> {
    /// Wraps a value.
    ///
    /// # Safety
    /// Only one thread of execution ever uses it: one CPU, no interrupt handler.
    pub const unsafe fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// The value, until the guard is dropped.
    pub fn get(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}
