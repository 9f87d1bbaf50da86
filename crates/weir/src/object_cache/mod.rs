//! Typed object caches.
//!
//! There are two kinds:
//! - In a cache of values *per use* ([`ObjectCache::new`]) a value is moved in by each allocation and dropped at each
//!   free. An object is a `Box` that comes from a cache.
//! - In a cache of *retained* values ([`ObjectCacheBuilder::retained`]) a value is made once, when its slab comes, and
//!   dropped when the slab is released. In between it is handed out again and again as it was left, with what is costly
//!   to build (buffers, locks, tables) still in it. `on_alloc` and `on_free` are called at each use. These are UMA's
//!   ctor and dtor, and init and fini.
//!
//! Free objects are reclaimed when memory is short; objects in use are never touched.
//!
//! A panic of a value's drop, of a closure, or of what makes values costs the value that it is about and no object. The
//! value's object is freed, and so are the others of a batch. Only the drop of a retained value whose slab is released
//! may not panic: that ends the process. It runs on a thread of the library's, in [`heap::trim`](crate::heap::trim) on the
//! thread that calls it, or as the cache ends.

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
