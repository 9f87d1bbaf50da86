//! A client of a process's control channel.

use super::page::Page;
use crate::around::frozen::Frozen;
use crate::base::descriptors::{TOO_MANY, is_too_many};
use crate::base::failure::{Failure, Kind};
use crate::base::output::printable;
use crate::processes::maps;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, sockopt};
use rustix::net::{connect, recv, send, socket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_core::telemetry::stats::Opening;
use weir_linux::control::channel::{socket_name, token_message};
use weir_linux::control::{LONGEST_ANSWER, VERSION};

/// How long a process may take to answer: releasing a GiB of small pages takes it some 100 ms.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long one of many processes may take: releasing a GiB of small pages takes a tenth of it.
pub const ONES_PATIENCE: Duration = Duration::from_secs(3);
/// Processes that are waited for at the same time: one that does not answer keeps no other waiting.
pub const AT_ONCE: usize = 100;
/// After this time no further process is asked of many.
pub const ASKING: Duration = Duration::from_secs(5);
/// How long a process that ends may take from the end of its socket to that of its memory.
const END: Duration = Duration::from_secs(1);
/// Why it is not.
pub const OTHERS_ARE_SLOW: &str = "others have not answered for long";

/// Why a process may have no background thread.
pub const WHY_NO_THREAD: &str =
    "the heap is still small, `background` is 0, or a limit of threads or files refuses one";

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
            format!("there is no background thread: {WHY_NO_THREAD}")
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
        if is_stopped(pid) {
            let say = format!("process {pid} does not answer: it is stopped: `kill -CONT {pid}` has it go on");
            return Err(Failure::of(Kind::NotAnswering, say));
        }
        if let Some(frozen) = Frozen::of(pid) {
            let say = format!("process {pid} does not answer: it is {frozen}");
            return Err(Failure::of(Kind::NotAnswering, say));
        }
        enter_network_of(pid).map_err(failed)?;
        let name = socket_name(page.control.name.each_ref().map(|word| word.load(Relaxed)));
        let connected = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).and_then(|socket| {
            // Of a connection as well, where many others wait for one.
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
            retry_on_intr(|| connect(&socket, &address))?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
            Ok(socket)
        });
        let socket = connected.map_err(|error| match error {
            Errno::AGAIN => late(pid, patience),
            Errno::MFILE | Errno::NFILE => failed(TOO_MANY.into()),
            error => or_gone(pid, failed(format!("no connection: {error}"))),
        })?;
        check_peer(pid, peer(&socket)).map_err(|why| or_gone(pid, failed(why)))?;
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
                let why = format!("process {} has closed the connection", self.pid);
                Err(or_gone(self.pid, Failure::of(Kind::NotAnswering, why)))
            }
            // It goes to a terminal, and the process may be hostile.
            Ok((len, _)) => Ok(printable(&String::from_utf8_lossy(&message[..len]))),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: Errno) -> Failure {
        match error {
            Errno::AGAIN => late(self.pid, self.patience),
            error => {
                let why = format!("process {} does not answer: {error}", self.pid);
                or_gone(self.pid, Failure::of(Kind::NotAnswering, why))
            }
        }
    }
}

/// A failure of a channel, or that the process has ended: its socket is closed a little before.
fn or_gone(pid: i32, why: Failure) -> Failure {
    let begun = Instant::now();
    while !maps::has_ended(pid) {
        if begun.elapsed() >= END {
            return why;
        }
        std::thread::sleep(END / 20);
    }
    Failure::of(Kind::NotFound, format!("process {pid} has ended meanwhile"))
}

/// Whether a process is stopped, by a signal or by a debugger: it would not answer.
pub fn is_stopped(pid: i32) -> bool {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// What keeps a process from doing anything, if something does, and what has it go on.
pub fn standstill(pid: i32) -> Option<String> {
    if is_stopped(pid) {
        return Some(format!("stopped, by a signal or a debugger: `kill -CONT {pid}` has it go on"));
    }
    Frozen::of(pid).map(|frozen| frozen.to_string())
}

/// The number of the process that listens at the other end; 0: it has none here. The call of `rustix` takes 0 for an error.
fn peer(socket: &OwnedFd) -> std::io::Result<i32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel writes at most so many bytes of a value of its type.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length) };
    if done == 0 { Ok(peer.pid) } else { Err(std::io::Error::last_os_error()) }
}

