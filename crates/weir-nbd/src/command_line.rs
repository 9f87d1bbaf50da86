//! The command line, the configuration file, whose entries are options, and what is generated from them.

use crate::base::Failure;
use crate::base::size::{CacheSize, Size};
use crate::io::Engine;
use crate::transport::{Address, TlsFiles};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use humantime::Duration;
use serde::{Deserialize, Deserializer};
use std::io;
use std::path::{Path, PathBuf};
use tracing::Level;

/// A block server: exports files, block devices and memory over NBD.
#[derive(Debug, Parser)]
#[command(name = "weir-nbd", version, arg_required_else_help = true)]
pub struct CommandLine {
    /// The command that is asked for.
    #[command(subcommand)]
    pub command: Command,
}

/// The program's commands.
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

/// Options of `serve` that only the command line has, or has in another form.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// A file, a block device, or `memory:SIZE`, and the name that clients give.
    #[arg(long, value_name = "NAME=PATH")]
    pub export: Vec<NamedPath>,
    /// A file, a block device, or `memory:SIZE`, for reading only, and the name that clients give.
    #[arg(long, value_name = "NAME=PATH")]
    pub read_only_export: Vec<NamedPath>,
    /// A configuration file, in TOML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The server's certificate, in PEM: clients may use TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Clients need a certificate of this authority, in PEM: those without TLS are refused.
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without TLS.
    #[arg(long)]
    pub tls_required: bool,
    /// Options that the configuration file can have too; these go over it.
    #[command(flatten)]
    pub options: Options,
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log: Level,
}

/// The contents of the configuration file. Each entry but the first two is an option of the same name, which goes over
/// it.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// Exports.
    #[arg(skip)]
    pub export: Vec<ExportEntry>,
    /// Certificates.
    #[arg(skip)]
    pub tls: Option<TlsFiles>,
    /// The export of clients that give no name; a server's only one needs no mention.
    #[arg(long, value_name = "NAME")]
    pub default: Option<String>,
    /// HOST:PORT or unix:PATH; may be repeated. Without it, the sockets of the service manager, or 127.0.0.1:10809.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// The socket for `weir-nbd stat`, or `none`.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Threads that serve clients [default: one a CPU, at most 8].
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// How I/O on files is done [default: auto].
    #[arg(long, value_enum)]
    pub io: Option<Engine>,
    /// Most clients at a time [default: 10000].
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Longest data of one request [default: half of a worker's part of max-memory, at most 32M].
    #[arg(long, value_name = "SIZE")]
    pub max_request: Option<Size>,
    /// Memory for the requests of one client [default: a worker's part of max-memory, at most 64M].
    #[arg(long, value_name = "SIZE")]
    pub max_client_memory: Option<Size>,
    /// Memory for the requests of all clients, divided among the workers [default: a quarter of what
    /// the server may have by its control group, the machine and `limit`, at most 512M].
    #[arg(long, value_name = "SIZE")]
    pub max_memory: Option<Size>,
    /// Cache blocks of files and devices: this many bytes at most, or as many as memory allows.
    #[arg(long, value_name = "SIZE|auto")]
    pub cache: Option<CacheSize>,
    /// Answer a write when it is in the cache, before it is in the file; a flush waits for the file.
    #[arg(long)]
    pub write_back: bool,
    /// Lock so much memory: request data and cached blocks lie there first, and then in other memory.
    #[arg(long, value_name = "SIZE")]
    pub locked_memory: Option<Size>,
    /// Resident memory that the server should stay under; its cache shrinks to stay there [default: with a cache, three
    /// quarters of the control group's limit, or all but 512M of it].
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Size>,
    /// Pages of 4 KiB that each connection keeps for its next requests [default: 1024].
    #[arg(long, value_name = "N")]
    pub max_idle_pages: Option<u64>,
    /// Milliseconds after memory pressure in which connections keep no pages; 0: pressure does not count [default: 10].
    #[arg(long, value_name = "N")]
    pub squeeze_ms: Option<u64>,
    /// Time for a client to choose an export [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(deserialize_with = "time")]
    pub handshake_timeout: Option<Duration>,
    /// Time for the rest of what a client sends or has to read, or 1 KiB for each second of it [default: 1m].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(deserialize_with = "time")]
    pub client_timeout: Option<Duration>,
    /// Time for requests in flight when the server is stopped [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(deserialize_with = "time")]
    pub stop_timeout: Option<Duration>,
}

