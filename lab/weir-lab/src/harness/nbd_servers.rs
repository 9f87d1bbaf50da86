//! NBD servers, each started in the same way: on a Unix socket, with files as its exports.

use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{KilledOnDrop, beside, wait_until};
use crate::harness::programs::{command, find};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Most clients at a time.
const CLIENTS: &str = "2000";

/// weir-nbd, beside this program.
pub fn weir_nbd() -> Result<PathBuf, String> {
    beside("weir-nbd").map_err(|_| "weir-nbd beside weir-lab: cargo build --release -p weir-nbd".into())
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Weir,
    Nbdkit,
    Qemu,
}

impl Kind {
    /// All of them, Weir's first.
    pub const ALL: [Kind; 3] = [Kind::Weir, Kind::Nbdkit, Kind::Qemu];

    /// Its program's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Weir => "weir-nbd",
            Kind::Nbdkit => "nbdkit",
            Kind::Qemu => "qemu-nbd",
        }
    }

    /// What is missing to start it.
    pub fn missing(self) -> Option<String> {
        match self {
            Kind::Weir => weir_nbd().err(),
            Kind::Nbdkit => find("nbdkit").is_none().then(|| "nbdkit: apt-get install nbdkit".into()),
            Kind::Qemu => find("qemu-nbd").is_none().then(|| "qemu-nbd: apt-get install qemu-utils".into()),
        }
    }
}

/// What a server serves: the files `NAME` in a folder.
pub struct Exports<'a> {
    pub folder: &'a Path,
    pub names: &'a [String],
}

/// A server that runs.
pub struct Server {
    child: KilledOnDrop,
    kind: Kind,
    socket: PathBuf,
}

impl Server {
    /// Starts a server on a socket, in a cgroup if one is given; `options` are added to the command's.
    pub fn start(
        kind: Kind,
        exports: &Exports<'_>,
        socket: &Path,
        options: &[String],
        cgroup: Option<&Cgroup>,
    ) -> Result<Server, String> {
        let command = command_of(kind, exports, socket, options)?;
        Self::run(kind, command, socket, cgroup)
    }

    /// Starts weir-nbd with exports of its own (`NAME=memory:SIZE`).
    pub fn weir(socket: &Path, exports: &[&str], options: &[String]) -> Result<Server, String> {
        let mut command = weir_command(socket, options)?;
        command.args(exports.iter().flat_map(|export| ["--export", export]));
        Self::run(Kind::Weir, command, socket, None)
    }

    fn run(kind: Kind, mut command: Command, socket: &Path, cgroup: Option<&Cgroup>) -> Result<Server, String> {
        // Of a server that was killed.
        let _ = std::fs::remove_file(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(cgroup) = cgroup {
            enter(&mut command, cgroup);
        }
        let mut child = KilledOnDrop::start(command, kind.name())?;
        wait_until(kind.name(), &mut child, || UnixStream::connect(socket).is_ok())?;
        Ok(Server { child, kind, socket: socket.to_path_buf() })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The name under which it has an export: qemu-nbd has one alone, without a name.
    pub fn export<'a>(&self, name: &'a str) -> &'a str {
        if self.kind == Kind::Qemu { "" } else { name }
    }

    /// The URI of an export, as libnbd reads it.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{}?socket={}", self.export(name), self.socket.display())
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.0.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("{} did not survive: {ended:?}", self.kind.name())),
        }
    }
}

fn weir_command(socket: &Path, options: &[String]) -> Result<Command, String> {
    let mut command = Command::new(weir_nbd()?);
    command.args(["serve", "--log", "warn", "--max-connections", CLIENTS]);
    if !options.iter().any(|option| option.starts_with("--control=")) {
        command.arg("--control=none");
    }
    command.arg("--listen").arg(format!("unix:{}", socket.display())).args(options);
    Ok(command)
}

fn command_of(kind: Kind, exports: &Exports<'_>, socket: &Path, options: &[String]) -> Result<Command, String> {
    let file = |name: &String| exports.folder.join(name);
    Ok(match kind {
        Kind::Weir => {
            let mut weir = weir_command(socket, options)?;
            for name in exports.names {
                weir.arg("--export").arg(format!("{name}={}", file(name).display()));
            }
            weir
        }
        Kind::Nbdkit => {
            let mut nbdkit = command("nbdkit")?;
            nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).args(options);
            nbdkit.arg("file").arg(format!("dir={}", exports.folder.display()));
            nbdkit
        }
        Kind::Qemu => {
            let one = exports.names.first().ok_or("qemu-nbd needs a file")?;
            let mut qemu = command("qemu-nbd")?;
            qemu.args(["--persistent", "--format=raw", "--cache=writeback", "--shared", CLIENTS, "--socket"]);
            qemu.arg(socket).args(options).arg(file(one));
            qemu
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::folder::Folder;
    use crate::harness::nbd_client::NbdClient;

    #[test]
    fn each_server_serves_the_same_file() {
        let folder = Folder::in_memory("servers").unwrap();
        let (volumes, names) = (folder.at("volumes"), ["a".to_string(), "b".to_string()]);
        std::fs::create_dir(&volumes).unwrap();
        names.iter().for_each(|name| std::fs::write(volumes.join(name), vec![7; 1 << 20]).unwrap());
        let exports = Exports { folder: &volumes, names: &names };
        for kind in Kind::ALL {
            if let Some(missing) = kind.missing() {
                eprintln!("skipped: {missing}");
                continue;
            }
            let mut server = Server::start(kind, &exports, &folder.at("socket"), &[], None).unwrap();
            for name in ["a", "b"] {
                let mut client = NbdClient::connect(server.socket(), server.export(name)).unwrap();
                client.read(4096, 8192).unwrap();
                assert!(client.read(1 << 30, 1).is_err(), "{}: behind the end", kind.name());
            }
            server.check().unwrap();
        }
    }
}
