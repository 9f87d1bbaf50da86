//! The control channel: the same user and root may look at the process and steer it while it runs (`weir ctl`).
//!
//! A Unix socket that keeps messages apart, in the background thread's own descriptor table. Its abstract name is told on the
//! page of counters. Each message is one line of text. The channel speaks first (`weir control VERSION`); the client's first
//! message is `token` and 32 hexadecimal digits, which the page tells too, and is answered `ok`.
//!
//! | part | what it does |
//! |---|---|
//! | [`channel`] | the socket, who may connect, and how many |
//! | [`request`] | what a message means |
//! | [`answer`] | what is done, and what is said |
//! | [`event`] | what subscribers are told |
//!
//! What holds:
//! - The kernel says which process connects (`SO_PEERCRED`). All but the process's own effective user and root are refused. Where
//!   the process is not to be looked into by its own user (it is not dumpable), all but root are.
//! - A client is answered nothing before it has sent the token; a wrong message ends the connection. The name of the socket is
//!   listed for all in the network namespace, and a user's sandboxed processes are of the same user. The page is opened only to
//!   who may look into the process, so that steering demands the same.
//! - Nothing waits: no call blocks, and a client that does not read its answers is closed. Between two requests the thread goes
//!   on with all else that it does. There are as many clients as have places; the one that was silent for longest makes place for
//!   another.
//! - No lock of the heap is held while a message is received or sent.
//! - A socket without a file leaves nothing behind, however the process ends. Neither `fork` nor `exec` takes it along: the
//!   descriptor table is the thread's.
//! - At rest nothing wakes: without a client there is no timer.

pub mod answer;
pub mod channel;
pub mod event;
pub mod request;

/// The version of the protocol: the first message that a client gets says it.
pub const VERSION: u32 = 2;
/// Bytes of the longest request.
pub const LONGEST_REQUEST: usize = 256;
/// Bytes of the longest answer.
pub const LONGEST_ANSWER: usize = 4096;
