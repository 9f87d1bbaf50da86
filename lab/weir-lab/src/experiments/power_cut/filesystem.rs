//! ext4 on the server: files that `fsync` has made safe are there after the cut, and the journal makes the rest whole.

use super::drive::Drive;
use crate::harness::block_device::{BlockDevice, attach_loop};
use crate::harness::folder::Folder;
use crate::harness::programs::{run, run_for};
use crate::harness::restore::{RestoreGuard, on_end};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files that are kept at a time: a new one takes the place of an older one.
const FILES: u64 = 64;

/// Programs that this needs, and Debian's packages of them.
pub const PROGRAMS: [(&str, &str); 3] = [("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs"), ("mount", "mount")];

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Makes the file system on a drive that has no power.
pub fn make(drive: &Drive) -> Result<(), String> {
    run("mkfs.ext4", &["-q", "-F", text(drive.image())]).map(|_| ())
}

/// A file system that is mounted. Fields are dropped in their order.
pub struct Mounted {
    at: PathBuf,
    _mount: RestoreGuard,
    _device: BlockDevice,
}

/// Mounts the export at `uri`.
pub fn mount(folder: &Folder, uri: &str) -> Result<Mounted, String> {
    let (fuse, at) = (folder.at("fuse"), folder.at("files"));
    for made in [&fuse, &at] {
        std::fs::create_dir_all(made).map_err(|why| format!("cannot make {}: {why}", made.display()))?;
    }
    let device = BlockDevice::make(&fuse, uri)?;
    let mounted = mount_at(&device.name, &at)?;
    Ok(Mounted { at, _mount: mounted, _device: device })
}

fn mount_at(device: &str, at: &Path) -> Result<RestoreGuard, String> {
    let undo = at.to_path_buf();
    let guard = on_end(move || {
        // Of a device that fails, the kernel ends the mount only when nothing uses it any more.
        if run("umount", &[text(&undo)]).is_err() {
            let _ = run("umount", &["-l", text(&undo)]);
        }
    });
    run("mount", &["-t", "ext4", device, text(at)])?;
    Ok(guard)
}

impl Mounted {
    /// Writes files until the device fails; the numbers of those that are safe, oldest first.
    pub fn write(&self, first: u64) -> Vec<u64> {
        (first..).take_while(|&number| write_file(&self.at, number).is_ok()).collect()
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{}", number % FILES))
}

/// Of this number, 1 to 64 KiB.
fn content(number: u64) -> Vec<u8> {
    let words = 128 + number.wrapping_mul(0x9e37_79b9) % 8064;
    (0..words).flat_map(|word| (number << 20 | word).to_le_bytes()).collect()
}

/// Writes a file beside its place, makes it safe, moves it there, and makes that safe.
fn write_file(folder: &Path, number: u64) -> std::io::Result<()> {
    let new = folder.join("new");
    let mut file = File::create(&new)?;
    file.write_all(&content(number))?;
    file.sync_all()?;
    std::fs::rename(&new, path(folder, number))?;
    File::open(folder)?.sync_all()
}

/// Mounts what is on the drive, so that the journal is replayed, and looks for the files; then checks the whole file system.
/// `safe` are the numbers of all files that ever became safe, in order.
pub fn check(drive: &Drive, folder: &Folder, safe: &[u64]) -> Result<usize, String> {
    let checked = {
        let (device, _attached) = attach_loop(drive.image())?;
        let at = folder.at("files");
        let _mounted = mount_at(&device, &at)?;
        let last = &safe[safe.len().saturating_sub(FILES as usize)..];
        last.iter().try_for_each(|&number| check_file(&at, number, last))?;
        last.len()
    };
    let found = run_for("e2fsck", &["-f", "-n", text(drive.image())], 60);
    found.map_err(|why| format!("the file system is damaged: {why}"))?;
    Ok(checked)
}

/// A file is as it was made safe, or the next one of its place, which was under way at the cut.
fn check_file(folder: &Path, number: u64, last: &[u64]) -> Result<(), String> {
    let found = std::fs::read(path(folder, number)).map_err(|why| format!("file {number} is lost: {why}"))?;
    let is_next = last.last().is_some_and(|last| number + FILES == last + 1) && found == content(number + FILES);
    if found == content(number) || is_next { Ok(()) } else { Err(format!("file {number} has another content")) }
}
