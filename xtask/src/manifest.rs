//! The list of what was installed, which is installed with it: what `uninstall` goes by, whichever version it is of.

use anyhow::{Context, Result, ensure};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Below the prefix.
pub const PATH: &str = "share/weir/installed-files";

/// Files and links, and the directories that were made for them. All paths are as in the end, without `--destdir`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub files: Vec<PathBuf>,
    /// Parents come before their children.
    pub directories: Vec<PathBuf>,
}

impl Manifest {
    /// Reads the manifest in `file`, of what is installed below `prefix`; none if nothing is.
    pub fn read(file: &Path, prefix: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(why) => return Err(why).with_context(|| format!("cannot read {}", file.display())),
        };
        Self::parse(&text, prefix).map(Some).with_context(|| format!("{} is damaged", file.display()))
    }

    /// A line for each path, a directory's ends with a slash. What lies outside of the prefix is not Weir's.
    fn parse(text: &str, prefix: &Path) -> Result<Self> {
        let mut manifest = Self::default();
        for line in text.lines() {
            let path = Path::new(line);
            let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
            ensure!(path.is_absolute() && is_plain, "'{line}' is no absolute path");
            if line.ends_with('/') {
                ensure!(path.starts_with(prefix) || prefix.starts_with(path), "{line} is not of {}", prefix.display());
                manifest.directories.push(path.components().collect());
            } else {
                ensure!(path.starts_with(prefix), "{line} is not below {}", prefix.display());
                manifest.files.push(path.into());
            }
        }
        Ok(manifest)
    }

    pub fn text(&self) -> String {
        let files = self.files.iter().map(|path| format!("{}\n", path.display()));
        let slash =
            |path: &PathBuf| if path.as_os_str() == "/" { "/\n".into() } else { format!("{}/\n", path.display()) };
        files.chain(self.directories.iter().map(slash)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let manifest = Manifest {
            files: vec!["/opt/w/bin/weir".into(), "/opt/w/lib/libweir.so.0".into()],
            directories: vec!["/".into(), "/opt".into(), "/opt/w".into(), "/opt/w/bin".into()],
        };
        let read = Manifest::parse(&manifest.text(), Path::new("/opt/w")).expect("its own text");
        assert_eq!(read, manifest);
    }

    #[test]
    fn what_is_not_below_the_prefix_is_refused() {
        for line in ["/etc/passwd", "/opt/w/../../etc/passwd", "opt/w/bin/weir", "/etc/", "/opt/other/bin/weir", ""] {
            let damaged = format!("/opt/w/bin/weir\n{line}\n");
            assert!(Manifest::parse(&damaged, Path::new("/opt/w")).is_err(), "{line}");
        }
    }
}
