//! The protocol's messages: parsed, checked and written, without any I/O.

pub mod client_option;
pub mod constants;
pub mod fault;
pub mod option_reply;
pub mod reply;
pub mod request;

pub use fault::{ErrorCode, Fault};
pub use reply::{Address, Extent, Style};
pub use request::{Command, Header, Terms};
