//! The process's heap.

use core::ops::Deref;
use weir_core::heap::Heap;

use crate::platform::linux::Linux;

/// The one heap; public for fast paths written by hand, which address its fields by [`Heap::FAST`].
pub static HEAP: Process = Process(Heap::new(Linux::new()));

/// The engine on Linux.
#[repr(transparent)]
pub struct Process(Heap<Linux>);

impl Process {
    /// [`Heap::FAST`].
    pub const FAST: [usize; 4] = Heap::<Linux>::FAST;

    /// The engine.
    pub fn engine(&self) -> &Heap<Linux> {
        &self.0
    }

    /// Lets the next free notify again.
    pub fn forget_notice(&self) {
        self.0.forget_notice();
    }
}

impl Deref for Process {
    type Target = Heap<Linux>;
    #[inline(always)]
    fn deref(&self) -> &Heap<Linux> {
        &self.0
    }
}
