//! The control channel against a model: clients with and without the token, strangers, messages of any bytes and lengths. Each
//! answer is the one that an independent reading expects, settings stay in their ranges, and no descriptor is left.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::trace::Event;
use weir_core::telemetry::tunables::{Effect, TABLE, Tunables};
use weir_linux::control::answer::Host;
use weir_linux::control::channel::{CLIENTS, Channel, End, socket_name, token_message};
use weir_linux::control::{LONGEST_ANSWER, LONGEST_REQUEST};

/// Steps of a history at most.
const STEPS: usize = 200;
/// Connections at a time.
const CONNECTIONS: usize = 20;
/// Turns after which nothing is left to be done: of messages that wait, each turn takes 16.
const TURNS: usize = 1000;
/// A user who is neither root nor who fuzzes.
const STRANGER: u32 = 1234;
const REPORT: [(&str, usize); 7] = [
    ("live", 1),
    ("idle", 2),
    ("fragmented", 3),
    ("merged", 4),
    ("metadata", 5),
    ("untouched", 6),
    ("resident", usize::MAX),
];
const ONLY_ROOT: &str = "error: only root and the process's own user may steer it\n";

fuzz_target!(|data: &[u8]| {
    let free = lowest_descriptor();
    let mut bench = Bench::new();
    // It ends where the input does.
    let _ = history(&mut Unstructured::new(data), &mut bench);
    bench.clients.clear();
    bench.channel.close();
    assert_eq!(lowest_descriptor(), free, "a descriptor is left open");
});

fn history(u: &mut Unstructured, bench: &mut Bench) -> Result<()> {
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        step(u, bench)?;
        bench.check();
    }
    Ok(())
}

fn step(u: &mut Unstructured, bench: &mut Bench) -> Result<()> {
    let place = if bench.clients.is_empty() { None } else { Some(u.choose_index(bench.clients.len())?) };
    match (u.int_in_range(0..=15u8)?, place) {
        (0, _) => bench.connect(false),
        (1, _) => bench.connect(true),
        (2, _) => bench.connect_stranger(),
        (3, Some(place)) => drop(bench.clients.swap_remove(place)),
        (4, _) => {
            (0..u.int_in_range(1..=100)?).for_each(|bytes| bench.stats.trace.record(&event(bytes)));
            bench.stats.pressure_level.store(u.arbitrary()?, Relaxed);
            bench.tell();
        }
        (5, _) => bench.enter_sandbox(),
        (6, Some(place)) => {
            let (count, message) = (u.int_in_range(1..=100)?, message(u, bench)?);
            (0..count).for_each(|_| bench.clients[place].send(&message));
            bench.serve();
            bench.hear_all();
        }
        (_, Some(place)) => {
            let message = message(u, bench)?;
            bench.ask(place, &message);
        }
        (_, None) => bench.connect(true),
    }
    Ok(())
}

fn event(bytes: u64) -> Event {
    Event { end: 1, place: None, zone: 0, kind: None, cause: None, blocks: 1, bytes, ns: 1, error: 0 }
}

/// A message that is a request, or nearly one, or any bytes.
fn message(u: &mut Unstructured, bench: &Bench) -> Result<Vec<u8>> {
    let setting = TABLE[u.choose_index(TABLE.len())?];
    let name = setting.name;
    Ok(match u.int_in_range(0..=9u8)? {
        0 => bench.token().into(),
        1 => format!("get {name}").into(),
        2 => b"get".into(),
        3 => (*u.choose(&["trim", "drain", "report\n", "mergeable", "subscribe", "target 4096", "target 0"])?).into(),
        4 | 5 => {
            let value = match u.int_in_range(0..=4u8)? {
                0 => setting.max.wrapping_add(u.int_in_range(0..=2)?).wrapping_sub(1),
                1 => setting.min.wrapping_add(u.int_in_range(0..=2)?).wrapping_sub(1),
                2 => u.int_in_range(0..=1)?,
                _ => u.arbitrary()?,
            };
            format!("set {name} {value}{}", u.choose(&["", "K", "M", "GiB", "\n"])?).into()
        }
        6 => {
            let rest = u.int_in_range(0..=300)?;
            [b"set ", name.as_bytes(), u.bytes(rest.min(u.len()))?].concat()
        }
        7 => vec![u.arbitrary()?; u.int_in_range(0..=5000)?],
        _ => {
            let length = u.int_in_range(0..=300)?;
            u.bytes(length.min(u.len()))?.into()
        }
    })
}

