//! arm64.

pub mod catch;
pub mod page;
pub mod registers;
pub mod sections;
pub mod signal;
mod syndrome;
#[macro_use]
pub mod system_call;
pub mod thread;
