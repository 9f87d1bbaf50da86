//! An NBD export as a file (nbdfuse), and that as a block device (loop). Root only.

use crate::harness::child::{KilledOnDrop, wait_until};
use crate::harness::programs::{command, run};
use crate::harness::restore::{RestoreGuard, on_end};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Programs that this needs, and Debian's packages of them.
pub const PROGRAMS: [(&str, &str); 4] =
    [("nbdfuse", "libnbd-bin"), ("fusermount3", "fuse3"), ("losetup", "mount"), ("umount", "mount")];

/// Devices of the kernel's that this needs, and how to get them.
pub const DEVICES: [(&str, &str); 2] = [("/dev/fuse", "modprobe fuse"), ("/dev/loop-control", "modprobe loop")];

/// The devices that are missing, a line each.
pub fn missing_devices() -> Vec<String> {
    let absent = DEVICES.iter().filter(|(device, _)| !Path::new(device).exists());
    absent.map(|(device, how)| format!("{device}: {how}")).collect()
}

/// An export as a device. Fields are dropped in their order.
pub struct BlockDevice {
    /// Its name, `/dev/loopN`.
    pub name: String,
    _looped: RestoreGuard,
    _file: FuseFile,
}

impl BlockDevice {
    /// Makes a device of the export at `uri`. `folder` is an empty one, for the file between the two.
    pub fn make(folder: &Path, uri: &str) -> Result<BlockDevice, String> {
        let file = FuseFile::mount(folder, uri)?;
        let (name, looped) = attach_loop(&file.path())?;
        Ok(BlockDevice { name, _looped: looped, _file: file })
    }
}

/// An export as a file. Fields are dropped in their order.
pub struct FuseFile {
    folder: PathBuf,
    _mounted: RestoreGuard,
    _nbdfuse: KilledOnDrop,
}

impl FuseFile {
    /// Makes a file of the export at `uri`, in an empty folder.
    pub fn mount(folder: &Path, uri: &str) -> Result<FuseFile, String> {
        let undo = folder.to_path_buf();
        let mounted = on_end(move || {
            if run("fusermount3", &["-u", text(&undo)]).is_err() {
                let _ = run("umount", &["-l", text(&undo)]);
            }
        });
        let mut command = command("nbdfuse")?;
        command.arg("--").arg(folder).arg(uri).stdin(Stdio::null()).stdout(Stdio::null());
        let mut nbdfuse = KilledOnDrop::start(command, "nbdfuse")?;
        let file = folder.join("nbd");
        wait_until("nbdfuse", &mut nbdfuse, || file.exists())?;
        Ok(FuseFile { folder: folder.to_path_buf(), _mounted: mounted, _nbdfuse: nbdfuse })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("nbd")
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Makes a loop device of a file; it is detached when the guard goes.
pub fn attach_loop(file: &Path) -> Result<(String, RestoreGuard), String> {
    // Direct: the kernel caches what is on the device alone, and not the file below as well.
    let device = run("losetup", &["--direct-io=on", "--find", "--show", text(file)])?;
    let undo = device.clone();
    let guard = on_end(move || detach(&undo));
    Ok((device, guard))
}

/// Detaches a loop device. After an error below, the last of a file system may be busy with it for a moment.
fn detach(device: &str) {
    let backing = Path::new("/sys/block").join(device.trim_start_matches("/dev/")).join("loop/backing_file");
    for _ in 0..50 {
        let _ = run("losetup", &["--detach", device]);
        if !backing.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("weir-lab: a loop device stays behind: losetup --detach {device}");
}