/// The process may have ended, and its name be another's by now. Or `/proc` shows the numbers of another PID namespace.
fn check_peer(pid: i32, peer: std::io::Result<i32>) -> Result<(), String> {
    match peer {
        // A process whose main thread has ended is looked at by the number of another.
        Ok(peer) if peer == pid || peer > 0 && Path::new(&format!("/proc/{peer}/task/{pid}")).exists() => Ok(()),
        Ok(0) => {
            Err("it is in a PID namespace that is not within this command's: run this outside of the container".into())
        }
        Ok(other) => Err(format!(
            "its channel is that of process {other}: it has ended, or /proc is of another PID namespace: look again"
        )),
        Err(error) => Err(format!("it is unknown who listens: {error}")),
    }
}

/// Does something in a thread of its own: who connects to a process of another network namespace stays in that.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn late(pid: i32, patience: Duration) -> Failure {
    let patience = humantime::format_duration(Duration::from_millis(patience.as_millis() as u64));
    let why = standstill(pid).map_or("is it busy?".into(), |found| format!("it is {found}"));
    Failure::of(Kind::NotAnswering, format!("process {pid} has not answered for {patience}: {why}"))
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
    entered.map_err(not_entered)
}

fn not_entered(error: std::io::Error) -> String {
    if is_too_many(&error) {
        return TOO_MANY.into();
    }
    format!("it is in a network namespace of its own ({error}): run this there, or as root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_files_are_no_fault_of_the_namespace() {
        assert_eq!(not_entered(Errno::MFILE.into()), TOO_MANY);
        assert!(not_entered(Errno::PERM.into()).ends_with(": run this there, or as root"));
    }

    #[test]
    fn of_one_that_was_stopped_since_it_is_said_what_has_it_go_on() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let patience = Duration::from_secs(5) / 3;
        let busy = format!("process {pid} has not answered for 1s 666ms: is it busy?");
        assert_eq!(late(pid, patience).to_string(), busy);
        let of_child = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(of_child, rustix::process::Signal::STOP).unwrap();
        let stopped = rustix::process::WaitIdOptions::STOPPED;
        rustix::process::waitid(rustix::process::WaitId::Pid(of_child), stopped).unwrap();
        let say = late(pid, patience).to_string();
        child.kill().unwrap();
        child.wait().unwrap();
        let cure = format!("it is stopped, by a signal or a debugger: `kill -CONT {pid}` has it go on");
        assert_eq!(say, format!("process {pid} has not answered for 1s 666ms: {cure}"));
    }

    #[test]
    fn a_process_that_ends_before_its_answer_is_gone_and_one_that_lives_does_not_answer() {
        let asked = |pid: i32| {
            let kind = SocketType::SEQPACKET;
            let (one, other) =
                rustix::net::socketpair(AddressFamily::UNIX, kind, rustix::net::SocketFlags::CLOEXEC, None).unwrap();
            let control = Control { socket: one, pid, patience: PATIENCE };
            drop(other);
            let [sent, received] = [control.ask("get").unwrap_err(), control.receive().unwrap_err()];
            assert_eq!(sent.status, received.status);
            sent.status
        };
        assert_eq!(asked(std::process::id() as i32), Kind::NotAnswering as i32);
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.kill().unwrap();
        // It has ended, and is not waited for yet.
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child));
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(id, ended).unwrap();
        assert_eq!(asked(child.id() as i32), Kind::NotFound as i32);
        child.wait().unwrap();
        assert_eq!(asked(child.id() as i32), Kind::NotFound as i32);
    }

    #[test]
    fn who_listens_is_the_process_that_was_meant() {
        let (one, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let own = std::process::id() as i32;
        assert_eq!(check_peer(own, peer(&one)), Ok(()));
        assert!(check_peer(i32::MAX, peer(&one)).unwrap_err().contains(&format!("that of process {own}")));
        assert!(check_peer(own, Ok(0)).unwrap_err().contains("PID namespace"));
    }
}
