//! A client of a process's control channel.

use super::page::Page;
use crate::base::failure::{Failure, Kind};
use crate::base::output::printable;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, sockopt};
use rustix::net::{connect, recv, send, socket};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_core::telemetry::stats::Opening;
use weir_linux::control::channel::{socket_name, token_message};
use weir_linux::control::{LONGEST_ANSWER, VERSION};

/// How long a process may take to answer: releasing a GiB of small pages takes it some 100 ms.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct Control {
    socket: OwnedFd,
    pid: i32,
    patience: Duration,
}

/// Why there is no channel to connect to; `None`: there is one.
pub fn obstacle(page: &Page) -> Option<String> {
    let control = &page.control;
    closed(control.state.load(Relaxed), control.error.load(Relaxed), "control", "a socket")
}

/// Why something of a process that this setting switches is not open to others; `None`: it is.
pub fn closed(opening: u32, error: u32, setting: &str, what: &str) -> Option<String> {
    Some(match Opening::of(opening) {
        Some(Opening::Open) => return None,
        Some(Opening::NoThread) => {
            "there is no background thread: the heap is still small, or `background` is not 1".into()
        }
        Some(Opening::Off) => format!("the setting `{setting}` is 0"),
        Some(Opening::Sandbox) => {
            "the program is in a sandbox of its own (a filter of system calls, a root without /proc), \
                                   where Weir opens nothing"
                .into()
        }
        Some(Opening::Refused) => {
            format!("the kernel refused {what}: {}", std::io::Error::from_raw_os_error(error as i32))
        }
        None => "it is of another version of Weir".into(),
    })
}

impl Control {
    /// Connects to the channel of process `pid`, whose page this is.
    pub fn connect(pid: i32, page: &Page) -> Result<Self, Failure> {
        Self::connect_within(pid, page, PATIENCE)
    }

    /// Connects with another time for each answer than [`PATIENCE`].
    pub fn connect_within(pid: i32, page: &Page, patience: Duration) -> Result<Self, Failure> {
        let failed = |why: String| Failure::of(Kind::Refused, format!("process {pid} cannot be steered: {why}"));
        if let Some(why) = obstacle(page) {
            return Err(failed(why));
        }
        enter_network_of(pid).map_err(failed)?;
        let name = socket_name(page.control.name.each_ref().map(|word| word.load(Relaxed)));
        let connected = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).and_then(|socket| {
            // Of a connection as well, where many others wait for one.
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
            retry_on_intr(|| connect(&socket, &address))?;
            // The process may have ended, and its name be another's by now.
            let peer = sockopt::socket_peercred(&socket)?;
            if peer.pid.as_raw_nonzero().get() != pid {
                return Err(Errno::CONNREFUSED);
            }
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
            Ok(socket)
        });
        let socket = connected.map_err(|error| match error {
            Errno::AGAIN => late(pid, patience),
            error => failed(format!("no connection: {error}")),
        })?;
        let control = Self { socket, pid, patience };
        match control.receive()?.trim_end() {
            greeting if greeting == format!("weir control {VERSION}") => {
                let token = page.control.token.each_ref().map(|word| word.load(Relaxed));
                control.ask(&token_message(token)).map(|_| control)
            }
            refusal if refusal.starts_with("error: ") => Err(failed(refusal["error: ".len()..].into())),
            other => Err(failed(format!(
                "it speaks another version of the protocol ({other:?}): use the `weir` of the same release"
            ))),
        }
    }

    /// Sends a request; the lines of its answer, or why it was refused.
    pub fn ask(&self, request: &str) -> Result<String, Failure> {
        let sent = retry_on_intr(|| send(&self.socket, request.as_bytes(), SendFlags::NOSIGNAL));
        sent.map_err(|error| self.failed(error))?;
        let answer = self.receive()?;
        if let Some(lines) = answer.strip_prefix("ok\n") {
            return Ok(lines.to_owned());
        }
        Err(Failure::of(Kind::Refused, answer.strip_prefix("error: ").unwrap_or(&answer).trim_end().to_owned()))
    }

    fn receive(&self) -> Result<String, Failure> {
        let mut message = [0u8; LONGEST_ANSWER];
        // A wait with a bound ends also where this process was stopped, or frozen with its group, and goes on.
        match retry_on_intr(|| recv(&self.socket, &mut message, RecvFlags::empty())) {
            Ok((0, _)) => {
                Err(Failure::of(Kind::NotAnswering, format!("process {} has closed the connection", self.pid)))
            }
            // It goes to a terminal, and the process may be hostile.
            Ok((len, _)) => Ok(printable(&String::from_utf8_lossy(&message[..len]))),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: Errno) -> Failure {
        match error {
            Errno::AGAIN => late(self.pid, self.patience),
            error => Failure::of(Kind::NotAnswering, format!("process {} does not answer: {error}", self.pid)),
        }
    }
}

/// Does something in a thread of its own: who connects to a process of another network namespace stays in that.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn late(pid: i32, patience: Duration) -> Failure {
    let seconds = patience.as_secs();
    Failure::of(Kind::NotAnswering, format!("process {pid} has not answered for {seconds} s: is it stopped?"))
}

/// Names of sockets without a file belong to a network namespace: this process enters that of the other, if it is another.
fn enter_network_of(pid: i32) -> Result<(), String> {
    let theirs = format!("/proc/{pid}/ns/net");
    let link = |path: &str| std::fs::read_link(path).ok();
    if link(&theirs).is_none_or(|theirs| Some(theirs) == link("/proc/thread-self/ns/net")) {
        return Ok(());
    }
    let entered = std::fs::File::open(&theirs).and_then(|namespace| {
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .map_err(Into::into)
    });
    entered.map_err(|error| format!("it is in a network namespace of its own ({error}): run this there, or as root"))
}
