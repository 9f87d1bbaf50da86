use super::*;
use crate::os::fd::{POLLIN, PollFd, ppoll};
use std::string::String;
use std::vec::Vec;
use weir_core::telemetry::trace::Event;
use weir_core::telemetry::tunables::{Effect, Tunables};

const EVENT: Event =
    Event { end: 1, place: None, zone: 0, kind: None, cause: None, blocks: 1, bytes: 9, ns: 1, error: 0 };

struct Fake {
    tunables: Tunables,
    /// Looks after which it puts itself into a sandbox.
    looks_left: std::cell::Cell<u32>,
}

impl Host for Fake {
    fn tunables(&self) -> &Tunables {
        &self.tunables
    }
    fn take_effect(&mut self, _: Effect) {}
    fn trim(&mut self) -> usize {
        0
    }
    fn drain(&mut self) -> usize {
        0
    }
    fn callbacks(&self) -> usize {
        0
    }
    fn mergeable(&mut self) -> usize {
        0
    }
    fn report(&mut self) -> [(&'static str, usize); 7] {
        [("x", 0); 7]
    }
    fn is_in_sandbox(&self) -> bool {
        let left = self.looks_left.get();
        self.looks_left.set(left.saturating_sub(1));
        left == 0
    }
}

/// A channel with what serves it.
struct Bench {
    channel: Channel,
    host: Fake,
    stats: std::boxed::Box<Stats>,
}

impl Bench {
    fn new() -> Self {
        let stats = std::boxed::Box::new(Stats::new());
        Self {
            channel: Channel::open(&stats).unwrap(),
            host: Fake { tunables: Tunables::new(), looks_left: u32::MAX.into() },
            stats,
        }
    }

    /// Serves until nothing is left to do; whether the descriptor said so each time.
    fn serve(&mut self) {
        loop {
            let mut poll = [PollFd { fd: self.channel.descriptor(), events: POLLIN, revents: 0 }];
            if ppoll(&mut poll, Some(0)) != Ok(1) {
                return;
            }
            self.channel.serve(&mut self.host, &self.stats).unwrap();
        }
    }

    fn tell(&mut self) -> Result<()> {
        self.channel.tell_subscribers(&self.stats, || self.host.is_in_sandbox())
    }

    /// A client that has sent no token.
    fn stranger(&mut self) -> TestClient {
        let client = TestClient::new(self.channel.name()).unwrap();
        self.serve();
        assert_eq!(client.receive().as_deref(), Some("weir control 2\n"));
        client
    }

    /// As if no client had been heard from for long.
    fn fall_silent(&mut self) {
        self.channel.clients.iter_mut().flatten().for_each(|client| client.heard_ns = 0);
        self.channel.paused_until = self.channel.paused_until.map(|_| 0);
    }

    fn token(&self) -> ArrayString<48> {
        token_message(self.stats.control.token.each_ref().map(|word| word.load(Relaxed)))
    }

    fn connect(&mut self) -> TestClient {
        let client = self.stranger();
        let token = self.token();
        assert_eq!(self.ask(&client, token.as_bytes()).as_deref(), Some("ok\n"));
        client
    }

    fn ask(&mut self, client: &TestClient, request: &[u8]) -> Option<String> {
        client.send(request);
        self.serve();
        client.receive()
    }
}

struct TestClient(i32);

impl TestClient {
    fn new(name: [u64; 2]) -> std::io::Result<Self> {
        let name = socket_name(name);
        // SAFETY: a descriptor is made, and an address on the stack read with its true length.
        unsafe {
            let client =
                Self(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0));
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, &byte) in address.sun_path[1..].iter_mut().zip(name.as_bytes()) {
                *to = byte as libc::c_char;
            }
            let len = 3 + name.len() as u32;
            match libc::connect(client.0, (&raw const address).cast(), len) {
                0 => Ok(client),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }

