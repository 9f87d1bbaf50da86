//! Block servers: starting each in the same way, their clients, and their exports as files and devices.

pub mod block_device;
pub mod client;
pub mod fio;
pub mod servers;
