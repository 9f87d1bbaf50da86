//! Whether a running process has Weir in it, and why not.

use crate::elf;
use procfs::process::{MMapPath, Process};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is known of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// The library has not been there since then: the process may be about to load it.
    NotSince(Instant),
    /// It is there.
    Yes,
    /// It will not be there, for this reason.
    No(String),
}

/// A process that has not loaded it for so long has begun without it: the loader takes some milliseconds.
const LOADING: Duration = Duration::from_millis(200);

/// The library's name as the maps of a process that loaded it have it.
pub fn name_in_maps(library: &Path) -> String {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_path_buf());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Judges a process by its mappings. What was judged before holds as long as it runs the same program.
pub fn judge(process: &Process, before: Option<&Loaded>, library: &str) -> Loaded {
    if let Some(known @ (Loaded::Yes | Loaded::No(_))) = before {
        return known.clone();
    }
    if is_mapped(process, library) {
        return Loaded::Yes;
    }
    if let Some(why) = elf::unfitness(Path::new(&format!("/proc/{}/exe", process.pid()))) {
        return Loaded::No(why.to_owned());
    }
    match before {
        Some(Loaded::NotSince(begun)) if begun.elapsed() >= LOADING => Loaded::No(why(process).to_owned()),
        Some(Loaded::NotSince(begun)) => Loaded::NotSince(*begun),
        _ => Loaded::NotSince(Instant::now()),
    }
}

fn is_mapped(process: &Process, library: &str) -> bool {
    let is_library = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy() == library);
    process.maps().is_ok_and(|maps| maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(p) if is_library(p))))
}

fn why(process: &Process) -> &'static str {
    match process.maps() {
        Ok(_) => "did not load it: LD_PRELOAD was cleared or is not heeded",
        Err(_) => "cannot be looked into: it has other rights",
    }
}
