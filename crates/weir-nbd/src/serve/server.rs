//! The server's life: start, reloads, stop.

use super::acceptor::{Welcome, accept};
use super::control;
use super::descriptors;
use super::report::Reporter;
use super::request_memory::Held;
use super::settings::{CacheSettings, Settings};
use super::workers::{self, Seat};
use crate::backend::Flusher;
use crate::base::Failure;
use crate::buffers::{Pools, locked};
use crate::cache::BlockCache;
use crate::command_line::Serve;
use crate::export::Exports;
use crate::io::{self, blocking};
use crate::session::{Context, Home, TlsMode};
use crate::transport::{Address, Listener, TlsFiles, load_tls};
use sd_notify::NotifyState;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};
use tracing::{error, info, warn};

/// Time for sessions to end after their sockets were shut down.
const ABORT: Duration = Duration::from_secs(5);

/// A signal that follows another within this time is the same one, sent twice: `timeout` signals its program, and then its
/// group.
const ECHO: Duration = Duration::from_millis(100);

/// Serves until it is stopped.
pub fn serve(options: &Serve) -> Result<(), Failure> {
    let runtime = io::main_runtime().map_err(Failure::because("the main thread"))?;
    let served = runtime.block_on(run(options));
    // What still blocks may do so for ever.
    runtime.shutdown_background();
    served
}

/// Events that the main thread waits for.
struct Events {
    reload: Signal,
    stops: Stops,
}

/// Events that end the server.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
    /// When the last signal came that counts.
    last: Option<Instant>,
    /// How workers have ended.
    workers: UnboundedReceiver<std::io::Result<()>>,
}

enum Event {
    Reload,
    Stop,
    WorkerEnd(Result<(), Failure>),
}

impl Event {
    /// How the server's work has ended.
    fn into_end(self) -> Result<(), Failure> {
        match self {
            Self::WorkerEnd(end) => end,
            Self::Reload | Self::Stop => Ok(()),
        }
    }
}

impl Events {
    fn watch(workers: UnboundedReceiver<std::io::Result<()>>) -> Result<Self, Failure> {
        let watch = |kind| signal(kind).map_err(Failure::because("signals"));
        let (reload, terminate) = (watch(SignalKind::hangup())?, watch(SignalKind::terminate())?);
        let interrupt = watch(SignalKind::interrupt())?;
        Ok(Self { reload, stops: Stops { terminate, interrupt, last: None, workers } })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.reload.recv() => Event::Reload,
            event = self.stops.next() => event,
        }
    }
}

impl Stops {
    async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                Some(end) = self.workers.recv() => {
                    return Event::WorkerEnd(end.map_err(Failure::because("a worker failed")));
                }
            }
            if self.counts(Instant::now()) {
                return Event::Stop;
            }
        }
    }

    /// Whether a signal that comes now is more than the echo of another.
    fn counts(&mut self, now: Instant) -> bool {
        let counts = self.last.is_none_or(|last| now - last >= ECHO);
        if counts {
            self.last = Some(now);
        }
        counts
    }

    /// Waits for a signal to stop, whatever workers do.
    async fn stop(&mut self) {
        while !matches!(self.next().await, Event::Stop) {}
    }
}

async fn run(options: &Serve) -> Result<(), Failure> {
    let since = Instant::now();
    let (ends, ended) = unbounded_channel();
    // Before anything else: a signal that comes early is not lost.
    let mut events = Events::watch(ended)?;
    // What is below may hang: the server can be stopped meanwhile.
    let options_ = options.clone();
    let (settings, context) = tokio::select! {
        opened = blocking(move || open(&options_)) => opened?,
        event = events.stops.next() => return event.into_end(),
    };
    // A name may have to be looked up, and a socket that is there is asked whether somebody listens.
    let settings_ = settings.clone();
    let opened =
        move || Ok::<_, Failure>((listen(&settings_)?, settings_.control.as_ref().map(control::bind).transpose()?));
    let ((listeners, names), control) = tokio::select! {
        opened = blocking(opened) => opened?,
        event = events.stops.next() => return event.into_end(),
    };
    let volumes = settings.exports.iter().map(|export| export.source.descriptors()).sum();
    let max_connections = descriptors::allow(settings.max_connections, volumes, settings.workers);
    let (seats, io) = workers::start(settings.workers, settings.io, &context, &ends)?;
    let (context_, seats_) = (context.clone(), seats.clone());
    let welcome = Rc::new(Welcome { context: context_, seats: seats_, max_connections, is_full: Cell::new(false) });
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        acceptors.spawn_local(accept(listener, welcome.clone()));
    }
    let reporter = Reporter { since, workers: settings.workers, io };
    let control_name = control.flatten().map(|bound| control::serve(bound, context.clone(), reporter)).transpose()?;
    info!("{} exports, {} workers by {io}", settings.exports.len(), settings.workers);
    notify(&[NotifyState::Ready]);
    let failed = wait(&mut events, options, &settings, &context).await;
    notify(&[NotifyState::Stopping]);
    info!("stopping");
    context.stop();
    // Names first: a successor may bind its own sockets from now on.
    drop((names, control_name));
    drop(acceptors);
    let stopped = stop(&mut events, &seats, &context, settings.stop_timeout, failed.is_err()).await;
    failed.and(stopped)
}

