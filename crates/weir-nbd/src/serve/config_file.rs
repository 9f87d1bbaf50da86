//! The configuration file.

use crate::base::Failure;
use crate::base::size::{CacheSize, Size};
use crate::io::Engine;
use crate::transport::{Address, TlsFiles};
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a configuration file may say. Each entry is the option of the same name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ConfigFile {
    pub export: Vec<ExportEntry>,
    pub default: Option<String>,
    pub listen: Vec<Address>,
    pub control: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub workers: Option<usize>,
    pub io: Option<Engine>,
    pub max_connections: Option<usize>,
    pub max_request: Option<Size>,
    pub max_client_memory: Option<Size>,
    pub max_memory: Option<Size>,
    pub cache: Option<CacheSize>,
    pub write_back: bool,
    pub limit: Option<Size>,
    pub max_idle_pages: Option<u64>,
    pub squeeze_ms: Option<u64>,
    pub registered_buffers: Option<bool>,
    #[serde(deserialize_with = "duration")]
    pub handshake_timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub client_timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub stop_timeout: Option<Duration>,
}

/// An `[[export]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExportEntry {
    pub name: String,
    /// A file or a block device. One of this and `memory`.
    pub path: Option<PathBuf>,
    /// So much memory.
    pub memory: Option<Size>,
    /// The file is made with this size if it is not there.
    pub create: Option<Size>,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub description: String,
    /// Only for clients with TLS.
    #[serde(default)]
    pub tls: bool,
}

impl ConfigFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(Failure::because(path.display()))?;
        toml::from_str(&text).map_err(|why| {
            let line = why.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            Failure::new(format!("{}: line {line}: {}", path.display(), why.message().replace('\n', " ")))
        })
    }
}

/// A time as people write it: `30s`, `1m 30s`.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |why| serde::de::Error::custom(format!("'{text}' is no time: {why}"));
    humantime::parse_duration(&text).map(Some).map_err(wrong)
}
