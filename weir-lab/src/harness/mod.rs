//! What experiments share: children and what is measured of them, the machine and its settings, statistics and tables.

pub mod args;
pub mod block_device;
pub mod cgroup;
pub mod child;
pub mod exclusive;
pub mod fio;
pub mod folder;
pub mod huge_pages;
pub mod json;
pub mod machine;
pub mod nbd_client;
pub mod nbd_servers;
pub mod phases;
pub mod pressure_fifo;
pub mod proc_files;
pub mod programs;
pub mod resp;
pub mod restore;
pub mod rounds;
#[cfg(target_arch = "x86_64")]
pub mod single_step;
pub mod statistics;
pub mod stats_page;
pub mod swap;
pub mod tables;
pub mod thread_limit;
