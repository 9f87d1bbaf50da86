//! The HTTP server: one thread that talks, one more while the figures are read.
//!
//! The cost of a client is bounded: [`CONNECTIONS`] at a time, one request for each, all of which has to be over
//! after [`PATIENCE`], and one reading of the figures in [`REUSED_FOR`].

use super::listen::{Listener, Stream};
use super::snapshot::{Extent, Snapshot};
use super::text;
use crate::base::failure::Failure;
use crate::base::listen_address::Address;
use crate::base::output;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Connections served at a time: others wait in the kernel's queue. A pair of Prometheus servers needs two.
/// Silent connections are to leave some for them.
const CONNECTIONS: usize = 64;
/// Time for a request's head: a scraper sends it at once.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head at most; hyper takes no less than 8 KiB.
const HEAD_BYTES: usize = 16 << 10;
/// Time for a connection in all. Prometheus gives a scrape 10 s unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// A text that is younger is served again: so many requests cost no more than one each second.
const REUSED_FOR: Duration = Duration::from_secs(1);
/// Time between two attempts to accept a connection when the kernel refuses one, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that requests have to end after a signal to stop.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub fn serve(address: &Address, extent: Extent) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of_weir(format!("cannot serve: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = Listener::bind(address).await?;
        run(listener, extent).await.map_err(failed)
    })
}

async fn run(listener: Listener, extent: Extent) -> std::io::Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    output::say(format_args!("weir: metrics at {}\n", listener.address()?));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let metrics = Arc::new(Metrics { extent, last: Arc::default() });
    let accepting = tokio::spawn(accept(listener, slots.clone(), metrics));
    std::future::poll_fn(|context| {
        let stops = [&mut terminated, &mut interrupted].map(|signal| signal.poll_recv(context).is_ready());
        if stops.contains(&true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    // The socket is closed with the task; what was begun is ended.
    accepting.abort();
    let _ = accepting.await;
    let _ = timeout(FAREWELL, slots.acquire_many(CONNECTIONS as u32)).await;
    Ok(())
}

/// Serves each connection, as long as there is a slot for it.
async fn accept(listener: Listener, slots: Arc<Semaphore>, metrics: Arc<Metrics>) {
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(connection(stream, slot, metrics.clone()))),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers one request.
async fn connection(stream: Box<dyn Stream>, slot: OwnedSemaphorePermit, metrics: Arc<Metrics>) {
    let service = service_fn(|request| {
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // The client has gone, was too slow, or spoke no HTTP, to which hyper has answered.
    let _ = timeout(PATIENCE, served).await;
    drop(slot);
}

async fn answer(request: &Request<Incoming>, metrics: &Arc<Metrics>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !["/metrics", "/healthz"].contains(&path) {
        return plain(StatusCode::NOT_FOUND, "not found: the metrics are at /metrics\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    if path == "/healthz" {
        return plain(StatusCode::OK, "ok\n");
    }
    match metrics.text().await {
        Some(text) => response(StatusCode::OK, text::CONTENT_TYPE, text),
        None => plain(StatusCode::INTERNAL_SERVER_ERROR, "the figures could not be read\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// For HEAD hyper sends the head alone.
fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The served text and its age.
struct Metrics {
    extent: Extent,
    /// The last text, and when it was begun.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Metrics {
    /// The text. Requests that come while it is being made wait, and get the same.
    async fn text(&self) -> Option<Bytes> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some((_, text)) = last.as_ref().filter(|(begun, _)| begun.elapsed() < REUSED_FOR) {
            return Some(text.clone());
        }
        let extent = self.extent;
        // The lock goes with the work, which cannot be stopped. A client that goes away meanwhile takes this call with
        // it, and the next call would begin the same work beside it.
        let work = move || {
            let begun = Instant::now();
            let text = Bytes::from(text::of(Snapshot::take(extent)).ok()?);
            *last = Some((begun, text.clone()));
            Some(text)
        };
        tokio::task::spawn_blocking(work).await.ok()?
    }
}
