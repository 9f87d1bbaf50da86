//! What every command needs: errors, sizes and times, results in files, output.

pub mod failure;
pub mod output;
pub mod sink;
pub mod units;
