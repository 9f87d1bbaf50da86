//! x86-64.

pub mod dlopen;
pub mod fast_path;
pub mod jump;
pub mod panic;
pub mod throw;
