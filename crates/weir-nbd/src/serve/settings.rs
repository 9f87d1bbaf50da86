//! Settings by the command line and the configuration file together.

use super::request_memory::{Available, Held, MIN_LIMIT, RequestMemory, Set};
use crate::backend::Source;
use crate::base::Failure;
use crate::base::size::{CacheSize, Size};
use crate::buffers::PoolSettings;
use crate::command_line::{ExportEntry, NamedPath, Options, Serve};
use crate::export::Definition;
use crate::io::Engine;
use crate::protocol::constants::MIN_UNFRAGMENTED;
use crate::session::Limits;
use crate::transport::{Address, TlsFiles};
use std::path::PathBuf;
use std::time::Duration;

/// A worker for each CPU, but no more than these: more only divide the memory.
const MAX_WORKERS: usize = 8;
/// Least cache, bytes.
const MIN_CACHE: u64 = 1 << 20;
/// Longest data of one request that can be set, bytes: a quarter of what a length's 32 bits can say.
const MAX_REQUEST: u64 = 1 << 30;
/// Least time that a client gets: without any, none is served.
const MIN_TIME: Duration = Duration::from_millis(1);
/// Longest time that can be set, 100 years: a clock cannot count on to any.
const MAX_TIME: Duration = Duration::from_secs(100 * 31_557_600);

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    pub exports: Vec<Definition>,
    pub default: Option<String>,
    pub listen: Vec<Address>,
    /// `None`: no control socket.
    pub control: Option<Control>,
    pub tls: Option<TlsFiles>,
    pub workers: usize,
    pub io: Engine,
    pub max_connections: usize,
    pub limits: Limits,
    /// The bounds of the memory of requests, and whether the one for all of them is set.
    pub memory: RequestMemory,
    pub is_memory_set: bool,
    /// Memory that the server may have, and what it cannot give back of it.
    pub available: Available,
    pub held: Held,
    pub cache: Option<CacheSettings>,
    /// Bytes that are locked.
    pub locked_memory: Option<u64>,
    /// Bytes that the process should stay under.
    pub limit: Option<u64>,
    pub pools: PoolSettings,
    pub stop_timeout: Duration,
}

/// The block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Most bytes; none: as memory allows.
    pub max: Option<u64>,
    /// Writes are answered before they are in the file.
    pub writes_back: bool,
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    pub path: PathBuf,
    /// Whether the path was set: if it cannot be opened then, the server does not start.
    pub is_chosen: bool,
}

impl Control {
    /// The socket at `chosen`, or where the service manager or the user's session has room for it.
    pub fn find(chosen: Option<PathBuf>) -> Option<Self> {
        match chosen {
            Some(path) => (path.as_os_str() != "none").then_some(Self { path, is_chosen: true }),
            None => Self::places().next().map(|path| Self { path, is_chosen: false }),
        }
    }

    /// Where the socket of a running server may be: at `chosen`, or at one of the places, the likeliest first.
    pub fn of_server(chosen: Option<PathBuf>) -> Vec<PathBuf> {
        match chosen {
            Some(path) if path.as_os_str() == "none" => Vec::new(),
            Some(path) => vec![path],
            None => Self::places().collect(),
        }
    }

    /// Where a server's socket can be. The last is that of a service: its folder is not in the environment of others.
    fn places() -> impl Iterator<Item = PathBuf> {
        let of_service = std::env::var_os("RUNTIME_DIRECTORY");
        // The service manager names all folders that the service has.
        let of_service = of_service.and_then(|all| std::env::split_paths(&all).next());
        let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let folders = of_service.into_iter().chain(of_session).chain(["/run", "/run/weir-nbd"].map(PathBuf::from));
        folders.map(|folder| folder.join("weir-nbd.control"))
    }
}

impl Settings {
    /// Reads the configuration file, if there is one, and puts the options over it.
    pub fn load(options: &Serve) -> Result<Self, Failure> {
        let file = options.config.as_deref().map(Options::read).transpose()?.unwrap_or_default();
        Self::merge(options.clone(), file, Available::find())
    }