/// Reads the settings, and opens all that is exported.
fn open(options: &Serve) -> Result<(Settings, Arc<Context>), Failure> {
    let settings = Settings::load(options)?;
    let context = open_context(&settings)?;
    Ok((settings, context))
}

fn open_context(settings: &Settings) -> Result<Arc<Context>, Failure> {
    if let Some(limit) = settings.limit {
        weir::settings::set_number("limit", limit).map_err(Failure::because("limit"))?;
    }
    settings.available.log();
    let for_requests = settings.available.for_requests(settings.limit, settings.held);
    settings.memory.log(for_requests, settings.is_memory_set);
    follow_group(settings, settings, settings.cache.is_some())?;
    if let Some(bytes) = settings.locked_memory {
        locked::lock_memory(bytes)?;
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

/// Has a server with a cache stay under a limit that follows that of its control group, unless one is set. Locked memory and
/// requests are those of the start.
fn follow_group(settings: &Settings, started: &Settings, has_cache: bool) -> Result<(), Failure> {
    if !has_cache || settings.limit.is_some() {
        return Ok(());
    }
    let held = Held { exports: settings.held.exports, ..started.held };
    settings.available.set_limit(held, started.memory.all)
}

fn open_tls(settings: &Settings) -> Result<TlsMode, Failure> {
    let Some(files) = &settings.tls else { return Ok(TlsMode::default()) };
    Ok(TlsMode { config: Some(load_tls(files)?), required: files.is_required() })
}

/// Opens all listening sockets: their descriptors, and what keeps their names.
fn listen(settings: &Settings) -> Result<(Vec<OwnedFd>, impl Send + use<>), Failure> {
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
        if listener.is_public && !settings.tls.as_ref().is_some_and(TlsFiles::is_required) {
            warn!("other machines can reach {} without TLS", listener.name);
        }
    }
    Ok(listeners.into_iter().map(Listener::into_parts).unzip::<_, _, _, Vec<_>>())
}

/// Waits for the signal to stop, and reloads when told to. An error is a worker's.
async fn wait(events: &mut Events, options: &Serve, started: &Settings, context: &Arc<Context>) -> Result<(), Failure> {
    loop {
        match events.next().await {
            Event::Reload => {
                notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now().unwrap_or(NotifyState::Reloading)]);
                let (options, started, context) = (options.clone(), started.clone(), context.clone());
                // What is below may hang: the server can be stopped meanwhile. Another reload waits for this one.
                let reloaded = tokio::select! {
                    reloaded = blocking(move || reload(&options, &started, &context)) => reloaded,
                    event = events.stops.next() => return event.into_end(),
                };
                match reloaded {
                    Ok(()) => info!("the configuration was read again"),
                    Err(why) => error!("the configuration stays as it was: {why}"),
                }
                notify(&[NotifyState::Ready]);
            }
            end => return end.into_end(),
        }
    }
}

/// Exports, certificates, the settings of page pools and the limit that follows that of the control group are read again; the
/// rest counts from the next start on.
fn reload(options: &Serve, started: &Settings, context: &Context) -> Result<(), Failure> {
    let settings = Settings::load(options)?;
    let (definitions, default) = (settings.exports.clone(), settings.default.clone());
    let exports = Exports::open(definitions, default, &context.exports(), context.cache.as_ref())?;
    exports.iter().for_each(|export| export.look_at_size());
    context.replace(exports, open_tls(&settings)?);
    follow_group(&settings, started, context.cache.is_some())?;
    context.pools.set(settings.pools)
}

