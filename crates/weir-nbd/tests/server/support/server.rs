//! A server as a child process, with a folder of its own.

use super::client::Client;
use super::eventually;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A running server, killed when it is dropped.
pub struct Server {
    child: Child,
    pub folder: TempDir,
}

impl Server {
    /// Starts `weir-nbd serve` with `options`, in a new folder.
    pub fn start(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), options)
    }

    /// Starts a server in `folder`, which is also its working directory. It listens on the socket `s`
    /// there.
    pub fn start_in(folder: TempDir, options: &[&str]) -> Self {
        Self::spawn(folder, options, |_| {})
    }

    /// Starts a server in `folder`, with the last word on the command.
    pub fn spawn(folder: TempDir, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::try_spawn(folder, options, change).unwrap_or_else(|log| panic!("the server ended:\n{log}"))
    }

    /// As [`Server::spawn`]; the log of one that ended.
    pub fn try_spawn(folder: TempDir, options: &[&str], change: impl FnOnce(&mut Command)) -> Result<Self, String> {
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
        // Stalls of the machine that the tests run on are no pressure: under it no cache grows.
        command.env("WEIR_PSI_SOME_US", "10000000").env("WEIR_PSI_FULL_US", "10000000");
        command.args(["serve", "--listen", "unix:s", "--control", "c", "--log", "debug"]).args(options);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        change(&mut command);
        let mut server = Self { child: command.spawn().expect("the server starts"), folder };
        let mut has_ended = false;
        eventually("the server serves", || {
            has_ended = server.child.try_wait().expect("a child").is_some();
            // Its sockets listen earlier. A report comes once all is said that is said at the start.
            let reports = |mut socket: UnixStream| {
                socket.set_read_timeout(Some(Duration::from_secs(1)))?;
                socket.read(&mut [0])
            };
            has_ended || UnixStream::connect(server.path("c")).and_then(reports).is_ok_and(|read| read > 0)
        });
        if has_ended { Err(server.log()) } else { Ok(server) }
    }

    /// Runs `weir-nbd` to its end.
    pub fn run(arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weir-nbd")).args(arguments).output().expect("the program runs")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("s")
    }

    /// The URI of an export, as libnbd and QEMU read it.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("the log")
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// A client that has said nothing yet.
    pub fn connect(&self) -> Client {
        Client::new(UnixStream::connect(self.socket()).expect("the server listens"))
    }

    /// A client that uses an export, with simple replies.
    pub fn simple(&self, export: &str) -> Client {
        let mut client = self.connect();
        client.greet();
        client.go(export);
        client
    }

    /// A client that uses an export, with structured replies and `base:allocation`.
    pub fn structured(&self, export: &str) -> Client {
        let mut client = self.connect();
        client.greet();
        client.structured();
        client.go(export);
        client
    }

    /// A client that uses an export, with extended headers and `base:allocation`.
    pub fn extended(&self, export: &str) -> Client {
        let mut client = self.connect();
        client.greet();
        client.extended();
        client.set_allocation(export);
        client.go(export);
        client
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so that its number is its own.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// The report of `weir-nbd stat`.
    pub fn stat(&self) -> serde_json::Value {
        let control = self.path("c");
        let output = Self::run(&["stat", "--json", "--control", control.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// It has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the server ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Stops it by SIGTERM: it must end well.
    pub fn stop(mut self) {
        self.signal(libc::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{status}:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