    fn merge(mut serve: Serve, file: Options, available: Available) -> Result<Self, Failure> {
        let options = std::mem::take(&mut serve.options).over(file);
        let tls = merge_tls(&serve, options.tls)?;
        let mut exports = options.export.into_iter().map(from_file).collect::<Result<Vec<_>, _>>()?;
        for (named, read_only) in [(serve.export, false), (serve.read_only_export, true)] {
            exports.extend(named.into_iter().map(|one| from_option(one, read_only)).collect::<Result<Vec<_>, _>>()?);
        }
        if exports.is_empty() {
            return Err(Failure::new(
                "nothing to export: give --export NAME=PATH, or --config FILE with an [[export]]",
            ));
        }
        let workers = options.workers.unwrap_or_else(cpus);
        let limit = options.limit.map(|size| size.0);
        // 0 is none.
        if limit.is_some_and(|limit| (1..MIN_LIMIT).contains(&limit)) {
            return Err(Failure::new(format!("limit: less than {} is less than any program takes", Size(MIN_LIMIT))));
        }
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        let set = Set {
            request: bytes(options.max_request),
            client: bytes(options.max_client_memory),
            all: bytes(options.max_memory),
        };
        let locked_memory = bytes(options.locked_memory);
        let held = Held { locked: locked_memory.unwrap_or(0), exports: in_memory(&exports) };
        let memory = RequestMemory::new(set, workers, available.for_requests(limit, held));
        check(workers, memory)?;
        let max_connections = options.max_connections.unwrap_or(10_000);
        if max_connections == 0 {
            return Err(Failure::new("max-connections: 0 would refuse every client"));
        }
        let pools = PoolSettings { max_idle_pages: options.max_idle_pages, squeeze_ms: options.squeeze_ms };
        pools.check()?;
        let writes_back = options.write_back;
        let cache = options.cache.map(|CacheSize(size)| CacheSettings { max: size.map(|size| size.0), writes_back });
        if cache.is_some_and(|cache| cache.max.is_some_and(|max| max < MIN_CACHE)) {
            return Err(Failure::new(format!("cache: less than {} is of no use", Size(MIN_CACHE))));
        }
        if cache.is_none() && writes_back {
            return Err(Failure::new("write-back: there is no cache: give its size, or 'auto'"));
        }
        if tls.is_none() && exports.iter().any(|export| export.tls_only) {
            return Err(Failure::new("an export is for clients with TLS only, but the server has no certificate"));
        }
        Ok(Self {
            exports,
            default: options.default,
            listen: options.listen,
            control: Control::find(options.control),
            tls,
            workers,
            io: options.io.unwrap_or_default(),
            max_connections,
            limits: Limits {
                request: memory.request as u32,
                client_memory: memory.client as usize,
                worker_memory: memory.all as usize / workers,
                handshake: time("handshake-timeout", options.handshake_timeout, 30, MIN_TIME)?,
                patience: time("client-timeout", options.client_timeout, 60, MIN_TIME)?,
            },
            memory,
            is_memory_set: set.all.is_some(),
            available,
            held,
            cache,
            locked_memory,
            limit,
            pools,
            stop_timeout: time("stop-timeout", options.stop_timeout, 30, Duration::ZERO)?,
        })
    }
}

/// Each option goes over its entry, and over no other: a certificate on the command line leaves what the file asks of clients.
fn merge_tls(serve: &Serve, file: Option<TlsFiles>) -> Result<Option<TlsFiles>, Failure> {
    let own = serve.tls_certificate.clone().zip(serve.tls_key.clone());
    let mut tls = match (own, file) {
        (Some((certificate, key)), Some(file)) => TlsFiles { certificate, key, ..file },
        (Some((certificate, key)), None) => TlsFiles { certificate, key, client_ca: None, required: None },
        (None, Some(file)) => file,
        (None, None) if serve.tls_required || serve.tls_client_ca.is_some() => {
            return Err(Failure::new("TLS is asked for, but there is no --tls-certificate, nor one in the file"));
        }
        (None, None) => return Ok(None),
    };
    // The option says that clients need a certificate: an entry that lets others in does not undo it.
    if serve.tls_required || serve.tls_client_ca.is_some() {
        tls.required = Some(true);
    }
    tls.client_ca = serve.tls_client_ca.clone().or(tls.client_ca);
    Ok(Some(tls))
}

/// A time that is set, or `default` seconds.
fn time(name: &str, set: Option<humantime::Duration>, default: u64, least: Duration) -> Result<Duration, Failure> {
    let time = set.map_or(Duration::from_secs(default), Into::into);
    if (least..=MAX_TIME).contains(&time) {
        return Ok(time);
    }
    let [time, least, most] = [time, least, MAX_TIME].map(humantime::format_duration);
    Err(Failure::new(format!("{name}: {time} is not between {least} and {most}")))
}

/// Bytes of exports in memory. One that is read only is not written.
fn in_memory(exports: &[Definition]) -> u64 {
    let size = |export: &Definition| match export.source {
        Source::Memory(Size(size)) if !export.read_only => size,
        _ => 0,
    };
    exports.iter().map(size).fold(0, u64::saturating_add)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MAX_WORKERS))
}

