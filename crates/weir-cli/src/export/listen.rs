//! The socket at which the exporter listens.

use crate::base::failure::Failure;
use crate::base::listen_address::Address;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A socket that listens.
pub enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// The file of a Unix socket, removed at the end.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens at an address.
    pub fn bind(address: &Address) -> Result<Self, Failure> {
        let bound = match address {
            Address::Tcp(address) => std::net::TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => bind_unix(path),
        };
        bound.map_err(|error| Failure::of_weir(format!("cannot listen at {address}: {error}")))
    }
}

/// A socket that the owner and the group may connect to. A file that an exporter left behind when it was killed is
/// replaced; one at which something listens is not, and neither is any other file.
fn bind_unix(path: &Path) -> std::io::Result<Listener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    let bound = UnixListener::bind(path).or_else(|error| {
        let is_socket = || path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        let is_stale = || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if error.kind() != ErrorKind::AddrInUse || !is_socket() || !is_stale() {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    })?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(Listener::Unix(bound, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_left_behind_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&address).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        assert!(Listener::bind(&address).is_err(), "something listens there");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }
}
