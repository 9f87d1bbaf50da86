//! The server's life: start, reloads, stop.

use super::acceptor::{self, Welcome};
use super::control;
use super::descriptors;
use super::report::Reporter;
use super::settings::{CacheSettings, Settings};
use super::workers::{self, Seat, WorkerEnd};
use crate::base::Failure;
use crate::buffers::Pools;
use crate::cache::BlockCache;
use crate::command_line::Serve;
use crate::export::Exports;
use crate::io::{Engine, Pool};
use crate::session::{Context, Home, TlsMode};
use crate::transport::{Address, Listener, load_tls};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use weir::pressure::{self, Level, Subscription};

/// Time for sessions to end after their sockets were shut down.
const ABORT: Duration = Duration::from_secs(5);

/// What the main thread waits for.
enum Event {
    Signal(i32),
    WorkerEnd(std::io::Result<()>),
}

impl From<WorkerEnd> for Event {
    fn from(end: WorkerEnd) -> Self {
        Self::WorkerEnd(end.0)
    }
}

/// Serves until it is stopped.
pub fn serve(options: &Serve) -> Result<(), Failure> {
    let since = Instant::now();
    let (sender, events) = channel();
    // Before anything else: a signal that comes early is not lost.
    watch_signals(sender.clone())?;
    let settings = Settings::load(options)?;
    let context = open_context(&settings)?;
    // Closed when the server ends, with the names of Unix sockets.
    let (listeners, _names) = listen(&settings)?;
    let (engine, refused) = settings.io.choose().map_err(Failure::because("io_uring is refused"))?;
    let io = if engine == Engine::Uring { "io_uring" } else { "threads" };
    if let Some(why) = refused {
        warn!("io_uring is refused ({why}): I/O is done by threads");
    }
    let volumes = settings.exports.iter().map(|export| export.source.descriptors()).sum();
    let max_connections = descriptors::allow(settings.max_connections, volumes, settings.workers);
    // Only with a cache of its own the server reads and writes past the kernel's.
    let registers_buffers = settings.registers_buffers && settings.cache.is_some();
    let seats = workers::start(settings.workers, engine, registers_buffers, &context, &sender)?;
    let _subscription = squeeze_registered(&seats)?;
    let welcome = Welcome { context: context.clone(), seats: seats.clone(), max_connections };
    seats[0].remote.run(move |reactor| acceptor::start(reactor, listeners, welcome));
    let reporter = Reporter { since, workers: settings.workers, io };
    let open = |control| control::open(control, context.clone(), reporter);
    let _control = settings.control.as_ref().map(open).transpose()?;
    info!("{} exports, {} workers by {io}", settings.exports.len(), settings.workers);
    notify(&[NotifyState::Ready]);
    let failed = run(&events, options, &context);
    notify(&[NotifyState::Stopping]);
    let stopped = stop(&events, &seats, &context, settings.stop_timeout, failed.is_err());
    failed.and(stopped)
}

fn open_context(settings: &Settings) -> Result<Arc<Context>, Failure> {
    if let Some(limit) = settings.limit {
        weir::settings::set_number("limit", limit).map_err(Failure::because("limit"))?;
    }
    let pools = Pools::new();
    pools.set(settings.pools)?;
    let open = |CacheSettings { max, writes_back }| BlockCache::new(max, writes_back);
    let cache = settings.cache.map(open).transpose()?;
    let (definitions, default) = (settings.exports.clone(), settings.default.clone());
    let exports = Exports::open(definitions, default, &Exports::default(), cache.as_ref())?;
    for export in exports.iter() {
        let (name, source) = (&export.definition.name, &export.definition.source);
        info!("export '{name}': {} {source}, {} bytes", export.volume.kind(), export.volume.size());
    }
    Ok(Context::new(exports, open_tls(settings)?, settings.limits, cache, pools))
}

fn open_tls(settings: &Settings) -> Result<TlsMode, Failure> {
    let Some(files) = &settings.tls else { return Ok(TlsMode::default()) };
    Ok(TlsMode { config: Some(load_tls(files)?), required: files.required })
}

/// Opens all listening sockets: their descriptors, and what keeps their names.
fn listen(settings: &Settings) -> Result<(Vec<OwnedFd>, impl Sized), Failure> {
    let mut listeners = Listener::inherited()?;
    let default = [Address::default()];
    let chosen = match settings.listen.as_slice() {
        [] if listeners.is_empty() => &default,
        chosen => chosen,
    };
    for address in chosen {
        listeners.extend(Listener::open(address)?);
    }
    for listener in &listeners {
        info!("listening on {}", listener.name);
        if listener.is_public && !settings.tls.as_ref().is_some_and(|tls| tls.required) {
            warn!("other machines can reach {} without TLS", listener.name);
        }
    }
    Ok(listeners.into_iter().map(Listener::into_parts).unzip::<_, _, _, Vec<_>>())
}

