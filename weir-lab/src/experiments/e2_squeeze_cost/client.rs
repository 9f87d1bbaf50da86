//! The client through which the volume is written, and the writing.

use crate::harness::block_device::{self, BlockDevice};
use crate::harness::fio::{self, Fio};
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::Server;
use crate::harness::programs::{self, run, run_for};
use crate::harness::restore::{RestoreGuard, on_end};
use std::path::Path;

/// Which client. Of those that the machine has, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The kernel's own driver.
    Kernel,
    /// A loop device over libnbd's file system.
    Loop,
    /// fio's, in place of `dd` too: the one that needs no root.
    Fio,
}

impl Client {
    /// The one that is used, and why others are not.
    pub fn choose() -> Result<(Client, Vec<String>), String> {
        let mut skipped = Vec::new();
        for client in [Client::Kernel, Client::Loop, Client::Fio] {
            let missing = client.missing();
            if missing.is_empty() {
                return Ok((client, skipped));
            }
            skipped.push(format!("{}: {}", client.name(), missing.join("; ")));
        }
        Err(skipped.join("\n- "))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Client::Kernel => "the kernel's nbd, dd",
            Client::Loop => "a loop device on nbdfuse, dd",
            Client::Fio => "fio's nbd engine, 4 KiB in sequence",
        }
    }

    fn missing(self) -> Vec<String> {
        let root = || programs::missing_root("a block device needs it").into_iter();
        match self {
            Client::Kernel => {
                let device = free_device().is_none().then(|| "no free /dev/nbdN: modprobe nbd".to_string());
                root().chain(programs::missing(&[("nbd-client", "nbd-client")])).chain(device).collect()
            }
            Client::Loop => {
                let programs = programs::missing(&block_device::PROGRAMS);
                root().chain(programs).chain(block_device::missing_devices()).collect()
            }
            Client::Fio => programs::missing(&[fio::PROGRAM]),
        }
    }

    /// Writes `bytes` to the server's export in blocks of 4 KiB, until they are there; MB/s.
    pub fn write(self, folder: &Folder, server: &Server, export: &str, bytes: u64) -> Result<f64, String> {
        match self {
            Client::Kernel => {
                let (device, _guard) = attach(server, export)?;
                dd(&device, bytes)
            }
            Client::Loop => {
                let mount = Folder::make(folder.path(), "fuse")?;
                let device = BlockDevice::make(mount.path(), &server.uri(export))?;
                dd(&device.name, bytes)
            }
            Client::Fio => {
                let uri = server.uri(export);
                let jobs = format!("[dd]\nioengine=nbd\nuri={uri}\nrw=write\nbs=4k\nsize={bytes}\nend_fsync=1\n");
                Ok(Fio::start(&folder.at("jobs"), &jobs)?.outcome()?.bytes_a_second / 1e6)
            }
        }
    }
}

/// A device of the kernel's that no server is attached to.
fn free_device() -> Option<String> {
    let is_free = |name: &String| !Path::new("/sys/block").join(name).join("pid").exists();
    let here = |name: &String| Path::new("/dev").join(name).exists();
    (0..16).map(|number| format!("nbd{number}")).find(|name| here(name) && is_free(name))
}

fn attach(server: &Server, export: &str) -> Result<(String, RestoreGuard), String> {
    let device = format!("/dev/{}", free_device().ok_or("no free /dev/nbdN")?);
    let undo = device.clone();
    let guard = on_end(move || drop(run("nbd-client", &["-d", &undo])));
    let socket = server.socket().to_str().ok_or("a socket's path that is no text")?;
    run("nbd-client", &["-unix", socket, &device, "-N", export, "-b", "4096"])?;
    Ok((device, guard))
}

/// The document's command, but that what was written has to be there before the time ends, not after it.
fn dd(device: &str, bytes: u64) -> Result<f64, String> {
    let (to, count) = (format!("of={device}"), format!("count={}", bytes / 4096));
    let output = run_for("dd", &["if=/dev/zero", &to, "bs=4k", &count, "conv=fsync"], 600)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let seconds = seconds(&said).ok_or_else(|| format!("dd said no time: {said}"))?;
    Ok(bytes as f64 / 1e6 / seconds)
}

/// Of `536870912 bytes (537 MB, 512 MiB) copied, 1.28 s, 419 MB/s`, the time: it has more digits than the rate.
fn seconds(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains(" bytes"))?;
    line.split(", ").find_map(|part| part.strip_suffix(" s")?.replace(',', ".").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_in_any_language() {
        let of = |said: &str| seconds(&format!("131072+0 records in\n131072+0 records out\n{said}\n"));
        assert_eq!(of("536870912 bytes (537 MB, 512 MiB) copied, 1.28345 s, 418 MB/s"), Some(1.28345));
        assert_eq!(of("536870912 bytes (537 MB, 512 MiB) kopiert, 1,28345 s, 418 MB/s"), Some(1.28345));
        assert_eq!(seconds("dd: failed"), None);
    }

    #[test]
    fn what_this_machine_has_is_a_client_or_said_to_be_missing() {
        match Client::choose() {
            Ok((client, skipped)) => assert!(client.missing().is_empty() && skipped.iter().all(|why| !why.is_empty())),
            Err(missing) => assert!(missing.contains("fio")),
        }
    }
}
