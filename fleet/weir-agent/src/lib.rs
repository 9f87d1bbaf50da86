//! The node agent of Weir: it shows what the pods of its node need of memory, lowers what they do not, and raises it again.
//! See README.md.

pub mod agent;
pub mod api;
pub mod hands;
pub mod machine;
pub mod merging;
pub mod metrics;
pub mod once;
pub mod options;
pub mod policy;
pub mod recommend;
pub mod relief;
pub mod resize;
