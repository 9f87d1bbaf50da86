//! Tools that every command needs: errors, sizes and times, addresses, results in files and their names, output, threads.

pub mod descriptors;
pub mod failure;
pub mod json;
pub mod listen_address;
pub mod output;
pub mod own_name;
pub mod parallel;
pub mod sink;
pub mod table;
pub mod units;
