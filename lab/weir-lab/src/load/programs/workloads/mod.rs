//! The workloads of E9: what papers and peers measure allocators with. The table of them is [`crate::table`].

pub mod alloc_test;
pub mod apps;
pub mod cache_lines;
pub mod churn;
pub mod glibc_bench;
pub mod larson;
pub mod mstress;
pub mod rptest;
pub mod sh;
pub mod short_threads;
pub mod xmalloc;
