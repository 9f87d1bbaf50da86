//! An NBD export as a file (nbdfuse), that as a block device (loop), and that as a file system (ext4). Root only.

use crate::harness::child::{KilledOnDrop, run_system, system};
use crate::harness::machine::restore::{RestoreGuard, on_end};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// An export as a file.
pub struct FuseFile {
    pub path: PathBuf,
    _mounted: RestoreGuard,
    _nbdfuse: KilledOnDrop,
}

impl FuseFile {
    pub fn mount(folder: &Path, uri: &str) -> Result<FuseFile> {
        let undo = folder.to_path_buf();
        let mounted = on_end(move || {
            if run_system("fusermount3", &[Path::new("-u"), &undo]).is_err() {
                let _ = run_system("umount", &[Path::new("-l"), &undo]);
            }
        });
        let mut command = system("nbdfuse")?;
        command.arg("--").arg(folder).arg(uri).stdin(Stdio::null()).stdout(Stdio::null());
        let path = folder.join("nbd");
        let nbdfuse = KilledOnDrop::start_until(command, "nbdfuse", || path.exists())?;
        Ok(FuseFile { path, _mounted: mounted, _nbdfuse: nbdfuse })
    }
}

/// A file as a block device; its name, and what detaches it.
pub fn attach_loop(file: &Path) -> Result<(String, RestoreGuard)> {
    let arguments = ["--direct-io=on", "--find", "--show"].map(Path::new);
    let device = run_system("losetup", &[&arguments[..], &[file]].concat())?;
    let undo = device.clone();
    let guard = on_end(move || {
        // A device that is in use for a moment yet is only marked: then its file is named still.
        let backing = Path::new("/sys/block").join(undo.trim_start_matches("/dev/")).join("loop/backing_file");
        for _ in 0..50 {
            let _ = run_system("losetup", &["--detach", &undo]);
            if !backing.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("weir-lab: a loop device stays behind: losetup --detach {undo}");
    });
    Ok((device, guard))
}

/// Mounts a device as ext4.
pub fn mount(device: &str, at: &Path) -> Result<RestoreGuard> {
    let undo = at.to_path_buf();
    let guard = on_end(move || {
        if run_system("umount", &[&undo]).is_err() {
            let _ = run_system("umount", &[Path::new("-l"), &undo]);
        }
    });
    run_system("mount", &[&["-t", "ext4", "-o", "noatime", device].map(Path::new)[..], &[at]].concat())?;
    Ok(guard)
}

/// An export as a file system.
pub struct Mounted {
    pub at: PathBuf,
    _mounted: RestoreGuard,
    _looped: RestoreGuard,
    _file: FuseFile,
}

impl Mounted {
    /// Mounts an export below two folders, with a new file system on it or with the one that it has.
    pub fn make(fuse: &Path, at: &Path, uri: &str, is_new: bool) -> Result<Mounted> {
        let file = FuseFile::mount(fuse, uri)?;
        let (device, looped) = attach_loop(&file.path)?;
        if is_new {
            let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            run_system("mkfs.ext4", &["-q", "-F", "-E", options, &device])?;
        }
        let mounted = mount(&device, at)?;
        Ok(Mounted { at: at.to_path_buf(), _mounted: mounted, _looped: looped, _file: file })
    }
}
