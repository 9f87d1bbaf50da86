//! The command line.

use crate::base::size::{CacheSize, Size};
use crate::io::Engine;
use crate::transport::Address;
use clap::{Args, Parser, Subcommand};
use humantime::Duration;
use std::path::PathBuf;
use tracing::Level;

/// A block server: exports files, block devices and memory over NBD.
#[derive(Debug, Parser)]
#[command(name = "weir-nbd", version, arg_required_else_help = true)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve exports until SIGTERM; SIGHUP reads the configuration file again.
    Serve(Box<Serve>),
    /// Show what a running server does.
    Stat(Stat),
    /// Write this program's man pages and shell completions.
    Generate {
        /// Where to: a directory, which is made.
        directory: PathBuf,
    },
}

/// Options of `serve`. Each but `--config` and `--log` has a counterpart in the configuration file, which it overrides.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// A file, a block device, or `memory:SIZE`, and the name that clients give.
    #[arg(long, value_name = "NAME=PATH")]
    pub export: Vec<NamedPath>,
    /// The same, for reading only.
    #[arg(long, value_name = "NAME=PATH")]
    pub read_only_export: Vec<NamedPath>,
    /// The export of clients that give no name; a server's only one needs no mention.
    #[arg(long, value_name = "NAME")]
    pub default: Option<String>,
    /// HOST:PORT or unix:PATH; may be repeated. Without it, the sockets of the service manager, or 127.0.0.1:10809.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// A configuration file, in TOML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The socket for `weir-nbd stat`, or `none`.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The server's certificate, in PEM: clients may use TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Clients need a certificate of this authority, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without TLS.
    #[arg(long, requires = "tls_certificate")]
    pub tls_required: bool,
    /// Threads that serve clients [default: one a CPU, at most 8].
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// How I/O is done [default: auto].
    #[arg(long, value_enum)]
    pub io: Option<Engine>,
    /// Most clients at a time [default: 10000].
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Longest data of one request [default: 32M].
    #[arg(long, value_name = "SIZE")]
    pub max_request: Option<Size>,
    /// Memory for the requests of one client [default: 64M].
    #[arg(long, value_name = "SIZE")]
    pub max_client_memory: Option<Size>,
    /// Memory for the requests of all clients, divided among the workers [default: 512M].
    #[arg(long, value_name = "SIZE")]
    pub max_memory: Option<Size>,
    /// Cache blocks of files and devices: this many bytes at most, or as many as memory allows.
    #[arg(long, value_name = "SIZE|auto")]
    pub cache: Option<CacheSize>,
    /// Answer a write when it is in the cache, before it is in the file; a flush waits for the file.
    #[arg(long, requires = "cache")]
    pub write_back: bool,
    /// Resident memory that the server should stay under; its cache shrinks to stay there.
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Size>,
    /// Pages of 4 KiB that each connection keeps for its next requests [default: 1024].
    #[arg(long, value_name = "N")]
    pub max_idle_pages: Option<u64>,
    /// Milliseconds after memory pressure in which connections keep no pages; 0: pressure does not count [default: 10].
    #[arg(long, value_name = "N")]
    pub squeeze_ms: Option<u64>,
    /// Register memory with io_uring for direct I/O, which a server with a cache does [default: false].
    #[arg(long, value_name = "true|false")]
    pub registered_buffers: Option<bool>,
    /// Time for a client to choose an export [default: 30s].
    #[arg(long, value_name = "TIME")]
    pub handshake_timeout: Option<Duration>,
    /// Time for the rest of what a client sends or has to read, or 1 KiB for each second of it [default: 1m].
    #[arg(long, value_name = "TIME")]
    pub client_timeout: Option<Duration>,
    /// Time for requests in flight when the server is stopped [default: 30s].
    #[arg(long, value_name = "TIME")]
    pub stop_timeout: Option<Duration>,
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log: Level,
}

/// Options of `stat`.
#[derive(Clone, Debug, Args)]
pub struct Stat {
    /// The server's control socket [default: as for `serve`].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `NAME=PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// The export's name.
    pub name: String,
    /// Where its bytes are.
    pub path: String,
}

impl std::str::FromStr for NamedPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !path.is_empty() => Ok(Self { name: name.into(), path: path.into() }),
            _ => Err(format!("'{text}' is no export: write NAME=PATH")),
        }
    }
}
