//! Where the server listens.

use crate::protocol::constants::PORT;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address of a listener: `127.0.0.1:10809`, `[::1]`, `[fe80::1%eth0]:1`, `localhost:10810`, `unix:/run/disk.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port. A name stands for all its addresses.
    Tcp { host: String, port: u16 },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Default for Address {
    /// The registered port, for this machine's own programs only.
    fn default() -> Self {
        Self::Tcp { host: "127.0.0.1".into(), port: PORT }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no address: write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH");
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        let bracketed = text.strip_prefix('[').and_then(|text| text.split_once(']'));
        let (bare, port) = match bracketed {
            Some((bare, "")) => (bare, PORT),
            Some((bare, port)) => (bare, port.strip_prefix(':').and_then(number).ok_or_else(wrong)?),
            None => (text, PORT),
        };
        // Only addresses of IPv6 have colons, and only these are in brackets.
        if is_ip(bare) && (bracketed.is_none() || bare.contains(':')) {
            return Ok(Self::Tcp { host: bare.into(), port });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, number(port).ok_or_else(wrong)?),
            None => (text, PORT),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        // A number alone was meant as a port, and would be an address: 0.0.42.57 for 10809.
        let is_number = host.chars().all(|c| c.is_ascii_digit());
        if is_number || !host.chars().all(is_name) { Err(wrong()) } else { Ok(Self::Tcp { host: host.into(), port }) }
    }
}

/// The number of a port: digits alone, without a sign.
fn number(port: &str) -> Option<u16> {
    port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An address in numbers. One of IPv6 may have a zone, the name or number of an interface, which libc looks up.
fn is_ip(text: &str) -> bool {
    match text.split_once('%') {
        Some((ip, zone)) => {
            let is_of_name = |c: char| c.is_ascii_graphic() && !"/:[]%".contains(c);
            ip.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(is_of_name)
        }
        None => text.parse::<IpAddr>().is_ok(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0", "0.0.0.0:10809"),
            ("[::1]:5", "[::1]:5"),
            ("[::]", "[::]:10809"),
            ("::1", "[::1]:10809"),
            ("[fe80::1%eth0.1]:5", "[fe80::1%eth0.1]:5"),
            ("[fe80::1%2]", "[fe80::1%2]:10809"),
            ("fe80::1%eth0", "[fe80::1%eth0]:10809"),
            ("host-1.local:9", "host-1.local:9"),
            ("my_service", "my_service:10809"),
            ("localhost", "localhost:10809"),
            ("unix:/a b", "unix:/a b"),
        ] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(written.into()), "{text}");
        }
        for text in ["", ":1", "unix:", "host:", "host:99999", "a b:1", "10809", "10809:1", "[::1]x", "http://x"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        for text in ["[::1]:+5", "host:+5", "[127.0.0.1]:5", "[127.0.0.1]", "[localhost]:5"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        for text in ["[fe80::1%]:1", "[fe80::1%a b]", "[fe80::1%eth0]1", "fe80::1%eth0:1", "127.0.0.1%lo", "[x%lo]:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
