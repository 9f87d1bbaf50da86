//! A client's session: handshake, then requests until it ends.

mod context;
mod execute;
mod farewell;
mod handshake;
mod home;
mod memory;
mod output;
mod transmission;

pub use context::{Context, Guest, Limits, TlsMode};
pub use home::Home;