    fn send(&self, message: &[u8]) {
        // SAFETY: the message is read.
        unsafe { libc::send(self.0, message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    }

    /// The next message; `None`: the channel has closed the connection, or said nothing.
    fn receive(&self) -> Option<String> {
        let mut message = std::vec![0u8; 8192];
        // SAFETY: as many bytes as the buffer has are written.
        let len = unsafe { libc::recv(self.0, message.as_mut_ptr().cast(), message.len(), libc::MSG_DONTWAIT) };
        (len > 0).then(|| String::from_utf8(message[..len as usize].to_vec()).unwrap())
    }

    fn is_closed(&self) -> bool {
        let mut poll = [PollFd { fd: self.0, events: POLLIN, revents: 0 }];
        ppoll(&mut poll, Some(0)) == Ok(1) && self.receive().is_none()
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::close(self.0) };
    }
}

/// A channel whose one client subscribed, set a target and has gone, which the channel has not seen yet. Its subscriber is to be
/// told of an event on the page.
pub fn with_gone_subscriber(page: &Stats, target: u64) -> Channel {
    let mut bench = Bench::new();
    let client = bench.connect();
    bench.ask(&client, b"subscribe");
    bench.ask(&client, std::format!("target {target}").as_bytes());
    let Bench { mut channel, .. } = bench;
    let told = channel.clients.iter_mut().flatten().map(|client| client.told = Some(Told::from_now(page))).count();
    page.trace.record(&EVENT);
    assert_eq!((told, channel.target()), (1, Some(target)));
    channel
}

#[test]
fn a_client_is_greeted_and_answered() {
    let mut bench = Bench::new();
    let client = bench.connect();
    assert_eq!(bench.ask(&client, b"set limit 1G\n").as_deref(), Some("ok\nlimit 1073741824 bytes\n"));
    assert_eq!(bench.host.tunables.limit.get(), 1 << 30);
    let name = bench.channel.name();
    bench.channel.close();
    assert!(client.is_closed());
    assert!(TestClient::new(name).is_err(), "nothing is left of it");
}

#[test]
fn without_the_token_nothing_is_answered_and_clients_keep_their_places() {
    let mut bench = Bench::new();
    let client = bench.connect();
    let token = bench.token();
    let wrong = token_message([0; 2]);
    for first in [&b"set limit 1G"[..], b"token", b"", wrong.as_bytes(), &token.as_bytes()[..37], &[0; 300]] {
        // A connection after a refusal waits: it is taken when the pause has ended.
        let stranger = TestClient::new(bench.channel.name()).unwrap();
        bench.channel.paused_until = bench.channel.paused_until.map(|_| 0);
        bench.channel.serve(&mut bench.host, &bench.stats).unwrap();
        stranger.receive();
        stranger.send(first);
        stranger.send(token.as_bytes());
        bench.serve();
        // What it sent after its first message is lost, which the kernel reports once in place of a message.
        let said: Vec<_> = (0..4).filter_map(|_| stranger.receive()).collect();
        assert!(said.iter().all(|line| line.starts_with("error: the token ")) && stranger.is_closed(), "{said:?}");
        assert_eq!(said.len(), usize::from(!first.is_empty()));
        assert!(bench.channel.due().is_some() || first.is_empty());
    }
    assert_eq!(bench.host.tunables.limit.get(), 0);
    bench.channel.paused_until = Some(0);
    bench.channel.serve(&mut bench.host, &bench.stats).unwrap();
    let mut strangers = Vec::new();
    for _ in 1..20 {
        strangers.push(bench.stranger());
        bench.fall_silent();
    }
    assert!(bench.ask(&client, b"get limit").unwrap().starts_with("ok\n"));
    // A forked child's page.
    bench.stats.reset_totals();
    let zeros = bench.stranger();
    assert!(bench.ask(&zeros, wrong.as_bytes()).unwrap().starts_with("error: "));
}

#[test]
fn what_is_wrong_gets_one_line_that_says_so_and_the_connection_goes_on() {
    let mut bench = Bench::new();
    let client = bench.connect();
    for wrong in [&b"?"[..], b"set", b"\xff\xfe", &[b'a'; 257], &[0; 100_000], b"get nothing"] {
        let said = bench.ask(&client, wrong).unwrap();
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    }
    // Part of a request is a message of its own, and wrong.
    assert!(bench.ask(&client, b"set lim").unwrap().starts_with("error: write: set NAME VALUE"));
    assert!(bench.ask(&client, b"get limit").unwrap().starts_with("ok\n"));
}

#[test]
fn the_client_that_was_silent_for_longest_makes_place_for_another() {
    let mut bench = Bench::new();
    let subscriber = bench.connect();
    bench.ask(&subscriber, b"subscribe");
    let mut clients = Vec::new();
    for _ in 0..100 {
        bench.fall_silent();
        clients.push(bench.connect());
    }
    let newest = clients.pop().unwrap();
    assert!(bench.ask(&newest, b"get limit").unwrap().starts_with("ok\n"));
    clients.iter().chain([&subscriber]).for_each(|client| while client.receive().is_some() {});
    let open = clients.iter().filter(|client| !client.is_closed()).count();
    assert_eq!(open, CLIENTS - 2);
    assert!(!subscriber.is_closed(), "who listens is silent");
}

#[test]
fn clients_that_were_heard_from_just_now_keep_their_places_and_who_comes_waits() {
    let mut bench = Bench::new();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| bench.connect()).collect();
    // Some are in the middle of their handshake.
    clients.truncate(CLIENTS - 2);
    bench.serve();
    clients.extend([bench.stranger(), bench.stranger()]);
    // However slow the machine is.
    bench.channel.clients.iter_mut().flatten().for_each(|client| client.heard_ns = u64::MAX);
    let waiting = TestClient::new(bench.channel.name()).unwrap();
    bench.serve();
    assert!(waiting.receive().is_none() && bench.channel.due().is_some());
    assert!(clients.iter().all(|client| !client.is_closed()));
    let token = bench.token();
    assert_eq!(bench.ask(&clients[CLIENTS - 1], token.as_bytes()).as_deref(), Some("ok\n"));
    // A place that becomes free ends the wait at once.
    drop(clients.pop());
    bench.serve();
    assert_eq!(waiting.receive().as_deref(), Some("weir control 2\n"));
    // So does time.
    bench.channel.clients.iter_mut().flatten().for_each(|client| client.heard_ns = u64::MAX);
    let late = TestClient::new(bench.channel.name()).unwrap();
    bench.serve();
    assert!(late.receive().is_none());
    bench.fall_silent();
    bench.channel.serve(&mut bench.host, &bench.stats).unwrap();
    assert_eq!(late.receive().as_deref(), Some("weir control 2\n"));
}

#[test]
fn who_does_not_read_is_closed_and_waits_for_nobody() {
    let mut bench = Bench::new();
    let (deaf, other) = (bench.connect(), bench.connect());
    for _ in 0..10_000 {
        deaf.send(b"get");
        bench.serve();
    }
    assert!(bench.ask(&other, b"get limit").is_some());
    while deaf.receive().is_some() {}
    assert!(deaf.is_closed());
}

#[test]
fn a_subscriber_that_reads_slowly_loses_nothing_that_the_ring_still_has() {
    let mut bench = Bench::new();
    let client = bench.connect();
    assert_eq!(bench.ask(&client, b"subscribe").as_deref(), Some("ok\n"));
    for _ in 0..5_000 {
        bench.stats.trace.record(&EVENT);
        bench.tell().unwrap();
    }
    let mut next = 0;
    let mut read = |line: String| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[0] {
            "release" => {
                assert_eq!(words[1].parse(), Ok(next));
                next += 1;
            }
            "lost" => next += words[1].parse::<u64>().unwrap(),
            other => panic!("{other}"),
        }
    };
    loop {
        bench.tell().unwrap();
        let Some(line) = client.receive() else { break };
        read(line);
    }
    assert_eq!(next, 5_000);
}

