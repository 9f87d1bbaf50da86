//! Parts that experiments share: the laboratory of a run with its rounds and tables, children and their measures, the
//! machine and its settings.

pub mod chart;
pub mod child;
pub mod grid;
pub mod lab;
pub mod machine;
pub mod nbd;
pub mod prelude;
pub mod proc_files;
pub mod statistics;
#[cfg(target_arch = "x86_64")]
pub mod stepping;