/// A channel, its clients, and what is expected of it.
struct Bench {
    channel: Channel,
    host: Fake,
    stats: Box<Stats>,
    /// The settings as an independent reading has them.
    model: Tunables,
    clients: Vec<Client>,
}

struct Fake {
    tunables: Tunables,
    effects: Vec<Effect>,
    is_in_sandbox: bool,
}

impl Host for Fake {
    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
    fn take_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
    fn trim(&mut self) -> usize {
        17
    }
    fn drain(&mut self) -> usize {
        usize::MAX
    }
    fn report(&mut self) -> [(&'static str, usize); 7] {
        REPORT
    }
    fn mergeable(&mut self) -> usize {
        23
    }
    fn callbacks(&self) -> usize {
        5
    }
    fn is_in_sandbox(&self) -> bool {
        self.is_in_sandbox
    }
}

impl Bench {
    fn new() -> Self {
        let stats = Box::new(Stats::new());
        let channel = Channel::open(&stats).expect("a socket");
        let host = Fake { tunables: Tunables::new(), effects: Vec::new(), is_in_sandbox: false };
        let model = Tunables::new();
        Self { channel, host, stats, model, clients: Vec::new() }
    }

    fn token(&self) -> String {
        token_message(self.stats.control.token.each_ref().map(|word| word.load(Relaxed))).to_string()
    }

    /// Serves until there is nothing left to do.
    fn serve(&mut self) {
        for _ in 0..TURNS {
            if !is_readable(self.channel.descriptor()) {
                return;
            }
            self.channel.serve(&mut self.host, &self.stats).expect("nothing of the kernel's is missing");
        }
        panic!("there is always something left to do");
    }

    fn tell(&mut self) {
        self.channel.tell_subscribers(&self.stats, || false).expect("there is no sandbox");
        for client in &mut self.clients {
            while let Some(said) = client.receive() {
                let first = said.split(' ').next().unwrap_or_default();
                assert!(client.is_subscribed && ["release", "lost", "level"].contains(&first), "{said:?}");
                assert!(said.ends_with('\n') && said.lines().count() == 1, "{said:?}");
            }
        }
    }

    fn connect(&mut self, sends_token: bool) {
        if self.clients.len() >= CONNECTIONS {
            return;
        }
        let Some(client) = Client::new(self.channel.name()) else { return };
        self.clients.push(client);
        self.serve();
        self.hear_all();
        // While connections are not taken it waits.
        if sends_token && self.clients.last().is_some_and(|it| it.is_greeted) {
            let token = self.token();
            self.ask(self.clients.len() - 1, token.as_bytes());
        }
    }

    fn connect_stranger(&mut self) {
        let name = self.channel.name();
        let Some(stranger) = as_stranger(|| Client::new(name)) else { return };
        self.serve();
        if let Some(said) = stranger.receive() {
            assert_eq!(said, ONLY_ROOT);
            assert!(stranger.is_closed());
        }
    }

    /// Sends a message, and compares the answer with the one that is expected.
    fn ask(&mut self, place: usize, message: &[u8]) {
        let token = self.token();
        let client = &mut self.clients[place];
        if !client.is_greeted || client.is_gone {
            return;
        }
        client.send(message);
        let expected = match (message, client.is_admitted) {
            (b"", _) => None,
            (_, true) => Some(expected(message, &self.model, &self.host)),
            (_, false) if message.trim_ascii() == token.as_bytes() => Some("ok\n".to_owned()),
            (_, false) => Some("error: the token on the page of statistics comes first\n".to_owned()),
        };
        let (was_admitted, effects) = (client.is_admitted, self.host.effects.len());
        self.serve();
        let client = &mut self.clients[place];
        assert_eq!(client.receive(), expected, "{}", message.escape_ascii());
        let is_ok = expected.is_some_and(|said| said.starts_with("ok\n"));
        client.is_admitted |= is_ok;
        client.is_gone = !client.is_admitted || message.is_empty();
        assert_eq!(client.is_closed(), client.is_gone);
        client.is_subscribed |= was_admitted && is_ok && message.trim_ascii() == b"subscribe";
        let is_set = was_admitted && is_ok && message.trim_ascii_start().starts_with(b"set");
        assert_eq!(self.host.effects.len() - effects, usize::from(is_set));
    }

