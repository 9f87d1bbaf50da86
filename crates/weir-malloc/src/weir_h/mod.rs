//! `weir.h`: what a program can do with Weir beyond malloc. The header is the documentation; the two are kept alike by a test
//! that compiles it. The functions have the header's names here, so none of them calls another: see `names`.
//!
//! | module | concept |
//! |---|---|
//! | `weir_abi`, `ctl_abi` | what is idle, and blocks that a program moves; settings and figures |
//! | `cache_abi`, `cache_stats_abi` | object caches and their figures |
//! | `cache_callback` | calls of a cache's callbacks, out of which no exception comes |
//! | `object_mark` | which objects of a cache the program holds, where a wrong free would go unnoticed |
//! | `callback_abi` | shrinkers and pressure |
//! | `zone_abi` | zones |
//! | `zone_runs` | where a zone's runs begin and end, so that only whole ones are freed |
//! | `page_pool_abi` | page pools |
//! | `evictable_abi` | evictable caches and their figures |
//! | `handle` | what C has a pointer to, and how a wrong pointer is noticed |
//! | `structs` | structures that either side may have an older form of |

pub mod cache_abi;
mod cache_callback;
pub mod cache_stats_abi;
pub mod callback_abi;
pub mod ctl_abi;
pub mod evictable_abi;
pub mod handle;
mod object_mark;
pub mod page_pool_abi;
mod structs;
pub mod weir_abi;
pub mod zone_abi;
mod zone_runs;
