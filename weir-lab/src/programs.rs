//! E9's real programs: servers under load, an interpreter, a database in memory, a compiler.

use crate::child::Kept;
use crate::peers::Allocator;
use crate::program_batches as batches;
use crate::program_postgres as postgres;
use crate::program_servers as servers;
use crate::restore::{Guard, on_end};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One program and its load.
pub struct Program {
    /// Its name in the table.
    pub name: &'static str,
    /// What is done with it.
    pub about: &'static str,
    /// The programs that it takes, and how to get them.
    pub needs: (&'static [&'static str], &'static str),
    /// One measurement.
    pub run: fn(&Stage, &Allocator) -> Result<Figures, String>,
}

/// All of them, in the order of the report.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        about: "redis-benchmark: SET and GET of 512 B, pipelines of 16, 50 clients",
        needs: (&["redis-server", "redis-benchmark"], "apt-get install redis-server"),
        run: servers::redis,
    },
    Program {
        name: "memcached",
        about: "half set, half get of 16 B to 8 KiB over its text protocol, 2 clients",
        needs: (&["memcached"], "apt-get install memcached"),
        run: servers::memcached,
    },
    Program {
        name: "postgres",
        about: "pgbench's own transactions, 4 clients, fsync off; peak: anonymous memory of all its processes",
        needs: (&["initdb", "postgres", "pgbench", "pg_isready"], "apt-get install postgresql postgresql-contrib"),
        run: postgres::run,
    },
    Program {
        name: "python3",
        about: "objects, dictionaries, JSON and sorting, PYTHONMALLOC=malloc",
        needs: (&["python3"], "apt-get install python3"),
        run: batches::python,
    },
    Program {
        name: "sqlite3",
        about: "inserts, an index, updates and joins in memory",
        needs: (&["sqlite3"], "apt-get install sqlite3"),
        run: batches::sqlite,
    },
    Program {
        name: "gcc",
        about: "gcc -O2 of a generated file of many functions",
        needs: (&["gcc"], "apt-get install gcc"),
        run: batches::gcc,
    },
];

/// What one run of a program came to.
pub struct Figures {
    /// Nanoseconds an operation; of programs that run to their end, of the whole.
    pub ns: f64,
    /// Peak resident set, bytes.
    pub peak: f64,
    /// Minor page faults.
    pub faults: f64,
}

/// Where they run: a directory of their own, gone at the end.
pub struct Stage {
    /// For sockets and data.
    pub directory: PathBuf,
    /// Small and short.
    pub quick: bool,
    _gone: Guard,
}

impl Stage {
    /// Makes the directory.
    pub fn make(quick: bool) -> Result<Stage, String> {
        let directory = std::env::temp_dir().join(format!("weir-lab-{}-programs", std::process::id()));
        let undo = directory.clone();
        let gone = on_end(move || drop(std::fs::remove_dir_all(undo)));
        std::fs::create_dir_all(&directory).map_err(|why| format!("cannot make {}: {why}", directory.display()))?;
        Ok(Stage { directory, quick, _gone: gone })
    }
}

impl Program {
    /// Whether everything it takes is here, or how to get it.
    pub fn here(&self) -> Result<(), String> {
        let (programs, how) = self.needs;
        let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_err()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no {} here: {how}", missing.join(", "))) }
    }
}

/// A program on the path or among Debian's of PostgreSQL: the binary, not a script in front of it.
pub fn find(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    // The usual places in front: what a user's tools put before them may be a wrapper.
    let usual = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let places = usual.into_iter().chain(debian).chain(std::env::split_paths(&path));
    let found = places.map(|place| place.join(program)).find(|file| is_binary(file));
    found.ok_or_else(|| format!("{program} is not here"))
}

fn is_binary(file: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 4];
    std::fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *b"\x7fELF"
}

/// Starts a server that ends with the harness.
pub fn start(mut server: Command, what: &str) -> Result<Kept, String> {
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        server.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    Ok(Kept(server.spawn().map_err(|why| format!("cannot start {what}: {why}"))?))
}

/// A server may run as a user who cannot read the allocator's file, and then runs without it and without a word.
pub fn check_preloaded(pid: u32, allocator: &Allocator) -> Result<(), String> {
    let Some(object) = &allocator.preload else { return Ok(()) };
    let object = object.canonicalize().map_err(|why| format!("{}: {why}", object.display()))?;
    let maps =
        std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|why| format!("/proc/{pid}/maps: {why}"))?;
    let there = maps.lines().any(|line| line.ends_with(&*object.to_string_lossy()));
    if there { Ok(()) } else { Err(format!("{} was not loaded: may its user read it?", object.display())) }
}
