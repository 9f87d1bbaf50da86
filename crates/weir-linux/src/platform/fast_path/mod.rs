//! Numbers that a fast path written by hand is made of: offsets in the heap and in a CPU's slab, bytes. The files below have
//! the restartable sequences that it runs in.

mod own_registration;
pub mod rseq;
pub mod rseq_area;

pub use weir_core::base::size_class::MIN_ALIGN;
pub use weir_core::base::units::PAGE_SHIFT;
pub use weir_core::platform::cpu_table::{CLASSES_OFFSET as CLASSES, END_OFFSET as END, PUSHES_OFFSET as PUSHES};

use crate::platform::linux::Engine;

/// The table of CPUs.
pub const TABLE: usize = Engine::FAST[0];
/// The window's address.
pub const BASE: usize = Engine::FAST[1];
/// The window's pages.
pub const TOP: usize = Engine::FAST[2];
/// The class map's address.
pub const CLASS_MAP: usize = Engine::FAST[3];
