//! Whether a running process has loaded the library, and why not.

use crate::processes::maps;
use crate::processes::program_file;
use crate::processes::stats_file;
use procfs::ProcError;
use procfs::process::{MMapPath, MemoryMaps, Process};
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether a process has loaded Weir's library.
#[derive(Clone, Debug, PartialEq)]
pub enum LibraryState {
    /// Not loaded when first looked at, which was then: the process may be about to load it.
    MissingSince(Instant),
    /// Loaded, and the process has mapped the statistics file.
    Loaded,
    /// Loaded, but the process could not open the statistics file.
    LoadedUncounted,
    /// Not loaded, for this reason; that will not change before the process runs another program.
    Absent(String),
}

/// A process without the library after this time has started without it: the loader takes some milliseconds.
const LOADING: Duration = Duration::from_millis(200);

/// The library's name as the maps of a process that loaded it have it.
pub fn name_in_maps(library: &Path) -> String {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_path_buf());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Determines the state from the mappings of a process. A final state stays as long as it runs the same program.
pub fn judge(process: &Process, before: Option<&LibraryState>, library: &str) -> LibraryState {
    if let Some(known @ (LibraryState::Loaded | LibraryState::LoadedUncounted | LibraryState::Absent(_))) = before {
        return known.clone();
    }
    let why = match maps::maps(process) {
        // It has no memory any more.
        Ok(maps) if maps.0.is_empty() => return before.cloned().unwrap_or(LibraryState::MissingSince(Instant::now())),
        Ok(maps) if is_among(&maps, stats_file::NAME_IN_MAPS) => return LibraryState::Loaded,
        Ok(maps) if is_among(&maps, library) => return after_loading(before, LibraryState::LoadedUncounted),
        Ok(_) => "did not load it: LD_PRELOAD was cleared or is not heeded",
        Err(ProcError::PermissionDenied(_)) => "cannot be read: it has other rights",
        Err(_) => return before.cloned().unwrap_or(LibraryState::MissingSince(Instant::now())),
    };
    if let Some(why) = program_file::unfitness_of(process) {
        return LibraryState::Absent(why.to_owned());
    }
    after_loading(before, LibraryState::Absent(why.to_owned()))
}

/// The state of a process that has had the time to load the library; before that time, the one it had.
fn after_loading(before: Option<&LibraryState>, judgement: LibraryState) -> LibraryState {
    match before {
        Some(LibraryState::MissingSince(begun)) if begun.elapsed() >= LOADING => judgement,
        Some(known) => known.clone(),
        None => LibraryState::MissingSince(Instant::now()),
    }
}

fn is_among(maps: &MemoryMaps, library: &str) -> bool {
    let is_library = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy() == library);
    maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(path) if is_library(path)))
}
