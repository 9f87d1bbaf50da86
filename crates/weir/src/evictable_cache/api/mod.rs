//! The part that programs see: the two kinds of cache, how they are made, their guards, errors, figures, hashes and weights.

pub mod async_load;
pub mod builder;
pub mod byte_builder;
pub mod byte_cache;
pub mod cache;
pub mod common;
pub mod errors;
pub mod guards;
pub mod hasher;
pub mod owned;
pub mod stats;
pub mod weigh;
