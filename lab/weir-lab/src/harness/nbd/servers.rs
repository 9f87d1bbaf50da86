//! NBD servers, each started in the same way: on a Unix socket, with files as its exports.

use crate::harness::child::{KilledOnDrop, beside, system};
use crate::harness::lab::Need;
use crate::harness::machine::cgroup::Cgroup;
use anyhow::Result;
use std::fmt::{self, Display, Formatter};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CLIENTS: &str = "2000";

/// The servers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Weir,
    Nbdkit,
    Qemu,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Weir, Kind::Nbdkit, Kind::Qemu];

    pub fn need(self) -> Need {
        match self {
            Kind::Weir => Need::Beside("weir-nbd"),
            Kind::Nbdkit => Need::Program("nbdkit", "nbdkit"),
            Kind::Qemu => Need::Program("qemu-nbd", "qemu-utils"),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(match self {
            Kind::Weir => "weir-nbd",
            Kind::Nbdkit => "nbdkit",
            Kind::Qemu => "qemu-nbd",
        })
    }
}

/// A server that runs.
pub struct Server {
    pub child: KilledOnDrop,
    pub kind: Kind,
    pub socket: PathBuf,
}

impl Server {
    /// Serves the files of a folder, each under its name; qemu-nbd the first alone, under no name.
    pub fn start(
        kind: Kind,
        folder: &Path,
        names: &[String],
        socket: &Path,
        options: &[String],
        cgroup: Option<&Cgroup>,
    ) -> Result<Server> {
        let mut command = match kind {
            Kind::Weir => {
                let mut weir = weir(socket, options)?;
                names.iter().for_each(|name| _ = weir.arg(format!("--export={name}={}", folder.join(name).display())));
                weir
            }
            Kind::Nbdkit => {
                let mut nbdkit = system("nbdkit")?;
                nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).args(options);
                nbdkit.arg("file").arg(format!("dir={}", folder.display()));
                nbdkit
            }
            Kind::Qemu => {
                let mut qemu = system("qemu-nbd")?;
                qemu.args(["--persistent", "--format=raw", "--cache=writeback", "--shared", CLIENTS, "--socket"]);
                qemu.arg(socket).args(options).arg(folder.join(&names[0]));
                qemu
            }
        };
        cgroup.into_iter().for_each(|cgroup| cgroup.group.enter(&mut command));
        Server::run(kind, command, socket)
    }

    /// weir-nbd, with exports as it takes them.
    pub fn weir(socket: &Path, exports: &[String], options: &[String]) -> Result<Server> {
        let mut command = weir(socket, options)?;
        exports.iter().for_each(|export| _ = command.arg(format!("--export={export}")));
        Server::run(Kind::Weir, command, socket)
    }

    /// A command that comes to listen on the socket.
    pub fn run(kind: Kind, mut command: Command, socket: &Path) -> Result<Server> {
        let _ = std::fs::remove_file(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let listens = || UnixStream::connect(socket).is_ok();
        let child = KilledOnDrop::start_until(command, &kind.to_string(), listens)?;
        Ok(Server { child, kind, socket: socket.to_path_buf() })
    }

    /// The name under which a client finds an export.
    pub fn export<'a>(&self, name: &'a str) -> &'a str {
        if self.kind == Kind::Qemu { "" } else { name }
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{}?socket={}", self.export(name), self.socket.display())
    }

    /// Fails unless it runs still.
    pub fn check(&mut self) -> Result<()> {
        self.child.check(&self.kind.to_string())
    }
}

/// `weir-nbd serve`, without exports.
pub fn weir(socket: &Path, options: &[String]) -> Result<Command> {
    let mut command = Command::new(beside("weir-nbd")?);
    command.args(["serve", "--log", "warn", "--max-connections", CLIENTS]);
    if !options.iter().any(|option| option.starts_with("--control=")) {
        command.arg("--control=none");
    }
    command.arg("--listen").arg(format!("unix:{}", socket.display())).args(options);
    Ok(command)
}

/// Writes a file that has no hole and no page of zeroes.
pub fn make_volume(file: &Path, bytes: u64) -> Result<()> {
    let mut to = std::fs::File::create(file)?;
    let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8 + 1).collect();
    Ok((0..bytes >> 20).try_for_each(|_| std::io::Write::write_all(&mut to, &block))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::machine::owner::Folder;
    use crate::harness::nbd::client::NbdClient;

    #[test]
    fn each_server_serves_the_same_file() {
        let folder = Folder::in_memory("servers").unwrap();
        let (volumes, names) = (folder.below("volumes").unwrap(), ["a", "b"].map(String::from));
        names.iter().for_each(|name| std::fs::write(volumes.join(name), vec![7; 1 << 20]).unwrap());
        for kind in Kind::ALL {
            if let Some(missing) = kind.need().missing() {
                eprintln!("skipped: {missing}");
                continue;
            }
            let mut server = Server::start(kind, &volumes, &names, &folder.at("socket"), &[], None).unwrap();
            for name in ["a", "b"] {
                let mut client = NbdClient::connect(&server.socket, server.export(name)).unwrap();
                assert_eq!(client.read(4096, 8192).unwrap(), [7; 8192]);
                assert!(client.read(1 << 30, 1).is_err(), "{kind}: behind the end");
            }
            server.check().unwrap();
        }
    }
}