#[test]
fn nothing_is_sent_once_the_program_is_in_a_sandbox() {
    let mut bench = Bench::new();
    let client = bench.connect();
    bench.ask(&client, b"subscribe");
    (0..3).for_each(|_| bench.stats.trace.record(&EVENT));
    // It is looked at before each line.
    bench.host.looks_left.set(1);
    assert_eq!(bench.tell(), Err(End::Sandbox));
    assert!(client.receive().is_some() && client.receive().is_none());
    // Before each request, and before its answer.
    for looks in 0..4 {
        client.send(b"set limit 1G");
        client.send(b"set limit 2G");
        bench.host.looks_left.set(looks);
        assert_eq!(bench.channel.serve(&mut bench.host, &bench.stats), Err(End::Sandbox));
        assert_eq!((0..2).filter(|_| client.receive().is_some()).count(), looks as usize / 2);
        bench.host.looks_left.set(u32::MAX);
        bench.serve();
        while client.receive().is_some() {}
    }
    // Where there is nothing to tell, there is nothing to look for.
    bench.tell().unwrap();
    bench.host.looks_left.set(0);
    assert_eq!(bench.tell(), Ok(()));
}

#[test]
fn only_root_and_the_own_user_may_steer() {
    let peer = |user| Peer { process: 1, user, group: 7 };
    assert!(may_steer(&peer(0), 1000, true) && may_steer(&peer(1000), 1000, true) && may_steer(&peer(0), 1000, false));
    for (user, own, dumpable) in [(1001, 1000, true), (65_534, 1000, true), (1000, 1000, false), (1000, 0, true)] {
        assert!(!may_steer(&peer(user), own, dumpable));
    }
}

/// Connects as another user, by a thread that becomes one.
fn connect_as(user: u32, name: [u64; 2]) -> TestClient {
    let connect = move || {
        // SAFETY: changes the calling thread's user alone; libc's function would change all threads'.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) }, 0);
        TestClient::new(name).unwrap()
    };
    std::thread::spawn(connect).join().unwrap()
}

