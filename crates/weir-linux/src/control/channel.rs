//! The socket of the control channel and its clients: who may connect, how many, and what is told to them.

use arrayvec::ArrayString;
use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;

use super::LONGEST_REQUEST;
use super::answer::{Answer, Host, write_answer, write_error, write_greeting};
use super::event::Told;
use super::request::{BadRequest, Request};
use crate::os::clock::monotonic_ns;
use crate::os::fd;
use crate::os::file::epoll;
use crate::os::file::socket::{self, Peer};
use crate::os::process;
use crate::os::rights::credentials;
use crate::os::syscall::Errno;

/// Clients at a time.
pub const CLIENTS: usize = 8;
/// Requests that are answered before the thread looks at everything else again.
const REQUESTS: usize = 16;
/// Lines that a subscriber is sent before that.
const LINES: usize = 64;
/// Strangers that are refused in one turn: twice as many as can wait, so that none of them has a friend wait longer.
const REFUSALS: usize = 2 * socket::BACKLOG;
/// How long no connection is taken after some were refused, ns. So another user who connects again and again wakes the
/// process ten times a second at most.
const PAUSE_NS: u64 = 100_000_000;
/// A client that was heard from within this time keeps its place, ns: a newcomer waits for as long. One that has yet to send the
/// token has less, [`PAUSE_NS`]: without it a client is to hold no other up.
const ACTIVE_NS: u64 = 1_000_000_000;
/// The listening socket's number among those that are waited for; clients have those of their places.
const LISTENER: u64 = CLIENTS as u64;

/// Why a channel ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program has put itself into a sandbox, where the next call may be its last.
    Sandbox,
    /// The kernel refuses what the channel needs.
    Refused(Errno),
}

impl From<Errno> for End {
    fn from(error: Errno) -> Self {
        Self::Refused(error)
    }
}

type Result<T> = core::result::Result<T, End>;

/// Who is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    socket: i32,
    /// The count of requests when it sent its last one.
    heard_at: u64,
    /// When that was, or when it was greeted, ns of the monotonic clock.
    heard_ns: u64,
    /// The client has sent the token.
    is_admitted: bool,
    /// How far the client has been told of events, if it wants to be.
    told: Option<Told>,
    /// The most that the client wants resident, bytes.
    target: Option<u64>,
}

/// An open channel, by one thread.
#[derive(Debug)]
pub struct Channel {
    set: i32,
    listener: i32,
    /// When connections are taken again, ns of the monotonic clock; `None`: they are.
    paused_until: Option<u64>,
    /// They are not as all places are in use: the next free one ends that.
    is_full: bool,
    clients: [Option<Client>; CLIENTS],
    /// Requests and connections so far.
    count: u64,
    /// Two random numbers, of which its name is made.
    name: [u64; 2],
}

/// A socket's name.
pub fn socket_name([first, second]: [u64; 2]) -> ArrayString<48> {
    let mut name = ArrayString::new();
    // 13 and 32 bytes.
    let _ = write!(name, "weir-control-{first:016x}{second:016x}");
    name
}

/// The first message of a client, by what the page of statistics tells.
pub fn token_message([first, second]: [u64; 2]) -> ArrayString<48> {
    let mut message = ArrayString::new();
    // 6 and 32 bytes.
    let _ = write!(message, "token {first:016x}{second:016x}");
    message
}

impl Channel {
    /// Listens, under a name that no other has, and writes a new token to the page. The token is kept there alone. A
    /// forked child clears it on its own page, so that the child's memory holds no copy. An error where no secret
    /// number is to be had.
    pub fn open(stats: &Stats) -> core::result::Result<Self, Errno> {
        let token = process::secret_words()?.map(|word| word as u64);
        stats.control.token.iter().zip(token).for_each(|(to, word)| to.store(word, Relaxed));
        let name = process::random_words().map(|word| word as u64);
        let set = epoll::create()?;
        let listener = socket::listen(socket_name(name).as_bytes());
        let added = listener.and_then(|listener| {
            epoll::add(set, listener, LISTENER).map(|()| listener).inspect_err(|_| {
                let _ = fd::close(listener);
            })
        });
        match added {
            Ok(listener) => {
                let clients = [None; CLIENTS];
                Ok(Self { set, listener, paused_until: None, is_full: false, clients, count: 0, name })
            }
            Err(error) => {
                let _ = fd::close(set);
                Err(error)
            }
        }
    }

    /// The descriptor that is readable while there is something to do.
    pub fn descriptor(&self) -> i32 {
        self.set
    }

    /// The two numbers of which the channel's name is made: see [`socket_name`].
    pub fn name(&self) -> [u64; 2] {
        self.name
    }

