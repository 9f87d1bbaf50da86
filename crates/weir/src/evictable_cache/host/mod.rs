//! What a cache has of the process around it. Where Weir runs that is Weir's: its heap and locks, and reclaim, which reaches all
//! caches. On other systems a cache is a plain one with a bound, on what the standard library has (`cfg(plain)`; the build
//! script says where).

#[cfg(plain)]
pub mod alone;
#[cfg(not(plain))]
mod fork;
#[cfg(plain)]
mod plain;
#[cfg(not(plain))]
pub mod reclaim;
#[cfg(not(plain))]
mod weir;

#[cfg(plain)]
pub use plain::*;
#[cfg(not(plain))]
pub use weir::*;
