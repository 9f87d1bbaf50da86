//! Puts the files down: all of them, or none.

use crate::command_line::Place;
use crate::layout::{Content, Entry};
use crate::manifest::{self, Manifest};
use anyhow::{Context, Result, ensure};
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempPath};

/// Installs the entries. Each is written beside its place first and renamed when all are written. So a program that
/// runs keeps the library that it has mapped. One that starts meanwhile finds the old file or the new one. Where
/// anything cannot be written nothing is changed. What ends in the middle of the renames can be removed.
pub fn install(place: &Place, entries: &[Entry]) -> Result<()> {
    let before = Manifest::read(&place.real(&place.prefix.join(manifest::PATH)), &place.prefix)?.unwrap_or_default();
    let mut directories = Directories::default();
    let staged = stage_all(place, entries, &before, &mut directories).inspect_err(|_| directories.remove())?;
    put_all(place, entries, &before, staged)?;
    println!("Weir is installed in {}", place.real(&place.prefix).display());
    if place.destdir.is_none() {
        println!("programs that are linked with -lweir may need `ldconfig` now, as root");
    }
    Ok(())
}

/// A file beside its place, under another name.
struct Staged {
    content: TempPath,
    to: PathBuf,
}

/// All files beside their places.
struct All {
    files: Vec<Staged>,
    /// The list of them.
    list: Staged,
    /// That of what was there before as well.
    both: Staged,
}

impl Staged {
    fn put(self) -> Result<()> {
        let Self { content, to } = self;
        content.persist(&to).map_err(|why| why.error).with_context(|| format!("cannot write {}", to.display()))
    }
}

/// Puts files in their places. What was there and what comes is listed until all is done.
fn put_all(place: &Place, entries: &[Entry], before: &Manifest, all: All) -> Result<()> {
    all.both.put()?;
    all.files.into_iter().try_for_each(Staged::put)?;
    remove_stale(place, entries, before)?;
    all.list.put()
}

fn stage_all(place: &Place, entries: &[Entry], before: &Manifest, made: &mut Directories) -> Result<All> {
    let mut files = Vec::new();
    for entry in entries {
        files.push(stage(place, &place.prefix.join(&entry.path), &entry.content, made)?);
    }
    // Last, as the directories are made by then; its own is made here.
    let list = place.prefix.join(manifest::PATH);
    made.make(place, list.parent().context("the list has a directory")?)?;
    let mut manifest = Manifest { files: paths(place, entries), directories: before.directories.clone() };
    manifest.directories.extend(made.0.iter().map(|(path, _)| path.clone()));
    manifest.files.sort_unstable();
    // Parents before their children.
    manifest.directories.sort_unstable();
    manifest.directories.dedup();
    let mut both = manifest.clone();
    both.files.extend_from_slice(&before.files);
    both.files.sort_unstable();
    both.files.dedup();
    let mut stage_list = |manifest: Manifest| {
        let content = Content::File { bytes: manifest.text().into_bytes(), mode: 0o644 };
        stage(place, &list, &content, made)
    };
    Ok(All { files, list: stage_list(manifest)?, both: stage_list(both)? })
}

fn paths(place: &Place, entries: &[Entry]) -> Vec<PathBuf> {
    entries.iter().map(|entry| place.prefix.join(&entry.path)).collect()
}

fn stage(place: &Place, path: &Path, content: &Content, made: &mut Directories) -> Result<Staged> {
    let to = place.real(path);
    let directory = path.parent().context("a file has a directory")?;
    made.make(place, directory)?;
    ensure!(!to.is_dir(), "cannot write {}: it is a directory", to.display());
    let content = write_beside(&place.real(directory), content)
        .with_context(|| format!("cannot write {}", place.real(directory).display()))?;
    Ok(Staged { content, to })
}

fn write_beside(directory: &Path, content: &Content) -> std::io::Result<TempPath> {
    let mut name = Builder::new();
    name.prefix(".weir-");
    match content {
        Content::File { bytes, mode } => {
            let mut file = name.tempfile_in(directory)?;
            file.write_all(bytes)?;
            file.as_file().set_permissions(Permissions::from_mode(*mode))?;
            Ok(file.into_temp_path())
        }
        Content::Link(to) => Ok(name.make_in(directory, |path| symlink(to, path))?.into_temp_path()),
    }
}

/// The directories that were made: as they are in the end, and where they are now.
#[derive(Default)]
struct Directories(Vec<(PathBuf, PathBuf)>);

impl Directories {
    /// Makes `path` and what is missing above it, open to everyone whatever the umask is.
    fn make(&mut self, place: &Place, path: &Path) -> Result<()> {
        let real = place.real(path);
        if real.is_dir() {
            return Ok(());
        }
        let result = match path.parent() {
            Some(parent) => {
                self.make(place, parent)?;
                std::fs::create_dir(&real)
            }
            // What `--destdir` names.
            None => std::fs::create_dir_all(&real),
        };
        match result {
            Err(why) if why.kind() == ErrorKind::AlreadyExists && real.is_dir() => return Ok(()),
            result => result.with_context(|| format!("cannot make {}", real.display()))?,
        }
        self.0.push((path.into(), real.clone()));
        std::fs::set_permissions(&real, Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} readable", real.display()))
    }

    fn remove(&self) {
        for (_, real) in self.0.iter().rev() {
            // What another process put there meanwhile stays, and its directory with it.
            let _ = std::fs::remove_dir(real);
        }
    }
}

/// Removes what an older version put down and this one has not.
fn remove_stale(place: &Place, entries: &[Entry], before: &Manifest) -> Result<()> {
    let now = paths(place, entries);
    for path in before.files.iter().filter(|path| !now.contains(path)) {
        match std::fs::remove_file(place.real(path)) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(why).with_context(|| format!("cannot remove {}", place.real(path).display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uninstall::uninstall;

    #[test]
    fn what_ends_in_the_middle_of_its_renames_can_be_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let place = Place { prefix: "/opt/weir".into(), destdir: Some(root.path().join("stage")) };
        let entry = |path: &str| Entry { path: path.into(), content: Content::File { bytes: vec![1], mode: 0o644 } };
        let file = |path: &str| place.real(&place.prefix.join(path));
        let (first, second) = (["bin/old", "bin/weir"].map(entry), ["bin/weir", "lib/new", "lib/newer"].map(entry));
        for is_update in [false, true] {
            if is_update {
                install(&place, &first).expect("the first");
            }
            let before = Manifest::read(&file(manifest::PATH), &place.prefix).expect("a list").unwrap_or_default();
            let all = stage_all(&place, &second, &before, &mut Directories::default()).expect("files");
            // It comes when all are written.
            std::fs::create_dir(file("lib/newer")).expect("a directory in the way");
            put_all(&place, &second, &before, all).expect_err("a file in the place of a directory");
            assert!(file("lib/new").exists() && file("bin/old").exists() == is_update);
            std::fs::remove_dir(file("lib/newer")).expect("it is empty");
            uninstall(&place).expect("there is a list");
            assert!(!root.path().join("stage").exists(), "update: {is_update}");
        }
    }
}
