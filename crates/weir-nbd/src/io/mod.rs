//! Workers: threads with a runtime each (tokio's), and the operations of files, which a runtime does not wait for by itself.

mod file;
mod operation;
mod remote;
mod ring;
mod worker;

pub use file::{Inline, allocate, discard, on_thread, read_at, sync, write_at};
pub use remote::Remote;
pub use worker::{Engine, Worker, blocking, main_runtime, spawn, stop, yield_once};
