//! Typed object caches.

mod builder;
mod cache;
mod calls;
mod errors;
mod lifetime;
mod raw;

pub use builder::ObjectCacheBuilder;
pub use cache::{CacheBox, ObjectCache};
pub use errors::AllocError;
pub use lifetime::{PerUse, Retained, ValueLifetime};
