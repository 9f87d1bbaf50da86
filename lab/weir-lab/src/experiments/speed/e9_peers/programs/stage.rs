//! Where E9's real programs run, what they give, and how a server is found, started and held to its preload.

use crate::harness::prelude::*;
use std::io::Read;

pub const LIMIT: Duration = Duration::from_secs(180);

/// ns an operation or of a run, the peak, minor faults.
pub type Figures = [f64; 3];

/// Where programs run.
pub struct Stage {
    pub folder: Folder,
    pub quick: bool,
}

impl Stage {
    pub fn make(quick: bool) -> Result<Stage> {
        Ok(Stage { folder: Folder::make(&std::env::temp_dir(), "programs")?, quick })
    }

    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A program's binary, which a wrapper that lies before it in the path is not: what is preloaded would serve the wrapper.
pub fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let usual = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let places = usual.into_iter().chain(debian).chain(std::env::split_paths(&path));
    let is_binary = |file: &PathBuf| {
        let mut head = [0; 4];
        std::fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *b"\x7fELF"
    };
    let found = places.map(|place| place.join(program)).find(is_binary);
    found.with_context(|| format!("{program} is not here"))
}

/// Starts a server that says nothing.
pub fn start(mut server: Command, what: &str) -> Result<KilledOnDrop> {
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    KilledOnDrop::start(server, what)
}

/// A server that changes its user may not read what is preloaded.
pub fn check_preloaded(pid: u32, allocator: &Allocator) -> Result<()> {
    let Some(object) = &allocator.preload else { return Ok(()) };
    let object = object.canonicalize()?;
    let is_loaded = proc_files::maps_file(pid, |path| path == object)?;
    ensure!(is_loaded, "{} was not loaded: may its user read it?", object.display());
    Ok(())
}