impl Options {
    /// Each of these, or else `file`'s; exports and certificates are the file's.
    pub fn over(self, file: Self) -> Self {
        Self {
            export: file.export,
            tls: file.tls,
            default: self.default.or(file.default),
            listen: if self.listen.is_empty() { file.listen } else { self.listen },
            control: self.control.or(file.control),
            workers: self.workers.or(file.workers),
            io: self.io.or(file.io),
            max_connections: self.max_connections.or(file.max_connections),
            max_request: self.max_request.or(file.max_request),
            max_client_memory: self.max_client_memory.or(file.max_client_memory),
            max_memory: self.max_memory.or(file.max_memory),
            cache: self.cache.or(file.cache),
            write_back: self.write_back || file.write_back,
            locked_memory: self.locked_memory.or(file.locked_memory),
            limit: self.limit.or(file.limit),
            max_idle_pages: self.max_idle_pages.or(file.max_idle_pages),
            squeeze_ms: self.squeeze_ms.or(file.squeeze_ms),
            handshake_timeout: self.handshake_timeout.or(file.handshake_timeout),
            client_timeout: self.client_timeout.or(file.client_timeout),
            stop_timeout: self.stop_timeout.or(file.stop_timeout),
        }
    }

    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(Failure::because(path.display()))?;
        toml::from_str(&text).map_err(|why| {
            let line = why.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            Failure::new(format!("{}: line {line}: {}", path.display(), why.message().replace('\n', " ")))
        })
    }
}

/// Reads a time as people write it: `30s`, `1m 30s`.
fn parse_time(text: &str) -> Result<Duration, String> {
    text.parse().map_err(|why| format!("'{text}' is no time ({why}): write a number with ms, s or m, such as 30s"))
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    parse_time(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
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
    /// The file is made with this size if it is not there, or empty.
    pub create: Option<Size>,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub description: String,
    /// Only for clients with TLS.
    #[serde(default)]
    pub tls: bool,
}

/// Options of `stat`.
#[derive(Clone, Debug, Args)]
pub struct Stat {
    /// The server's control socket [default: as for `serve`, or that of the service `weir-nbd`].
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

/// Writes `man1/weir-nbd*.1`, a page for each command, and `completions/` for three shells.
pub fn generate(directory: &Path) -> Result<(), Failure> {
    write(directory).map_err(Failure::because(format_args!("cannot write {}", directory.display())))
}

fn write(directory: &Path) -> io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    std::fs::create_dir_all(&pages)?;
    std::fs::create_dir_all(&completions)?;
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut CommandLine::command(), "weir-nbd", &completions)?;
    }
    Ok(())
}

/// The page of a command and those of its subcommands. All name the program's version; a subcommand has none of its own.
fn write_pages(command: &clap::Command, pages: &Path) -> io::Result<()> {
    command.get_subcommands().try_for_each(|subcommand| write_pages(subcommand, pages))?;
    let page = Man::new(command.clone()).source(concat!("weir-nbd ", env!("CARGO_PKG_VERSION")));
    page.generate_to(pages).map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_page_names_the_programs_version() {
        let folder = tempfile::tempdir().unwrap();
        super::write(folder.path()).unwrap();
        let pages: Vec<_> =
            std::fs::read_dir(folder.path().join("man1")).unwrap().map(|page| page.unwrap().path()).collect();
        assert!(pages.len() > 1, "{pages:?}");
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
            assert!(
                title.contains(concat!(" \"weir-nbd ", env!("CARGO_PKG_VERSION"), "\"")),
                "{}: {title}",
                page.display()
            );
        }
    }
}
