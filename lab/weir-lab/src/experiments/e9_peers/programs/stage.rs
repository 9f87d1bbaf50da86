//! Where programs run, how they are found and started, and what one run comes to.

use crate::harness::child::KilledOnDrop;
use crate::harness::owner;
use crate::harness::proc_files;
use crate::harness::restore::{RestoreGuard, on_end};
use crate::peers::Allocator;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What one run of a program came to.
pub struct Figures {
    /// Nanoseconds an operation; of programs that run to their end, of the whole.
    pub ns: f64,
    /// Peak resident set, bytes.
    pub peak: f64,
    /// Minor page faults.
    pub faults: f64,
}

/// Where they run: a directory of their own, removed at the end.
pub struct Stage {
    /// For sockets and data.
    pub directory: PathBuf,
    /// Small and short.
    pub quick: bool,
    _gone: RestoreGuard,
}

impl Stage {
    /// Makes the directory.
    pub fn make(quick: bool) -> Result<Stage, String> {
        let directory = std::env::temp_dir().join(owner::name("-programs"));
        let undo = directory.clone();
        let gone = on_end(move || drop(std::fs::remove_dir_all(undo)));
        std::fs::create_dir_all(&directory).map_err(|why| format!("cannot make {}: {why}", directory.display()))?;
        Ok(Stage { directory, quick, _gone: gone })
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
pub fn start(mut server: Command, what: &str) -> Result<KilledOnDrop, String> {
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        server.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    KilledOnDrop::start(server, what)
}

/// A server may run as a user who cannot read the allocator's file, and then runs without it and reports nothing.
pub fn check_preloaded(pid: u32, allocator: &Allocator) -> Result<(), String> {
    let Some(object) = &allocator.preload else { return Ok(()) };
    let object = object.canonicalize().map_err(|why| format!("{}: {why}", object.display()))?;
    if proc_files::maps_file(pid, |path| path == object)? {
        Ok(())
    } else {
        Err(format!("{} was not loaded: may its user read it?", object.display()))
    }
}
