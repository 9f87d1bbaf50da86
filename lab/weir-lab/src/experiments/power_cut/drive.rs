//! A drive with a volatile cache: a file (nbdfuse) on a server of nbdkit's, whose power can be cut.

use crate::harness::block_device::FuseFile;
use crate::harness::child::{KilledOnDrop, wait_until};
use crate::harness::folder::Folder;
use crate::harness::programs::command;
use crate::harness::random::Random;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

/// What is written whole or not at all.
pub const SECTOR: usize = 512;
/// The plugin.
const SCRIPT: &str = include_str!("drive.py");

/// Where the parts of a drive are.
pub struct Drive {
    image: PathBuf,
    log: PathBuf,
    script: PathBuf,
    socket: PathBuf,
    mount: PathBuf,
}

/// A drive that has power. Fields are dropped in their order.
pub struct Powered {
    file: FuseFile,
    server: KilledOnDrop,
}

impl Powered {
    /// The process that is the drive.
    pub fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Takes the power away.
    pub fn cut(&mut self) -> Result<(), String> {
        let cut = self.server.0.kill().and_then(|()| self.server.0.wait());
        cut.map(|_| ()).map_err(|why| format!("cannot end nbdkit: {why}"))
    }

    /// The drive as a file.
    pub fn path(&self) -> PathBuf {
        self.file.path()
    }
}

/// What a cut does to what was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of it has reached the drive: only the server above was killed.
    Kill,
    /// Any part of it, sector by sector.
    Power,
}

impl Drive {
    /// A new one in `folder`, of `bytes` zeroes; it takes the place of one of the same name.
    pub fn make(folder: &Folder, name: &str, bytes: u64) -> Result<Drive, String> {
        let at = |part: &str| folder.at(&format!("{name}.{part}"));
        let drive =
            Drive { image: at("image"), log: at("log"), script: at("py"), socket: at("socket"), mount: at("mount") };
        let make = || {
            std::fs::File::create(&drive.image)?.set_len(bytes)?;
            std::fs::write(&drive.script, SCRIPT)?;
            std::fs::create_dir_all(&drive.mount)
        };
        make().map_err(|why| format!("cannot make a drive in {}: {why}", folder.path().display()))?;
        Ok(drive)
    }

    /// What is on it, while it has no power.
    pub fn image(&self) -> &PathBuf {
        &self.image
    }

    /// Switches it on.
    pub fn power(&self) -> Result<Powered, String> {
        let _ = std::fs::remove_file(&self.socket);
        let mut nbdkit = command("nbdkit")?;
        nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&self.socket).arg("python").arg(&self.script);
        nbdkit.arg(format!("image={}", self.image.display())).arg(format!("log={}", self.log.display()));
        nbdkit.stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = KilledOnDrop::start(nbdkit, "nbdkit")?;
        wait_until("nbdkit", &mut server, || UnixStream::connect(&self.socket).is_ok())?;
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        Ok(Powered { file: FuseFile::mount(&self.mount, &uri)?, server })
    }

    /// What has become of the content after it lost power: the image has all that was flushed, and of the rest what `cut` leaves.
    pub fn settle(&self, cut: Cut, random: &mut Random) -> Result<(), String> {
        let mut settle = || {
            let image = std::fs::File::options().write(true).open(&self.image)?;
            for (offset, data) in records(&std::fs::read(&self.log)?) {
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    if cut == Cut::Kill || random.below(2) == 0 {
                        image.write_all_at(sector, offset + (number * SECTOR) as u64)?;
                    }
                }
            }
            std::fs::remove_file(&self.log)
        };
        settle().map_err(|why: std::io::Error| format!("a drive after a power cut: {why}"))
    }
}

/// The whole records of a log: offset, length (64 bits, little-endian), data.
fn records(mut log: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while let Some((offset, rest)) = log.split_first_chunk() {
        let Some((length, rest)) = rest.split_first_chunk() else { break };
        let Some((data, rest)) = rest.split_at_checked(u64::from_le_bytes(*length) as usize) else { break };
        found.push((u64::from_le_bytes(*offset), data));
        log = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_cut_short_is_left_out() {
        let record =
            |offset: u64, data: &[u8]| [&offset.to_le_bytes()[..], &(data.len() as u64).to_le_bytes(), data].concat();
        let log = [record(512, b"one"), record(0, b""), record(7, b"two")].concat();
        assert_eq!(records(&log), [(512, &b"one"[..]), (0, b""), (7, b"two")]);
        assert_eq!(records(&log[..log.len() - 1]).len(), 2);
        assert_eq!(records(&log[..10]), []);
    }
}
