//! arm64.

#[cfg(not(target_feature = "crt-static"))]
pub mod dlopen;
pub mod fast_path;
pub mod jump;
pub mod panic;
pub mod throw;