/// Lets sessions end, then flushes, whatever became of a worker.
async fn stop(
    events: &mut Events,
    seats: &[Seat],
    context: &Context,
    patience: Duration,
    one_failed: bool,
) -> Result<(), Failure> {
    // Before the sessions end, with which the volumes of removed exports go.
    let flushers = context.exports().flushers();
    for seat in seats {
        seat.remote.run(|| {
            Home::stop();
            io::stop();
        });
    }
    let ended = await_workers(events, seats, patience, seats.len() - usize::from(one_failed)).await;
    // What hangs below may do so for ever.
    let patience = if ended.is_err() { patience.max(ABORT) } else { Duration::MAX };
    and(ended, flush(flushers, patience, events.stops.stop()).await)?;
    info!("stopped");
    Ok(())
}

/// Waits until `left` workers have ended. A second signal, or the end of the time for it, ends their sessions as they are.
async fn await_workers(
    events: &mut Events,
    seats: &[Seat],
    patience: Duration,
    mut left: usize,
) -> Result<(), Failure> {
    let mut deadline = tokio::time::Instant::now() + patience;
    let (mut is_aborted, mut result) = (false, Ok(()));
    while left > 0 {
        let event = tokio::select! {
            event = events.next() => event,
            () = sleep_until(deadline) => Event::Stop,
        };
        match event {
            Event::WorkerEnd(end) => {
                left -= 1;
                result = and(result, end);
            }
            Event::Reload => {}
            Event::Stop if is_aborted => {
                let why = Failure::new("requests are still under way below: what they write may be lost");
                return and(result, Err(why));
            }
            Event::Stop => {
                warn!("clients are disconnected before all was answered");
                (is_aborted, deadline) = (true, tokio::time::Instant::now() + ABORT);
                seats.iter().for_each(|seat| seat.remote.run(Home::abort));
            }
        }
    }
    result
}

