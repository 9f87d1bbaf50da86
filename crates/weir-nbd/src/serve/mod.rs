//! The server as a whole: settings, workers, signals, statistics.

mod acceptor;
mod control;
mod descriptors;
mod report;
mod request_memory;
mod server;
mod settings;
mod stat;
mod workers;

pub use server::serve;
pub use stat::stat;
