//! The block server's input: options and requests of any bytes, cut anywhere, against a model of the volume. Each reply has the
//! length, the data and the kind of result that an independent reading of the stream expects, and memory is bounded.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the server uses more of it")]

#[path = "../../crates/weir-nbd/src/backend/mod.rs"]
mod backend;
#[path = "../../crates/weir-nbd/src/base/mod.rs"]
mod base;
#[path = "../../crates/weir-nbd/src/buffers/mod.rs"]
mod buffers;
#[path = "../../crates/weir-nbd/src/cache/mod.rs"]
mod cache;
#[path = "held/mod.rs"]
mod counted;
#[path = "../../crates/weir-nbd/src/export/mod.rs"]
mod export;
#[path = "../../crates/weir-nbd/src/io/mod.rs"]
mod io;
#[path = "nbd/model.rs"]
mod model;
#[path = "../../crates/weir-nbd/src/protocol/mod.rs"]
mod protocol;
#[path = "nbd/replies.rs"]
mod replies;
#[path = "nbd/script.rs"]
mod script;
#[path = "../../crates/weir-nbd/src/session/mod.rs"]
mod session;
#[path = "../../crates/weir-nbd/src/transport/mod.rs"]
mod transport;

use arbitrary::Unstructured;
use backend::Source;
use base::size::Size;
use buffers::Pools;
use export::{Definition, Exports};
use io::{Engine, Remote, Worker};
use libfuzzer_sys::fuzz_target;
use model::Model;
use replies::Replies;
use script::Script;
use session::{Context, Guest, Home, Limits, TlsMode};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes of the volume: no multiple of anything.
const SIZE: u64 = 300_001;
/// Longest data of a request, bytes: more than what a write may hold before it has arrived.
const REQUEST: u32 = 280 << 10;
/// Memory of a client's requests, bytes.
const CLIENT: usize = 300 << 10;
/// Bytes that a session may take beside that: wide buffers, replies of options, tasks.
const BESIDE: usize = 2 << 20;
/// Nobody waits for so long.
const PATIENCE: Duration = Duration::from_secs(100);
/// Looks whether the server has read what it was sent.
const LOOKS: usize = 100;

#[global_allocator]
static HEAP: counted::Counted = counted::Counted;

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(mut script) = Script::of(&mut u) else { return };
    let model = Model::of(&mut script);
    let server = server();
    server.context.replace(exports(), TlsMode::default());
    let before = counted::begin();
    let mut replies = Replies::new(model);
    let client = Client::connect(server);
    client.converse(&script, &mut replies);
    replies.finish();
    // The script and what was expected were there before; what the client has received it hands on at once.
    let taken = counted::most().saturating_sub(before);
    assert!(taken <= CLIENT + BESIDE, "{taken} bytes were taken at once");
});

/// One worker for all runs.
struct Server {
    context: Arc<Context>,
    remote: Remote,
    load: Arc<AtomicUsize>,
}

fn exports() -> Exports {
    let definition = Definition {
        name: "m".into(),
        source: Source::Memory(Size(SIZE)),
        read_only: false,
        description: "memory".into(),
        tls_only: false,
    };
    Exports::open(vec![definition], None, &Exports::default(), None).expect("memory")
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        // The sanitizer does not know the stacks of Weir's own threads.
        weir::settings::set_number("background", 0).expect("a setting");
        let limits = Limits {
            request: REQUEST,
            client_memory: CLIENT,
            worker_memory: 2 * CLIENT,
            handshake: PATIENCE,
            patience: PATIENCE,
        };
        let context = Context::new(exports(), TlsMode::default(), limits, None, Pools::new());
        let (sender, remote) = std::sync::mpsc::channel();
        let own = context.clone();
        std::thread::spawn(move || {
            let worker = Worker::new(Engine::Threads).expect("a worker");
            Home::settle(own);
            sender.send(worker.remote()).expect("the fuzzer listens");
            worker.run().expect("the worker does not fail");
        });
        Server { context, remote: remote.recv().expect("a worker"), load: Arc::default() }
    })
}

/// A connection, until its session is over.
struct Client {
    socket: UnixStream,
    server: &'static Server,
}

impl Client {
    fn connect(server: &'static Server) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("two sockets");
        for socket in [&socket, &theirs] {
            socket.set_nonblocking(true).expect("a socket");
        }
        let guest = Guest::admit(&server.context, usize::MAX).expect("there is no bound");
        let load = server.load.clone();
        load.fetch_add(1, Acquire);
        server.remote.run(move || Home::welcome(theirs.into(), guest, load));
        Self { socket, server }
    }

    /// Says all of the script, in its pieces, and hears all that is said.
    fn converse(mut self, script: &Script, replies: &mut Replies) {
        for piece in &script.pieces {
            while replies.answered() < piece.after && self.hear(replies, libc::POLLIN) {}
            if !self.say(&script.bytes[piece.range.clone()], replies) {
                break;
            }
            if piece.is_read_alone {
                self.let_it_be_read();
            }
        }
        // It may have ended before.
        let _ = self.socket.shutdown(Shutdown::Write);
        while self.hear(replies, libc::POLLIN) {}
        while self.server.load.load(Acquire) > 0 {
            std::thread::yield_now();
        }
    }

    /// `false`: the server listens no more.
    fn say(&mut self, mut bytes: &[u8], replies: &mut Replies) -> bool {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(said) => bytes = &bytes[said..],
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    if !self.hear(replies, libc::POLLIN | libc::POLLOUT) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits for one of the events, and takes what was said; `false`: that is the end.
    fn hear(&mut self, replies: &mut Replies, events: i16) -> bool {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 };
        // SAFETY: one entry is read and written.
        let ready = unsafe { libc::poll(&mut poll, 1, PATIENCE.as_millis() as i32) };
        assert_eq!(ready, 1, "the server says nothing");
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(heard) => {
                replies.take(&bytes[..heard]);
                true
            }
            Err(why) if why.kind() == ErrorKind::WouldBlock => true,
            // It ended with something unread.
            Err(_) => false,
        }
    }

    fn let_it_be_read(&self) {
        let mut unread = 0i32;
        for _ in 0..LOOKS {
            // SAFETY: a number is written.
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
            if unread == 0 {
                break;
            }
            std::thread::yield_now();
        }
    }
}