/// A request has to fit into each budget, else it would wait for ever.
fn check(workers: usize, memory: RequestMemory) -> Result<(), Failure> {
    let RequestMemory { request, client: client_memory, all: max_memory } = memory;
    let wrong = |what: String| Err(Failure::new(what));
    let least = u64::from(MIN_UNFRAGMENTED);
    if !(1..=1024).contains(&workers) {
        return wrong(format!("workers: {workers} is not between 1 and 1024"));
    }
    if !(least..=MAX_REQUEST).contains(&request) {
        return wrong(format!(
            "max-request: {} is not between {} and {}",
            Size(request),
            Size(least),
            Size(MAX_REQUEST)
        ));
    }
    if client_memory < request {
        return wrong(format!(
            "max-client-memory: {} is less than one request of {}",
            Size(client_memory),
            Size(request)
        ));
    }
    let share = max_memory / workers as u64;
    if share < request {
        let (memory, needed) = (Size(max_memory), Size(request * workers as u64));
        return wrong(format!(
            "max-memory: {memory} is too little: {workers} workers need {needed} for a request each"
        ));
    }
    Ok(())
}

fn from_option(named: NamedPath, read_only: bool) -> Result<Definition, Failure> {
    let NamedPath { name, path } = named;
    let source = match path.strip_prefix("memory:") {
        Some(size) => Source::Memory(size.parse().map_err(Failure::because(format_args!("export '{name}'")))?),
        None => Source::Path { path: path.into(), create: None },
    };
    Ok(Definition { name, source, read_only, description: String::new(), tls_only: false })
}