    /// Ends all connections, and the channel.
    pub fn close(mut self) {
        (0..CLIENTS).for_each(|place| self.drop_client(place));
        let _ = fd::close(self.listener);
        let _ = fd::close(self.set);
    }

    /// When it is to be served although its descriptor is not readable, ns of the monotonic clock.
    pub fn due(&self) -> Option<u64> {
        self.paused_until
    }

    /// Answers what came, at most 16 requests and connections. An error: the channel is to be closed.
    pub fn serve(&mut self, host: &mut impl Host, stats: &Stats) -> Result<()> {
        for _ in 0..REQUESTS {
            end_in_sandbox(|| host.is_in_sandbox())?;
            let is_over = |until| monotonic_ns() >= until || self.is_full && self.clients.contains(&None);
            if self.paused_until.is_some_and(is_over) {
                epoll::add(self.set, self.listener, LISTENER)?;
                self.paused_until = None;
            }
            match epoll::next_ready(self.set)? {
                None => break,
                Some(LISTENER) => self.accept(host)?,
                Some(place) => self.hear(place as usize, host, stats)?,
            }
            self.count += 1;
        }
        Ok(())
    }

    /// Sends subscribers what happened since the last time. `is_in_sandbox` is called before each line. An error: the
    /// channel is to be closed.
    pub fn tell_subscribers(&mut self, stats: &Stats, is_in_sandbox: impl Fn() -> bool) -> Result<()> {
        for place in 0..CLIENTS {
            let Some(Client { socket, told: Some(told), .. }) = &mut self.clients[place] else { continue };
            for _ in 0..LINES {
                let (mut line, before) = (ArrayString::<256>::new(), *told);
                if told.next_line(stats, &mut line) != Ok(true) {
                    break;
                }
                end_in_sandbox(&is_in_sandbox)?;
                match socket::send(*socket, line.as_bytes()) {
                    Ok(()) => {}
                    // It reads too slowly: told again later, as far as it is not overwritten by then.
                    Err(Errno::EAGAIN) => {
                        *told = before;
                        break;
                    }
                    Err(_) => {
                        self.drop_client(place);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes one connection of a user who may steer, and refuses all strangers that wait before it. Connections wait while all
    /// places are in use. Strangers are not among those, and so cannot prolong it.
    fn accept(&mut self, host: &impl Host) -> Result<()> {
        self.is_full = self.is_in_use();
        if self.is_full {
            return self.pause();
        }
        let is_dumpable = process::dumpable();
        let own_user = process::geteuid();
        for refused in 0..REFUSALS {
            end_in_sandbox(|| host.is_in_sandbox())?;
            let socket = match socket::accept(self.listener) {
                Ok(socket) => socket,
                // It has gone again.
                Err(Errno::EAGAIN) if refused == 0 => return Ok(()),
                // All were strangers; or there is no descriptor, or no memory, for now: the connection waits.
                Err(_) => break,
            };
            let why = socket::peer(socket).map_or(Some(STRANGER), |peer| refusal(&peer, own_user, is_dumpable));
            let Some(why) = why else {
                self.admit(socket);
                return if refused == 0 { Ok(()) } else { self.pause() };
            };
            let mut answer = Answer::new();
            let _ = write_error(&mut answer, why);
            let _ = socket::send(socket, answer.as_bytes());
            let _ = fd::close(socket);
        }
        self.pause()
    }

    /// Greets who connected.
    fn admit(&mut self, socket: i32) {
        let mut answer = Answer::new();
        let _ = write_greeting(&mut answer);
        let place = self.place_for_one_more();
        let is_greeted = socket::send(socket, answer.as_bytes()).is_ok();
        if is_greeted && epoll::add(self.set, socket, place as u64).is_ok() {
            self.clients[place] = Some(Client {
                socket,
                heard_at: self.count,
                heard_ns: monotonic_ns(),
                is_admitted: false,
                told: None,
                target: None,
            });
        } else {
            let _ = fd::close(socket);
        }
    }

    /// Takes no connections for a while. Clients are answered meanwhile.
    fn pause(&mut self) -> Result<()> {
        if self.paused_until.is_some() {
            return Ok(());
        }
        epoll::remove(self.set, self.listener)?;
        self.paused_until = Some(monotonic_ns() + PAUSE_NS);
        Ok(())
    }

    /// The most that may be resident, bytes: the least that a client wants which is connected now.
    pub fn target(&self) -> Option<u64> {
        self.clients.iter().flatten().filter_map(|client| client.target).min()
    }

    /// Whether there is no place, and was a word from each client just now. Who asks once has gone again at once.
    fn is_in_use(&self) -> bool {
        let now = monotonic_ns();
        let is_active =
            |it: &Client| now.saturating_sub(it.heard_ns) < if it.is_admitted { ACTIVE_NS } else { PAUSE_NS };
        self.clients.iter().all(|client| client.as_ref().is_some_and(is_active))
    }

    /// A free place; if there is none, that of the client which was silent for longest. Clients without the token go
    /// first, those that wait for something to happen last.
    fn place_for_one_more(&mut self) -> usize {
        let silence = |client: &Option<Client>| {
            client.map(|it| (it.is_admitted, it.told.is_some() || it.target.is_some(), it.heard_at))
        };
        // An empty place is the least of all.
        let place = (0..CLIENTS).min_by_key(|&place| silence(&self.clients[place])).unwrap_or(0);
        self.drop_client(place);
        place
    }

    fn drop_client(&mut self, place: usize) {
        if let Some(client) = self.clients.get_mut(place).and_then(Option::take) {
            let _ = fd::close(client.socket);
        }
    }

    /// Takes one message of a client's and answers it.
    fn hear(&mut self, place: usize, host: &mut impl Host, stats: &Stats) -> Result<()> {
        let Some(Some(client)) = self.clients.get_mut(place) else { return Ok(()) };
        (client.heard_at, client.heard_ns) = (self.count, monotonic_ns());
        let mut message = [0; LONGEST_REQUEST];
        let received = match socket::receive(client.socket, &mut message) {
            Err(Errno::EAGAIN) => return Ok(()),
            Ok(0) | Err(_) => {
                self.drop_client(place);
                return Ok(());
            }
            Ok(len) => message.get(..len).ok_or(BadRequest::TooLong),
        };
        let mut answer = Answer::new();
        if !client.is_admitted {
            client.is_admitted = received.is_ok_and(|message| is_token(message, stats));
            let written = match client.is_admitted {
                true => answer.write_str("ok\n"),
                false => write_error(&mut answer, "the token on the page of statistics comes first"),
            };
            let is_sent = written.is_ok() && socket::send(client.socket, answer.as_bytes()).is_ok();
            let is_admitted = client.is_admitted;
            if !(is_admitted && is_sent) {
                self.drop_client(place);
            }
            if is_admitted {
                return Ok(());
            }
            self.is_full = false;
            return self.pause();
        }
        let written = match received.and_then(Request::parse) {
            Ok(request) => {
                match request {
                    Request::Subscribe => client.told = Some(Told::from_now(stats)),
                    Request::Target(bytes) => client.target = (bytes > 0).then_some(bytes),
                    _ => {}
                }
                write_answer(&mut answer, request, host)
            }
            Err(bad) => write_error(&mut answer, bad),
        };
        // An answer that does not fit is one of a version to come: cut, it still begins as it should.
        let _ = written;
        // Releasing a GiB takes 100 ms, in which a filter may have been set.
        end_in_sandbox(|| host.is_in_sandbox())?;
        if socket::send(client.socket, answer.as_bytes()).is_err() {
            self.drop_client(place);
        }
        Ok(())
    }
}

/// Whether a message is the token. All of it is compared: how long that takes tells nothing.
fn is_token(message: &[u8], stats: &Stats) -> bool {
    let token = stats.control.token.each_ref().map(|word| word.load(Relaxed));
    let (message, wanted) = (message.trim_ascii(), token_message(token));
    let differences = message.iter().zip(wanted.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    // Zeros are none: those of a page on which none was written.
    token != [0; 2] && message.len() == wanted.len() && differences == 0
}

fn end_in_sandbox(is_in_sandbox: impl Fn() -> bool) -> Result<()> {
    if is_in_sandbox() { Err(End::Sandbox) } else { Ok(()) }
}

const STRANGER: &str = "only root and the process's own user may steer it";
/// Root of the machine too is refused so, where the namespace does not have it.
const UNKNOWN: &str =
    "it is in a user namespace that does not have this user: a user that this has may, its root or the process's own";

/// Why the process that connected is refused; none: it is welcome.
fn refusal(peer: &Peer, own_user: u32, is_dumpable: bool) -> Option<&'static str> {
    match (is_unknown(peer), may_steer(peer, own_user, is_dumpable)) {
        (true, _) => Some(UNKNOWN),
        (false, true) => None,
        (false, false) => Some(STRANGER),
    }
}

/// Whether the process that connected may look at and steer a process of this user. That is root, and the user itself, unless the
/// process is not to be looked into by it.
fn may_steer(peer: &Peer, own_user: u32, is_dumpable: bool) -> bool {
    peer.user == 0 || (peer.user == own_user && is_dumpable)
}

/// Whether the kernel says of the process that connected only that it has no id in this process's user namespace. Then it is
/// another user than the process's, even if that has the id by which such users are shown.
fn is_unknown(peer: &Peer) -> bool {
    peer.user != 0 && credentials::may_be_anyone(peer.user)
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
#[cfg(test)]
pub use tests::with_gone_subscriber;
