//! Workers: threads with a runtime each (tokio's), and the operations of files, which a runtime does not wait for by itself.

mod file;
mod fixed;
mod ring;
mod worker;

pub use file::{Inline, allocate, read_at, sync, write_at};
pub use fixed::Squeezer;
pub use ring::take_fixed;
pub use worker::{Engine, Remote, Worker, blocking, is_stopping, spawn, stop, yield_once};
