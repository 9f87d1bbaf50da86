//! `weir run --profile`: the heap profiles that the program's processes write when they end.

use crate::base::failure::Failure;
use std::collections::HashMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The variable that has a process write one, to NAME and its process id.
pub const VARIABLE: &str = "WEIR_PROFILE";
/// Files that are named at the end.
const NAMED: usize = 10;

/// The files with this name, and those that were there before the program ran.
pub struct Profiles {
    name: PathBuf,
    before: HashMap<PathBuf, SystemTime>,
}

/// Profiles that were written, the largest first.
pub struct Written(Vec<PathBuf>);

impl Profiles {
    /// Looks which are there already; refuses a name in a directory that does not exist: nothing would be written.
    pub fn named(name: &Path) -> Result<Self, Failure> {
        let refuse = |why: String| {
            Failure::of_weir(format!(
                "--profile {}: {why}: give it a name in a directory that is there",
                name.display()
            ))
        };
        // Processes may change their directory before they end.
        let absolute = std::path::absolute(name).map_err(|error| refuse(error.to_string()))?;
        match (absolute.file_name(), absolute.parent()) {
            (Some(_), Some(directory)) if directory.is_dir() => {}
            _ => return Err(refuse("its directory does not exist".into())),
        }
        let before = files(&absolute).into_iter().collect();
        Ok(Self { name: absolute, before })
    }

    /// The value of the variable.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The profiles that were written since.
    pub fn written(&self) -> Written {
        let is_new = |(path, time): &(PathBuf, SystemTime)| self.before.get(path) != Some(time);
        let mut paths: Vec<PathBuf> = files(&self.name).into_iter().filter(is_new).map(|(path, _)| path).collect();
        let len = |path: &PathBuf| path.metadata().map_or(0, |it| it.len());
        paths.sort_by_cached_key(|path| (std::cmp::Reverse(len(path)), path.clone()));
        Written(paths)
    }
}

/// The files NAME.PID, and when each was written.
fn files(name: &Path) -> Vec<(PathBuf, SystemTime)> {
    let (Some(directory), Some(stem)) = (name.parent(), name.file_name()) else { return Vec::new() };
    let is_pid = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let entries = directory.read_dir().into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let end = name.as_bytes().strip_prefix(stem.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
            end.is_some_and(is_pid)
        })
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)))
        .collect()
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else {
            return writeln!(
                f,
                "weir: no process wrote a heap profile: one that is killed, has no Weir, or allocates too little to be sampled writes none"
            );
        };
        let shown: Vec<String> = self.0.iter().take(NAMED).map(|path| path.display().to_string()).collect();
        let more = self.0.len() - shown.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        writeln!(f, "weir: heap profiles: {}{more}; read one: weir profile {}", shown.join(", "), first.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_files_that_were_written_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("heap");
        std::fs::write(dir.path().join("heap.1"), "old").unwrap();
        let profiles = Profiles::named(&name).unwrap();
        assert!(profiles.written().to_string().contains("no process wrote"));
        for (file, text) in [("heap.22", "x"), ("heap.333", "longer"), ("heap.txt", ""), ("heap", ""), ("other.4", "")]
        {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let found = profiles.written();
        assert_eq!(found.0, [dir.path().join("heap.333"), dir.path().join("heap.22")]);
        assert!(found.to_string().ends_with(&format!("weir profile {}.333\n", name.display())));
        assert!(Profiles::named(&dir.path().join("none/heap")).is_err());
        assert!(Profiles::named(Path::new("/")).is_err());
    }

    #[test]
    fn a_name_may_be_of_any_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let name = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
        let profiles = Profiles::named(&name(b"heap\xff")).unwrap();
        for file in [&b"heap\xff.22"[..], b"heap\xff.x", b"heap\xfe.4"] {
            std::fs::write(name(file), "").unwrap();
        }
        assert_eq!(profiles.written().0, [name(b"heap\xff.22")]);
    }
}
