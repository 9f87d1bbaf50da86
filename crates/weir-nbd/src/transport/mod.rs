//! Connections: where they come from, and their bytes, with TLS or without.

mod address;
mod busy_poll;
mod connection;
mod input;
mod listener;
mod socket;
mod tls_config;

pub use address::Address;
pub use connection::{Connection, Reader, Writer};
pub use input::Input;
pub use listener::{Listener, control_socket};
pub use tls_config::{TlsFiles, load as load_tls};