#[test]
fn who_is_refused_has_others_wait_but_not_clients() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return weir_testing::skip!("only root can become another user");
    }
    let mut bench = Bench::new();
    let client = bench.connect();
    let name = bench.channel.name();
    let strangers = [connect_as(1234, name), connect_as(1234, name)];
    bench.serve();
    assert_eq!(strangers[0].receive().as_deref(), Some("error: only root and the process's own user may steer it\n"));
    assert!(strangers[0].is_closed());
    // All that wait are refused at once; those to come cost nothing for now.
    assert!(strangers[1].receive().unwrap().starts_with("error: ") && bench.channel.due().is_some());
    let late = connect_as(1234, name);
    bench.serve();
    assert!(late.receive().is_none());
    assert!(bench.ask(&client, b"get limit").unwrap().starts_with("ok\n"));
    let friend = TestClient::new(name).unwrap();
    let mut greeting = None;
    weir_testing::wait_until("a greeting", || {
        bench.channel.serve(&mut bench.host, &bench.stats).unwrap();
        greeting = friend.receive();
        greeting.is_some()
    });
    assert_eq!(greeting.as_deref(), Some("weir control 2\n"));
    assert!(late.receive().unwrap().starts_with("error: "));
}

#[test]
fn as_many_strangers_as_can_wait_hold_nobody_up_for_more_than_one_pause() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return weir_testing::skip!("only root can become another user");
    }
    let mut bench = Bench::new();
    let name = bench.channel.name();
    let strangers: Vec<_> = (1..socket::BACKLOG).map(|_| connect_as(1234, name)).collect();
    let friend = TestClient::new(name).unwrap();
    // One turn, as after one wake-up.
    bench.channel.serve(&mut bench.host, &bench.stats).unwrap();
    assert!(strangers.iter().all(|stranger| stranger.receive().is_some() && stranger.is_closed()));
    assert_eq!(friend.receive().as_deref(), Some("weir control 2\n"));
}

/// Random bytes, lengths and orders, and connections that come and go.
#[test]
fn any_traffic_leaves_the_channel_working() {
    let mut bench = Bench::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: [&[u8]; 8] = [b"get", b"set ", b" limit", b" 64M", b"trim", b"subscribe", b"\n", b"\xff"];
    let mut clients: Vec<TestClient> = Vec::new();
    let token = bench.token();
    for _ in 0..20_000 {
        match random() % 8 {
            0 => clients.extend(TestClient::new(bench.channel.name()).inspect(|client| client.send(token.as_bytes()))),
            1 if !clients.is_empty() => drop(clients.swap_remove(random() as usize % clients.len())),
            2 => bench.serve(),
            3 => bench.tell().unwrap(),
            choice => {
                let mut message = Vec::new();
                for _ in 0..random() % 6 {
                    message.extend(words[random() as usize % words.len()]);
                }
                if choice == 7 {
                    message = (0..random() % 600).map(|_| random() as u8).collect();
                }
                if let Some(client) = clients.get(random() as usize % clients.len().max(1)) {
                    client.send(&message);
                    if random() % 2 == 0 {
                        client.receive();
                    }
                }
            }
        }
        clients.truncate(40);
    }
    clients.clear();
    bench.serve();
    let client = bench.connect();
    assert!(bench.ask(&client, b"get limit").unwrap().starts_with("ok\n"));
}

#[test]
fn a_target_ends_with_its_client() {
    let mut bench = Bench::new();
    assert_eq!(bench.channel.target(), None);
    let (first, second) = (bench.connect(), bench.connect());
    assert_eq!(bench.ask(&first, b"target 3000000").as_deref(), Some("ok\n"));
    assert_eq!(bench.ask(&second, b"target 2000000").as_deref(), Some("ok\n"));
    assert_eq!(bench.channel.target(), Some(2_000_000), "the least of all holds");
    drop(second);
    bench.serve();
    assert_eq!(bench.channel.target(), Some(3_000_000));
    assert_eq!(bench.ask(&first, b"target 0").as_deref(), Some("ok\n"));
    assert_eq!(bench.channel.target(), None);
}

#[test]
fn a_client_with_a_target_keeps_its_place_before_one_that_is_silent() {
    let mut bench = Bench::new();
    let first = bench.connect();
    assert_eq!(bench.ask(&first, b"target 3000000").as_deref(), Some("ok\n"));
    let mut others: Vec<_> = (1..CLIENTS).map(|_| bench.connect()).collect();
    bench.fall_silent();
    others.push(bench.connect());
    assert!(others[0].is_closed() && !first.is_closed());
    assert_eq!(bench.channel.target(), Some(3_000_000));
}
