//! Connections: where they come from, and their bytes, with TLS or without.

mod address;
mod input;
mod listener;
mod pace;
mod socket;
mod stream;
mod tls_config;
mod tls_stream;

pub use address::Address;
pub use input::Input;
pub use listener::{Listener, control_socket};
pub use pace::shut_down;
pub use stream::Stream;
pub use tls_config::{TlsFiles, load as load_tls};