    /// Hears what came to clients of which no one answer was expected.
    fn hear_all(&mut self) {
        for client in &mut self.clients {
            while let Some(said) = client.receive() {
                check_answer(&said);
                if said == "weir control 2\n" {
                    assert!(!client.is_greeted);
                    client.is_greeted = true;
                } else {
                    client.is_admitted |= said == "ok\n";
                    // Among many messages it may have been one.
                    client.is_subscribed |= client.is_admitted;
                }
            }
        }
        // The last settings are those of the channel: many messages may have set them.
        self.model.values().iter().zip(self.host.tunables.values()).for_each(|(to, from)| to.set(from.get()));
    }

    /// As the background thread does it: nothing is sent any more, and the channel is closed.
    fn enter_sandbox(&mut self) {
        self.hear_all();
        self.host.is_in_sandbox = true;
        for client in &self.clients {
            client.send(b"get");
        }
        if is_readable(self.channel.descriptor()) {
            assert_eq!(self.channel.serve(&mut self.host, &self.stats), Err(End::Sandbox));
        }
        assert!(self.clients.iter().all(|client| client.receive().is_none()));
        self.host.is_in_sandbox = false;
        let next = Channel::open(&self.stats).expect("a socket");
        std::mem::replace(&mut self.channel, next).close();
        assert!(self.clients.iter().all(Client::is_closed));
        self.clients.clear();
    }

