//! Whether a running process has Weir in it, and why not.

use crate::elf;
use procfs::process::{MMapPath, Process};
use std::path::Path;

/// What is known of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// The library was not there at the last look: the process may be about to load it.
    NotYet,
    /// It is there.
    Yes,
    /// It was not there twice, for this reason.
    No(String),
}

/// The library's name as the maps of a process that loaded it have it.
pub fn name_in_maps(library: &Path) -> String {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_path_buf());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Judges a process by its mappings. What was judged before holds as long as the process runs the same program, which is
/// taken from its name.
pub fn judge(process: &Process, before: Option<&Loaded>, old_name: Option<&str>, name: &str, library: &str) -> Loaded {
    let before = before.filter(|_| old_name == Some(name));
    match before {
        Some(known @ (Loaded::Yes | Loaded::No(_))) => return known.clone(),
        Some(Loaded::NotYet) | None => {}
    }
    if is_mapped(process, library) {
        return Loaded::Yes;
    }
    if before.is_none() { Loaded::NotYet } else { Loaded::No(why(process)) }
}

fn is_mapped(process: &Process, library: &str) -> bool {
    let is_library = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy() == library);
    process.maps().is_ok_and(|maps| maps.iter().any(|map| matches!(&map.pathname, MMapPath::Path(p) if is_library(p))))
}

fn why(process: &Process) -> String {
    if let Some(why) = elf::unfitness(Path::new(&format!("/proc/{}/exe", process.pid()))) {
        return why.to_owned();
    }
    match process.maps() {
        Ok(_) => "did not load it: LD_PRELOAD was cleared or is not heeded".to_owned(),
        Err(_) => "cannot be looked into: it has other rights".to_owned(),
    }
}
