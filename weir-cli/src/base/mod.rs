//! What every command needs: errors, sizes and times, and writing where nobody may read.

pub mod failure;
pub mod output;
pub mod sink;
pub mod units;
