//! Operations of the kernel for tasks: a worker a thread, by io_uring or by epoll and threads.

mod busy_poll;
mod calls;
mod driver;
mod engine;
mod epoll;
mod fixed;
mod inbox;
mod message;
mod operation;
mod pool;
mod reactor;
mod uring;
mod worker;

pub use calls::{Acceptor, Inline};
pub use engine::Engine;
pub use fixed::Squeezer;
pub use message::{MAX_PARTS, Message, Part};
pub use pool::Pool;
pub use reactor::{Alarm, Reactor, Remote};
pub use worker::Worker;
