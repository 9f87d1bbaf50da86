//! Whether a running process has Weir in it, and why not.

use crate::processes::elf;
use crate::processes::stats_file;
use procfs::ProcError;
use procfs::process::{MMapPath, MemoryMaps, Process};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is known of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// The library has not been there since then: the process may be about to load it.
    NotSince(Instant),
    /// It is there, and the process has the statistics file.
    Yes,
    /// It is there, but the process could not open the statistics file.
    Uncounted,
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
    if let Some(known @ (Loaded::Yes | Loaded::Uncounted | Loaded::No(_))) = before {
        return known.clone();
    }
    let why = match process.maps() {
        // It has no memory any more.
        Ok(maps) if maps.0.is_empty() => return before.cloned().unwrap_or(Loaded::NotSince(Instant::now())),
        Ok(maps) if is_among(&maps, stats_file::NAME_IN_MAPS) => return Loaded::Yes,
        Ok(maps) if is_among(&maps, library) => return after_loading(before, Loaded::Uncounted),
        Ok(_) => "did not load it: LD_PRELOAD was cleared or is not heeded",
        Err(ProcError::PermissionDenied(_)) => "cannot be looked into: it has other rights",
        Err(_) => return before.cloned().unwrap_or(Loaded::NotSince(Instant::now())),
    };
    if let Some(why) = elf::unfitness(Path::new(&format!("/proc/{}/exe", process.pid()))) {
        return Loaded::No(why.to_owned());
    }
    after_loading(before, Loaded::No(why.to_owned()))
}

/// The judgement on a process that has had the time to load the library.
fn after_loading(before: Option<&Loaded>, judgement: Loaded) -> Loaded {
    match before {
        Some(Loaded::NotSince(begun)) if begun.elapsed() >= LOADING => judgement,
        Some(known) => known.clone(),
        None => Loaded::NotSince(Instant::now()),
    }
}

fn is_among(maps: &MemoryMaps, library: &str) -> bool {
    let is_library = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy() == library);
    maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(path) if is_library(path)))
}