/// Flushes all exports, by their names, side by side: one that fails or hangs does not keep the others from it. `patience` is the
/// time for all of them, unless a signal to `stop` comes before.
async fn flush(
    exports: Vec<(String, Arc<Flusher>)>,
    patience: Duration,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let mut flushes = JoinSet::new();
    for (name, flusher) in exports {
        flushes.spawn_local(async move {
            let what = format!("export '{name}' could not be flushed");
            flusher.flush_at_end().await.map_err(Failure::because(what))
        });
    }
    let mut flushed = Ok(());
    let all = async {
        while let Some(result) = flushes.join_next().await {
            let result = result.unwrap_or_else(|why| Err(Failure::new(why.to_string())));
            flushed = and(std::mem::replace(&mut flushed, Ok(())), result);
        }
    };
    let left = tokio::select! {
        () = all => return flushed,
        () = sleep(patience) => "not all exports could be flushed in time",
        () = stop => "stopped before all exports were flushed: what was written may be lost",
    };
    and(flushed, Err(Failure::new(left)))
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
    use super::super::workers::Ends;
    use super::*;
    use crate::backend::{Source, testing::run};
    use crate::base::size::Size;
    use crate::buffers::Buffer;
    use crate::cache::{BLOCK, CachedFile, FileId};
    use crate::export::Definition;
    use crate::io::Engine;
    use crate::session::Limits;
    use std::future::{pending, ready};
    use std::os::unix::fs::MetadataExt;
    use tempfile::TempDir;

    /// A server of two files, `a` and `b`, each with a dirty block of ones.
    struct Dirty {
        folder: TempDir,
        context: Arc<Context>,
        seats: Vec<Seat>,
        ends: Ends,
        events: Events,
    }

    impl Dirty {
        async fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let definition = |name: &str| {
                let source = Source::Path { path: folder.path().join(name), create: Some(Size(1 << 20)) };
                Definition { name: name.into(), source, read_only: false, description: String::new(), tls_only: false }
            };
            let cache = BlockCache::new(Some(1 << 20), true).expect("a cache");
            let definitions = ["a", "b"].map(definition).to_vec();
            let exports = Exports::open(definitions, None, &Exports::default(), Some(&cache)).expect("two exports");
            let (minute, most) = (Duration::from_secs(60), 1 << 20);
            let limits = Limits {
                request: 1 << 20,
                client_memory: most,
                worker_memory: most,
                handshake: minute,
                patience: minute,
            };
            let context = Context::new(exports, TlsMode::default(), limits, Some(cache), Pools::new());
            let (ends, ended) = unbounded_channel();
            let (seats, _) = workers::start(1, Engine::Threads, &context, &ends).expect("a worker");
            for export in context.exports().iter().cloned() {
                let (written, is_written) = tokio::sync::oneshot::channel();
                seats[0].remote.run(move || {
                    io::spawn(async move {
                        let ones = Buffer::copy_of(&[1; BLOCK]).expect("memory");
                        written.send(export.volume.write(0, ones).await).expect("the test listens");
                    });
                });
                is_written.await.expect("an answer").expect("it is in the cache");
            }
            Self { folder, context, seats, ends, events: Events::watch(ended).expect("signals") }
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
    fn a_signal_that_is_sent_twice_is_one() {
        run(async {
            let mut stops = Events::watch(unbounded_channel().1).expect("signals").stops;
            let began = Instant::now();
            let at = [0, 1, 99, 100, 199, 5000].map(|ms| stops.counts(began + Duration::from_millis(ms)));
            assert_eq!(at, [true, false, false, true, false, true]);
        });
    }

    #[test]
    fn a_worker_that_is_stopped_does_not_wait_for_the_time_to_write_below() {
        run(async {
            // The time may be over in between. Then it is tried again.
            let mut is_dirty = false;
            for _ in 0..20 {
                let mut server = Dirty::new().await;
                server.seats[0].remote.run(|| {
                    Home::stop();
                    io::stop();
                });
                let minute = Duration::from_secs(60);
                await_workers(&mut server.events, &server.seats, minute, 1).await.expect("it ends");
                is_dirty = !server.is_in_file("a") && !server.is_in_file("b");
                if is_dirty {
                    break;
                }
            }
            assert!(is_dirty, "what is dirty is for the server's end to write");
        });
    }

    #[test]
    fn a_failed_worker_does_not_keep_exports_from_being_flushed() {
        run(async {
            let mut server = Dirty::new().await;
            server.ends.send(Err(std::io::Error::other("as a test"))).expect("the test listens");
            let (seats, minute) = (server.seats.clone(), Duration::from_secs(60));
            let stopped = stop(&mut server.events, &seats, &server.context, minute, false).await;
            assert_eq!(stopped.expect_err("a worker failed").to_string(), "a worker failed: as a test");
            assert!(server.is_in_file("a") && server.is_in_file("b"));
        });
    }

    /// As a reload replaces them.
    fn export(context: &Context, definitions: Vec<Definition>) {
        let exports = Exports::open(definitions, None, &context.exports(), context.cache.as_ref());
        context.replace(exports.expect("exports"), TlsMode::default());
    }

    #[test]
    fn an_export_that_was_removed_is_flushed_too() {
        run(async {
            let mut server = Dirty::new().await;
            let exports: Vec<_> = server.context.exports().iter().cloned().collect();
            // A client has it still.
            let volume = exports[0].volume.clone();
            let kept = exports[1].definition.clone();
            drop(exports);
            export(&server.context, vec![kept.clone()]);
            export(&server.context, vec![kept]);
            let (seats, minute) = (server.seats.clone(), Duration::from_secs(60));
            assert_eq!(server.context.exports().flushers().len(), 2);
            drop(volume);
            stop(&mut server.events, &seats, &server.context, minute, false).await.expect("all is flushed");
            assert!(server.is_in_file("a") && server.is_in_file("b"));
        });
    }

    #[test]
    fn an_export_that_hangs_does_not_keep_others_from_being_flushed() {
        run(async {
            let server = Dirty::new().await;
            let cached = server.cached("a");
            // As if a write to it did not end.
            let _writing = cached.dirty().expect("it writes back").writing().await;
            let flushed = flush(server.context.exports().flushers(), Duration::from_secs(3), pending()).await;
            assert!(flushed.expect_err("one hangs").to_string().contains("in time"));
            assert!(server.is_in_file("b") && !server.is_in_file("a"));
            // A signal ends it.
            let flushed = flush(server.context.exports().flushers(), Duration::MAX, ready(())).await;
            assert!(flushed.expect_err("one hangs").to_string().contains("stopped before"));
        });
    }
}