/// Has memory pressure squeeze the registered buffers of all workers, which Weir cannot release.
fn squeeze_registered(seats: &[Seat]) -> Result<Option<Subscription>, Failure> {
    let squeezers: Vec<_> = seats.iter().filter_map(|seat| seat.squeezer.clone()).collect();
    if squeezers.is_empty() {
        return Ok(None);
    }
    let squeeze = move |event: pressure::Event| {
        let ms = weir::settings::get("squeeze_ms").unwrap_or(0);
        if event.level > Level::None && ms > 0 {
            squeezers.iter().for_each(|squeezer| squeezer.squeeze(Duration::from_millis(ms)));
        }
    };
    pressure::subscribe(Level::Some, squeeze).map(Some).map_err(Failure::because("hearing of memory pressure"))
}

fn watch_signals(events: Sender<Event>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::because("signals"))?;
    let thread = std::thread::Builder::new().name("weir-nbd signals".into()).stack_size(128 << 10);
    let work = move || signals.forever().try_for_each(|signal| events.send(Event::Signal(signal)).map_err(drop));
    thread.spawn(work).map(drop).map_err(Failure::because("the thread of signals"))
}

/// Waits for the signal to stop, and reloads when told to. An error is a worker's.
fn run(events: &Receiver<Event>, options: &Serve, context: &Context) -> Result<(), Failure> {
    loop {
        match events.recv().expect("the thread of signals lives") {
            Event::Signal(SIGHUP) => {
                notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now().unwrap_or(NotifyState::Reloading)]);
                match reload(options, context) {
                    Ok(()) => info!("the configuration was read again"),
                    Err(why) => error!("the configuration stays as it was: {why}"),
                }
                notify(&[NotifyState::Ready]);
            }
            Event::Signal(_) => return Ok(()),
            Event::WorkerEnd(end) => return end.map_err(Failure::because("a worker failed")),
        }
    }
}

/// Exports, certificates and the settings of page pools are read again; the rest counts from the next start on.
fn reload(options: &Serve, context: &Context) -> Result<(), Failure> {
    let settings = Settings::load(options)?;
    let (definitions, default) = (settings.exports.clone(), settings.default.clone());
    let exports = Exports::open(definitions, default, &context.exports(), context.cache.as_ref())?;
    exports.iter().for_each(|export| export.look_at_size());
    context.replace(exports, open_tls(&settings)?);
    context.pools.set(settings.pools)
}

/// Lets sessions end, then flushes, whatever became of a worker.
fn stop(
    events: &Receiver<Event>,
    seats: &[Seat],
    context: &Context,
    patience: Duration,
    one_failed: bool,
) -> Result<(), Failure> {
    info!("stopping");
    context.stop();
    seats[0].remote.run(acceptor::close);
    for seat in seats {
        seat.remote.run(|reactor| {
            Home::stop();
            reactor.stop();
        });
    }
    let ended = await_workers(events, seats, patience, seats.len() - usize::from(one_failed));
    // What hangs below may do so for ever.
    let patience = ended.is_err().then_some(patience.max(ABORT));
    and(ended, flush(&context.exports(), patience))?;
    info!("stopped");
    Ok(())
}

/// Waits until `left` workers have ended. A second signal, or the end of the time for it, ends their sessions as they are.
fn await_workers(events: &Receiver<Event>, seats: &[Seat], patience: Duration, mut left: usize) -> Result<(), Failure> {
    let mut deadline = Instant::now() + patience;
    let (mut is_aborted, mut result) = (false, Ok(()));
    while left > 0 {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::WorkerEnd(end)) => {
                left -= 1;
                result = and(result, end.map_err(Failure::because("a worker failed")));
            }
            Ok(Event::Signal(SIGHUP)) => {}
            _ if is_aborted => {
                let why = Failure::new("requests are still under way below: what they write may be lost");
                return and(result, Err(why));
            }
            _ => {
                warn!("clients are disconnected before all was answered");
                (is_aborted, deadline) = (true, Instant::now() + ABORT);
                seats.iter().for_each(|seat| seat.remote.run(|_| Home::abort()));
            }
        }
    }
    result
}