    /// Checks what holds at any time.
    fn check(&mut self) {
        for (setting, value) in TABLE.iter().zip(self.host.tunables.values()) {
            assert!((setting.min..=setting.max).contains(&value.get()), "{} is {}", setting.name, value.get());
        }
        for (ours, theirs) in self.model.values().iter().zip(self.host.tunables.values()) {
            assert_eq!(ours.get(), theirs.get());
        }
        // What is said to one that is closed by now is heard first.
        self.hear_all();
        self.clients.retain(|client| !(client.is_gone || client.is_greeted && client.is_closed()));
        assert!(self.clients.iter().filter(|client| client.is_greeted).count() <= CLIENTS);
    }
}

fn check_answer(said: &str) {
    assert!(said.len() <= LONGEST_ANSWER && said.ends_with('\n'), "{said:?}");
    assert!(said.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{said:?}");
    let is_one_of = ["ok\n", "error: ", "weir control 2\n", "release ", "lost ", "level "];
    assert!(is_one_of.iter().any(|begin| said.starts_with(begin)), "{said:?}");
    assert!(said.starts_with("ok\n") || said.lines().count() == 1, "{said:?}");
}

/// The answer to a message, read in another way than the product does; the settings of the model are set.
fn expected(message: &[u8], model: &Tunables, host: &Fake) -> String {
    let error = |why: &str| format!("error: {why}\n");
    if message.len() > LONGEST_REQUEST {
        return error("the request is longer than 256 bytes");
    }
    let line = message.trim_ascii();
    if line.iter().any(|byte| !(32..127).contains(byte)) {
        return error("the request is not one line of ASCII text");
    }
    let line = String::from_utf8(line.into()).expect("it is ASCII");
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let of = |name: &str| {
        let setting = TABLE.iter().find(|setting| setting.name == name)?;
        let nth = TABLE.iter().position(|other| other.name == name)?;
        Some(format!("{name} {} {}\n", model.values()[nth].get(), setting.unit))
    };
    let releases = host.tunables.report.get() != 0;
    let off = "nothing was released: releasing is switched off: set the setting report to 1 first";
    match words[..] {
        ["get"] => "ok\n".to_owned() + &TABLE.iter().filter_map(|setting| of(setting.name)).collect::<String>(),
        ["get", name] => match of(name) {
            Some(line) => "ok\n".to_owned() + &line,
            None => error(&model.get(name).expect_err("it is none").to_string()),
        },
        ["get", ..] => error("write: get [NAME]"),
        ["set", name, value] => match model.set(name, value) {
            Ok(_) => "ok\n".to_owned() + &of(name).expect("it is one"),
            Err(why) => error(&why.to_string()),
        },
        ["set", ..] => error("write: set NAME VALUE"),
        ["trim"] if releases => "ok\nreleased 17 bytes\n".into(),
        ["drain"] if releases => format!("ok\nreleased {} bytes\n", usize::MAX),
        ["trim" | "drain"] => error(off),
        ["report"] => {
            "ok\n".to_owned()
                + &REPORT.map(|(name, bytes)| format!("{name} {bytes} bytes\n")).concat()
                + "callbacks 5\n"
        }
        ["mergeable"] => "ok\nmergeable 23 bytes\n".into(),
        ["subscribe"] => "ok\n".into(),
        ["target", bytes] if is_number(bytes) => "ok\n".into(),
        ["target", ..] => error("write: target BYTES"),
        [word @ ("trim" | "drain" | "report" | "mergeable" | "subscribe"), ..] => error(&format!("write: {word}")),
        _ => error("no such command: get, set, trim, drain, report, mergeable, subscribe, target"),
    }
}

/// Whether `text` is a number of bytes, as far as 64 bits go.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let most = u64::MAX.to_string();
    let value = digits.trim_start_matches('0');
    let is_small = value.len() < most.len() || value.len() == most.len() && value <= most.as_str();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && is_small
}

/// A connection.
struct Client {
    socket: i32,
    is_greeted: bool,
    is_admitted: bool,
    is_subscribed: bool,
    /// By what it said.
    is_gone: bool,
}

impl Client {
    fn new(name: [u64; 2]) -> Option<Self> {
        let name = socket_name(name);
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: makes a descriptor.
        let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        assert!(socket >= 0, "a socket");
        let client = Self { socket, is_greeted: false, is_admitted: false, is_subscribed: false, is_gone: false };
        let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
        for (to, &byte) in address.sun_path[1..].iter_mut().zip(name.as_bytes()) {
            *to = byte as libc::c_char;
        }
        // SAFETY: an address on the stack is read, up to its name's end.
        let connected = unsafe { libc::connect(socket, (&raw const address).cast(), 3 + name.len() as u32) };
        // So many may wait that there is no place.
        (connected == 0).then_some(client)
    }

    fn send(&self, message: &[u8]) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the message is read.
        unsafe { libc::send(self.socket, message.as_ptr().cast(), message.len(), flags) };
    }

    /// The next message; `None`: the channel has closed the connection, or said nothing.
    fn receive(&self) -> Option<String> {
        let mut message = vec![0u8; 2 * LONGEST_ANSWER];
        // SAFETY: as many bytes as the buffer has are written.
        let len = unsafe { libc::recv(self.socket, message.as_mut_ptr().cast(), message.len(), libc::MSG_DONTWAIT) };
        (len > 0).then(|| String::from_utf8(message[..len as usize].to_vec()).expect("answers are text"))
    }

    fn is_closed(&self) -> bool {
        is_readable(self.socket) && self.receive().is_none()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::close(self.socket) };
    }
}

fn is_readable(descriptor: i32) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry is read and written.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

fn lowest_descriptor() -> i32 {
    // SAFETY: a descriptor is made and closed again.
    unsafe {
        let lowest = libc::dup(0);
        libc::close(lowest);
        lowest
    }
}

/// Does it as another user, if this thread can become one; the process can be looked into as before.
fn as_stranger<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: changes this thread's effective user alone, and back; asks and sets a number.
    unsafe {
        let own = libc::geteuid();
        if libc::syscall(libc::SYS_setresuid, -1, STRANGER, -1) != 0 {
            return None;
        }
        let done = work();
        assert_eq!(libc::syscall(libc::SYS_setresuid, -1, own, -1), 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
        done
    }
}