fn from_file(entry: ExportEntry) -> Result<Definition, Failure> {
    let ExportEntry { name, path, memory, create, read_only, description, tls } = entry;
    let wrong = |what| Err(Failure::new(format!("export '{name}': {what}")));
    let source = match (path, memory, create) {
        (Some(path), None, create) => Source::Path { path, create },
        (None, Some(size), None) => Source::Memory(size),
        (None, Some(_), Some(_)) => return wrong("'create' is for files"),
        _ => return wrong("one of 'path' and 'memory' is needed"),
    };
    Ok(Definition { name, source, read_only, description, tls_only: tls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::{Command, CommandLine};
    use clap::Parser;

    fn settings(options: &[&str], file: &str) -> Result<Settings, String> {
        let line = ["weir-nbd", "serve"].iter().chain(options);
        let Command::Serve(options) = CommandLine::try_parse_from(line).map_err(|why| why.to_string())?.command else {
            unreachable!("'serve' was given")
        };
        let file = toml::from_str(file).map_err(|why| why.message().to_string())?;
        let available = Available { group: None, machine: 16 << 30 };
        Settings::merge(*options, file, available).map_err(|why| why.to_string())
    }

    fn refused(options: &[&str], file: &str) -> String {
        settings(options, file).expect_err("it is wrong")
    }

    #[test]
    fn options_go_over_the_file() {
        let file = "workers = 3\nmax-request = '1M'\nhandshake-timeout = '5s'\n[[export]]\nname = 'a'\nmemory = '1M'\n";
        let both = settings(&["--workers", "2", "--export", "b=/x=y"], file).expect("valid");
        assert_eq!((both.workers, both.limits.request, both.limits.handshake.as_secs()), (2, 1 << 20, 5));
        let names: Vec<_> = both.exports.iter().map(|export| format!("{}:{}", export.name, export.source)).collect();
        assert_eq!(names, ["a:memory:1M", "b:/x=y"]);
        let file = format!("cache = 'auto'\nwrite-back = true\nlimit = '1G'\n{file}");
        let cached = settings(&["--cache", "64M"], &file).expect("valid");
        assert_eq!(cached.cache, Some(CacheSettings { max: Some(64 << 20), writes_back: true }));
        assert_eq!(cached.limit, Some(1 << 30));
        let file = format!("max-idle-pages = 7\nsqueeze-ms = 8\n{file}");
        let pools = settings(&["--squeeze-ms", "0"], &file).expect("valid").pools;
        assert_eq!(pools, PoolSettings { max_idle_pages: Some(7), squeeze_ms: Some(0) });
        assert_eq!(settings(&[], &file).expect("valid").cache, Some(CacheSettings { max: None, writes_back: true }));
    }

    #[test]
    fn a_certificate_on_the_command_line_leaves_what_the_file_asks_of_clients() {
        let file = "[tls]\ncertificate = 'c'\nkey = 'k'\n";
        let strict = format!("{file}client-ca = 'ca'\nrequired = true\n");
        let tls = |options: &[&str], file: &str| {
            let options = [&["--export", "a=memory:1M"], options].concat();
            let tls = settings(&options, file).expect("valid").tls.expect("a certificate");
            let text = |path: PathBuf| path.to_string_lossy().into_owned();
            let is_required = tls.is_required();
            (text(tls.certificate), text(tls.key), tls.client_ca.map(text), is_required)
        };
        let new = ["--tls-certificate", "c2", "--tls-key", "k2"];
        assert_eq!(tls(&new, &strict), ("c2".into(), "k2".into(), Some("ca".into()), true));
        assert_eq!(tls(&["--tls-client-ca", "ca2"], &strict), ("c".into(), "k".into(), Some("ca2".into()), true));
        assert_eq!(tls(&new, ""), ("c2".into(), "k2".into(), None, false));
        assert_eq!(tls(&["--tls-required"], file), ("c".into(), "k".into(), None, true));
        // An authority for clients' certificates requires them, unless the file says the contrary.
        let with_ca = format!("{file}client-ca = 'ca'\n");
        let open = format!("{with_ca}required = false\n");
        assert!(tls(&[], &with_ca).3 && tls(&new, &with_ca).3 && !tls(&[], &open).3);
        assert!(tls(&["--tls-client-ca", "ca2"], file).3 && tls(&["--tls-client-ca", "ca2"], &open).3);
        assert!(tls(&["--tls-required"], &open).3);
    }

    #[test]
    fn write_back_on_the_command_line_is_of_the_files_cache() {
        let cache = settings(&["--export", "a=memory:1M", "--write-back"], "cache = '8M'\n").expect("valid").cache;
        assert_eq!(cache, Some(CacheSettings { max: Some(8 << 20), writes_back: true }));
    }

    #[test]
    fn exports_in_memory_and_locked_memory_are_held() {
        let file = "locked-memory = '8M'\n[[export]]\nname = 'a'\nmemory = '1M'\nread-only = true\n";
        let held = settings(&["--export", "b=memory:2M", "--export", "c=memory:4M", "--export", "d=/x"], file);
        let Held { locked, exports } = held.expect("valid").held;
        assert_eq!((locked, exports), (8 << 20, 6 << 20));
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_line_that_says_why() {
        let export = ["--export", "a=memory:1M"];
        let with = |more: &[&str]| refused(&[&export, more].concat(), "");
        assert!(refused(&[], "").contains("nothing to export"));
        assert!(with(&["--workers", "0"]).contains("workers: 0"));
        assert!(with(&["--max-request", "1K"]).contains("max-request: 1K"));
        assert!(with(&["--max-client-memory", "63K"]).contains("max-client-memory: 63K"));
        let large = ["--max-request", "32M", "--workers", "2"];
        assert!(with(&[&large[..], &["--max-memory", "33M"]].concat()).contains("max-memory: 33M"));
        assert!(with(&["--max-memory", "127K", "--workers", "2"]).contains("max-memory: 127K"));
        assert!(with(&["--tls-required"]).contains("--tls-certificate"));
        assert!(with(&["--tls-client-ca", "x"]).contains("--tls-certificate"));
        assert!(with(&["--write-back"]).contains("there is no cache"));
        assert!(refused(&["--export", "a"], "").contains("NAME=PATH"));
        assert!(refused(&["--export", "a=memory:x"], "").contains("'x' is no size"));
        assert!(refused(&[], "[[export]]\nname = 'a'\n").contains("one of 'path' and 'memory'"));
        assert!(refused(&[], "[[export]]\nname = 'a'\nmemory = '1M'\ntls = true\n").contains("certificate"));
        assert!(with(&["--squeeze-ms", "3600001"]).contains("squeeze-ms: 3600001 is not between 0 and 3600000"));
        assert!(refused(&export, "max-idle-pages = 4294967296\n").contains("max-idle-pages: 4294967296 is not"));
        assert!(with(&["--client-timeout", "30"]).contains("such as 30s"));
        assert!(with(&["--client-timeout", "0s"]).contains("client-timeout: 0s is not between 1ms and 100years"));
        assert!(refused(&export, "handshake-timeout = '0s'\n").contains("handshake-timeout: 0s"));
        assert!(with(&["--stop-timeout", "101years"]).contains("stop-timeout: 101years is not between 0s"));
        assert!(with(&["--max-connections", "0"]).contains("max-connections: 0"));
        assert!(with(&["--cache", "4K"]).contains("cache: less than 1M"));
        assert!(with(&["--limit", "1"]).contains("limit: less than 1M"));
        assert!(refused(&export, "limit = 64\n").contains("limit: less than 1M"));
        assert!(with(&["--cache", "some"]).contains("or 'auto'"));
        assert!(refused(&export, "write-back = true\n").contains("there is no cache"));
        assert!(refused(&[], "colour = 'red'\n").contains("unknown field"));
        assert!(refused(&[], "client-timeout = 'soon'\n").contains("is no time"));
        assert!(refused(&[], "max-memory = -4\n").contains("'-4' is no size"));
        assert!(refused(&[], "limit = 1.5\n").contains("a number of bytes, or text such as '64M'"));
    }
}
