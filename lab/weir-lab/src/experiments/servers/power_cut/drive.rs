//! A drive with a volatile cache: a file (nbdfuse) on a server of nbdkit's, whose power can be cut.

use crate::harness::nbd::block_device::FuseFile;
use crate::harness::prelude::*;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

pub const SECTOR: usize = 512;

/// A drive without power: what is safe (the image), and what may be (the log).
pub struct Drive {
    pub image: PathBuf,
    log: PathBuf,
    script: PathBuf,
    socket: PathBuf,
    mount: PathBuf,
}

/// A drive with power.
pub struct Powered {
    pub file: FuseFile,
    pub server: KilledOnDrop,
}

impl Powered {
    pub fn cut(&mut self) -> Result<()> {
        self.server.0.kill()?;
        self.server.0.wait()?;
        Ok(())
    }
}

impl Drive {
    pub fn make(folder: &Folder, name: &str, bytes: u64) -> Result<Drive> {
        let at = |part: &str| folder.at(&format!("{name}.{part}"));
        let (script, mount) = (at("py"), folder.below(&format!("{name}.mount"))?);
        let drive = Drive { image: at("image"), log: at("log"), script, socket: at("socket"), mount };
        std::fs::File::create(&drive.image)?.set_len(bytes)?;
        std::fs::write(&drive.script, include_str!("drive.py"))?;
        Ok(drive)
    }

    pub fn power(&self) -> Result<Powered> {
        let _ = std::fs::remove_file(&self.socket);
        let mut nbdkit = system("nbdkit")?;
        nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&self.socket).arg("python").arg(&self.script);
        nbdkit.arg(format!("image={}", self.image.display())).arg(format!("log={}", self.log.display()));
        nbdkit.stdin(Stdio::null()).stdout(Stdio::null());
        let server = KilledOnDrop::start_until(nbdkit, "nbdkit", || UnixStream::connect(&self.socket).is_ok())?;
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        Ok(Powered { file: FuseFile::mount(&self.mount, &uri)?, server })
    }

    /// Has the log reach the image: all of it, or if power was lost any sectors.
    pub fn settle(&self, is_power: bool, random: &mut Random) -> Result<()> {
        let image = std::fs::File::options().write(true).open(&self.image)?;
        for (offset, data) in records(&std::fs::read(&self.log)?) {
            for (number, sector) in data.chunks(SECTOR).enumerate() {
                if !is_power || random.below(2) == 0 {
                    image.write_all_at(sector, offset + (number * SECTOR) as u64)?;
                }
            }
        }
        Ok(std::fs::remove_file(&self.log)?)
    }
}

/// The log's writes: a place, a length, and data each.
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
