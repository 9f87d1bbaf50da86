//! The socket at which the exporter listens.

use crate::base::failure::Failure;
use crate::base::listen_address::Address;
use crate::base::own_name::OwnName;
use crate::metrics_server::Stream;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};

/// A socket that listens.
pub enum Listener {
    Tcp(TcpListener),
    /// Its name goes before the socket does.
    Unix(OwnName, UnixListener),
}

impl Listener {
    /// Listens at an address.
    pub async fn bind(address: &Address) -> std::result::Result<Self, Failure> {
        let bound = match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Unix(path) => bind_unix(path),
        };
        bound.map_err(|error| Failure::of_weir(format!("cannot listen at {address}: {error}")))
    }

    /// The address, with the port that the kernel chose, if it was to choose one.
    pub fn address(&self) -> Result<Address> {
        Ok(match self {
            Self::Tcp(socket) => Address::Tcp(socket.local_addr()?),
            Self::Unix(name, _) => Address::Unix(name.path.clone()),
        })
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(socket) => Box::new(socket.accept().await?.0),
            Self::Unix(_, socket) => Box::new(socket.accept().await?.0),
        })
    }
}

/// A socket that the owner and the group may connect to. A file that an exporter left behind when it was killed is
/// replaced. One at which something listens is not, and neither is any other file.
fn bind_unix(path: &Path) -> Result<Listener> {
    let bound = UnixListener::bind(path).or_else(|error| {
        let is_socket = || path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        let connected = || std::os::unix::net::UnixStream::connect(path);
        let is_stale = || connected().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if error.kind() != ErrorKind::AddrInUse || !is_socket() || !is_stale() {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    })?;
    let name = OwnName::of(path);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(Listener::Unix(name, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_left_behind_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bind = || runtime.block_on(Listener::bind(&Address::Unix(path.clone())));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = bind().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        assert!(bind().is_err(), "something listens there");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert!(bind().is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn the_socket_of_a_successor_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bind = || runtime.block_on(Listener::bind(&Address::Unix(path.clone()))).unwrap();
        let listener = bind();
        std::fs::remove_file(&path).unwrap();
        let successor = bind();
        drop(listener);
        assert!(path.exists());
        drop(successor);
        assert!(!path.exists());
    }
}
