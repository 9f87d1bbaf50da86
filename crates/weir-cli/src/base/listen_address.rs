//! Where a server listens: a TCP address or a Unix socket.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Reads an address of the command line.
pub fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
        return match path {
            "" => Err("`unix:` names no socket: write unix:/run/weir/metrics.sock".into()),
            path => Ok(Address::Unix(path.into())),
        };
    }
    let wrong = || format!("`{text}` is no address: write HOST:PORT, such as 127.0.0.1:19347, or unix:PATH");
    // A name may stand for several addresses: the first counts.
    text.to_socket_addrs().ok().and_then(|mut found| found.next()).map(Address::Tcp).ok_or_else(wrong)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_slips_refused() {
        assert_eq!(parse("127.0.0.1:0"), Ok(Address::Tcp(([127, 0, 0, 1], 0).into())));
        assert_eq!(parse("[::1]:80").map(|address| address.to_string()), Ok("http://[::1]:80/metrics".into()));
        for path in ["/run/weir.sock", "unix:/run/weir.sock"] {
            assert_eq!(parse(path), Ok(Address::Unix("/run/weir.sock".into())));
        }
        for wrong in ["", "19347", "127.0.0.1", "127.0.0.1:99999", "unix:", "http://127.0.0.1:1"] {
            assert!(parse(wrong).is_err_and(|say| say.contains("write")), "{wrong}");
        }
    }
}