/// Flushes all exports side by side: one that fails or hangs does not keep the others from it. `patience` is the time for
/// all of them; without it, it takes as long as it takes.
fn flush(exports: &Exports, patience: Option<Duration>) -> Result<(), Failure> {
    let (threads, (sender, results)) = (Pool::default(), channel());
    for export in exports.iter().cloned() {
        let sender = sender.clone();
        threads.run(Box::new(move || {
            let what = format!("export '{}' could not be flushed", export.definition.name);
            // It fails if the time was over.
            let _ = sender.send(export.volume.flush_at_end().map_err(Failure::because(what)));
        }));
    }
    drop(sender);
    let deadline = patience.map(|patience| Instant::now() + patience);
    let mut flushed = Ok(());
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        match results.recv_timeout(left) {
            Ok(result) => flushed = and(flushed, result),
            Err(RecvTimeoutError::Disconnected) => return flushed,
            Err(RecvTimeoutError::Timeout) => {
                return and(flushed, Err(Failure::new("not all exports could be flushed in time")));
            }
        }
    }
}

/// The first failure is how the server ends. A later one is logged.
fn and(first: Result<(), Failure>, next: Result<(), Failure>) -> Result<(), Failure> {
    if let (Err(_), Err(why)) = (&first, &next) {
        error!("{why}");
    }
    first.and(next)
}

/// Tells the service manager, if there is one.
fn notify(states: &[NotifyState]) {
    if let Err(why) = sd_notify::notify(states) {
        warn!("the service manager was not told: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Source;
    use crate::base::size::Size;
    use crate::buffers::Buffer;
    use crate::cache::{BLOCK, CachedFile, FileId};
    use crate::export::Definition;
    use crate::session::Limits;
    use std::os::unix::fs::MetadataExt;
    use tempfile::TempDir;

    /// A server of two files, `a` and `b`, each with a dirty block of ones.
    struct Dirty {
        folder: TempDir,
        context: Arc<Context>,
        seats: Vec<Seat>,
        sender: Sender<Event>,
        events: Receiver<Event>,
    }

    impl Dirty {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let definition = |name: &str| {
                let source = Source::Path { path: folder.path().join(name), create: Some(Size(1 << 20)) };
                Definition { name: name.into(), source, read_only: false, description: String::new(), tls_only: false }
            };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let definitions = ["a", "b"].map(definition).to_vec();
            let exports = Exports::open(definitions, None, &Exports::default(), Some(&cache)).expect("two exports");
            let minute = Duration::from_secs(60);
            let limits = Limits {
                request: 1 << 20,
                client_memory: 1 << 20,
                worker_memory: 1 << 20,
                handshake: minute,
                patience: minute,
            };
            let context = Context::new(exports, TlsMode::default(), limits, Some(cache), Pools::new());
            let (sender, events) = channel();
            let seats = workers::start(1, Engine::Threads, false, &context, &sender).expect("a worker");
            for export in context.exports().iter().cloned() {
                let (written, is_written) = channel();
                seats[0].remote.run(move |reactor| {
                    let own = reactor.clone();
                    reactor.spawn(async move {
                        let ones = Buffer::copy_of(&[1; BLOCK]).expect("memory");
                        written.send(export.volume.write(&own, 0, ones).await).expect("the test listens");
                    });
                });
                is_written.recv().expect("an answer").expect("it is in the cache");
            }
            Self { folder, context, seats, sender, events }
        }

        fn is_in_file(&self, name: &str) -> bool {
            std::fs::read(self.folder.path().join(name)).expect("the file")[..BLOCK] == [1; BLOCK]
        }

        fn cached(&self, name: &str) -> Arc<CachedFile> {
            let found = std::fs::metadata(self.folder.path().join(name)).expect("the file");
            let cache = self.context.cache.as_ref().expect("a cache");
            cache.file(FileId { device: found.dev(), inode: Some(found.ino()) })
        }
    }

    #[test]
    fn a_failed_worker_does_not_keep_exports_from_being_flushed() {
        let server = Dirty::new();
        let failed = Event::WorkerEnd(Err(std::io::Error::other("as a test")));
        server.sender.send(failed).expect("the test listens");
        let stopped = stop(&server.events, &server.seats, &server.context, Duration::from_secs(60), false);
        assert_eq!(stopped.expect_err("a worker failed").to_string(), "a worker failed: as a test");
        assert!(server.is_in_file("a") && server.is_in_file("b"));
    }

    #[test]
    fn an_export_that_hangs_does_not_keep_others_from_being_flushed() {
        let server = Dirty::new();
        let cached = server.cached("a");
        // As if a write to it did not end.
        let turn = cached.dirty().expect("it writes back").turn();
        assert!(turn.is_some(), "none else writes");
        let flushed = flush(&server.context.exports(), Some(Duration::from_millis(300)));
        assert!(flushed.expect_err("one hangs").to_string().contains("in time"));
        let patience = Instant::now() + Duration::from_secs(60);
        while !server.is_in_file("b") && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(server.is_in_file("b") && !server.is_in_file("a"));
        drop(turn);
    }
}
