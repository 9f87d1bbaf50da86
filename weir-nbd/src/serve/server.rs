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
use crate::export::{Export, Exports};
use crate::io::Engine;
use crate::session::{Context, Home, TlsMode};
use crate::transport::{Address, Listener, load_tls};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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
    let max_connections = descriptors::allow(settings.max_connections, settings.exports.len(), settings.workers);
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
    context.replace(exports, open_tls(&settings)?);
    context.pools.set(settings.pools)
}

/// Lets sessions end, then flushes. A second signal, or the end of the time for it, ends them as they are.
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
    let mut left = seats.len() - usize::from(one_failed);
    let mut deadline = Instant::now() + patience;
    let mut is_aborted = false;
    while left > 0 {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::WorkerEnd(end)) => {
                left -= 1;
                end.map_err(Failure::because("a worker failed"))?;
            }
            Ok(Event::Signal(SIGHUP)) => {}
            _ if is_aborted => {
                return Err(Failure::new("requests are still under way below: what they write may be lost"));
            }
            _ => {
                warn!("clients are disconnected before all was answered");
                (is_aborted, deadline) = (true, Instant::now() + ABORT);
                seats.iter().for_each(|seat| seat.remote.run(|_| Home::abort()));
            }
        }
    }
    // All of them, whatever became of one.
    let flush = |export: &Arc<Export>| {
        let what = format!("export '{}' could not be flushed", export.definition.name);
        export.volume.flush_at_end().map_err(Failure::because(what))
    };
    context.exports().iter().map(flush).fold(Ok(()), Result::and)?;
    info!("stopped");
    Ok(())
}

/// Tells the service manager, if there is one.
fn notify(states: &[NotifyState]) {
    if let Err(why) = sd_notify::notify(states) {
        warn!("the service manager was not told: {why}");
    }
}
