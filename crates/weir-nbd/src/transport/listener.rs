//! Listening sockets: TCP, Unix, and those that systemd has opened.

use super::address::Address;
use crate::base::Failure;
use rustix::net::{self, AddressFamily, sockopt};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket.
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Where it listens, as a client would name it.
    pub name: String,
    /// Other machines may reach it.
    pub is_public: bool,
    /// Removed when the server ends.
    file: Option<SocketFile>,
}

impl Listener {
    /// Opens the sockets of an address: a host may have several.
    pub fn open(address: &Address) -> Result<Vec<Self>, Failure> {
        match address {
            Address::Unix(path) => {
                let (listener, file) = bind_unix(path).map_err(Failure::because(address))?;
                Ok(vec![Self {
                    socket: listener.into(),
                    name: address.to_string(),
                    is_public: false,
                    file: Some(file),
                }])
            }
            Address::Tcp { host, port } => {
                Self::bind_all((host.as_str(), *port).to_socket_addrs().map_err(Failure::because(address))?)
            }
        }
    }

    /// Binds the addresses of a host, but for those that this machine lacks: `localhost` has one of IPv6 everywhere. An error if none
    /// is left.
    fn bind_all(addresses: impl Iterator<Item = SocketAddr>) -> Result<Vec<Self>, Failure> {
        let (mut opened, mut lacking) = (Vec::new(), Ok(()));
        for address in addresses {
            let failed = Failure::because(address);
            match TcpListener::bind(address) {
                Ok(listener) => {
                    let bound = listener.local_addr().map_err(failed)?;
                    let is_public = !bound.ip().is_loopback();
                    opened.push(Self { socket: listener.into(), name: bound.to_string(), is_public, file: None });
                }
                Err(why) if matches!(why.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT)) => {
                    let why = failed(why);
                    tracing::info!("left out, as this machine lacks it: {why}");
                    lacking = Err(why);
                }
                Err(why) => return Err(failed(why)),
            }
        }
        if opened.is_empty() {
            lacking?;
        }
        Ok(opened)
    }

    /// The socket, and what has to be kept as long as the server lives.
    pub fn into_parts(self) -> (OwnedFd, impl Send) {
        (self.socket, self.file)
    }

    /// The sockets that systemd hands over to this process (`LISTEN_FDS`).
    pub fn inherited() -> Result<Vec<Self>, Failure> {
        let what = "the sockets of the service manager";
        let descriptors = sd_notify::listen_fds().map_err(Failure::because(what))?;
        descriptors.map(Self::inherit).collect()
    }

    fn inherit(descriptor: RawFd) -> Result<Self, Failure> {
        let name = format!("descriptor {descriptor} of the service manager");
        // SAFETY: the variables of the service manager say that it is open and for this process, which reads them once.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(Failure::new(format!("{name} is no listening socket (Accept=no is needed)")));
        }
        let local = net::getsockname(&socket).map_err(Failure::because(&name))?;
        let is_public = match SocketAddr::try_from(local.clone()) {
            Ok(address) => !address.ip().is_loopback(),
            Err(_) => local.address_family() != AddressFamily::UNIX,
        };
        Ok(Self { socket, name, is_public, file: None })
    }
}

/// The socket for `weir-nbd stat`.
pub fn control_socket(path: &Path) -> Result<(UnixListener, impl Send + use<>), Failure> {
    bind_unix(path).map_err(Failure::because(format_args!("the control socket {}", path.display())))
}

/// Binds a Unix socket. One that a dead server left behind is replaced; one that is in use, or any other file, is not.
fn bind_unix(path: &Path) -> std::io::Result<(UnixListener, SocketFile)> {
    let listener = match UnixListener::bind(path) {
        Err(why) if why.kind() == ErrorKind::AddrInUse && is_left_behind(path)? => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile { path: path.into(), identity: identity(path) };
    Ok((listener, file))
}

/// A socket without a listener. Connecting to a file of another type is refused in the same way.
fn is_left_behind(path: &Path) -> std::io::Result<bool> {
    let is_refused = matches!(UnixStream::connect(path), Err(why) if why.kind() == ErrorKind::ConnectionRefused);
    Ok(is_refused && std::fs::symlink_metadata(path)?.file_type().is_socket())
}

/// Device and inode of what has this name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// A socket's name in the file system. It goes before the socket does: as long as that is open, no other has its inode.
struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have the name by now.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // It may have been removed by hand.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_of_an_address_is_an_interface_by_name_or_number() {
        for text in ["[fe80::1%lo]:0", "[fe80::1%1]:0"] {
            // As a rule there is no such address, and the refusal has what was bound.
            let said = match Listener::open(&text.parse().expect("an address")) {
                Ok(opened) => opened[0].name.clone(),
                Err(why) => why.to_string(),
            };
            assert!(said.starts_with("[fe80::1%1]:"), "{text}: {said}");
        }
        let unknown = Listener::open(&"[fe80::1%none]:1".parse().expect("an address")).err().expect("no interface");
        assert!(unknown.to_string().starts_with("[fe80::1%none]:1: "), "{unknown}");
    }

    #[test]
    fn an_address_that_this_machine_lacks_is_left_out_as_long_as_there_is_another() {
        let taken =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| Ok((socket.local_addr()?, socket))).expect("a port");
        let [lacking, here] =
            ["192.0.2.1:0", "127.0.0.1:0"].map(|text| text.parse::<SocketAddr>().expect("an address"));
        if TcpListener::bind(lacking).is_ok() {
            return weir_testing::skip!("this kernel binds addresses that the machine lacks");
        }
        let names = |addresses: &[SocketAddr]| {
            let opened = Listener::bind_all(addresses.iter().copied()).map_err(|why| why.to_string())?;
            Ok::<_, String>(opened.into_iter().map(|one| one.name).collect::<Vec<_>>())
        };
        for all in [[lacking, here], [here, lacking]] {
            let names = names(&all).expect("one of them");
            assert!(names.len() == 1 && names[0].starts_with("127.0.0.1:"), "{names:?}");
        }
        let why = names(&[lacking]).expect_err("none is left");
        assert!(why.starts_with("192.0.2.1:0: "), "{why}");
        let why = names(&[taken.0, here]).expect_err("this is no lack");
        assert!(why.starts_with(&format!("{}: ", taken.0)), "{why}");
    }

    #[test]
    fn the_name_of_a_successor_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let (_listener, name) = bind_unix(&path).expect("a socket");
        std::fs::remove_file(&path).expect("the name");
        let (_successor, its_name) = bind_unix(&path).expect("a socket");
        drop(name);
        assert!(path.exists());
        drop(its_name);
        assert!(!path.exists());
    }
}
