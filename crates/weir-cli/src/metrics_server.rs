//! An HTTP server of metrics: one thread that talks, one more while they are written.
//!
//! The cost of a client is bounded: 64 connections at a time, one request for each, all of which has to be over in time, and one
//! writing of the metrics each second. One connection more ends the oldest of those that have not asked yet: who opens many and
//! says nothing keeps neither a scrape nor a probe out.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The format's name in HTTP.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at a time. A pair of Prometheus servers needs two.
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

/// Connections under way, the oldest first, and whether the request of each has come.
pub type Open = VecDeque<(JoinHandle<()>, Arc<AtomicBool>)>;

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Serves what `accept` accepts, for ever. `write` writes the metrics, and may block; none: it cannot.
pub async fn serve<S: Stream>(
    accept: impl AsyncFn() -> Result<S>,
    write: impl Fn() -> Option<String> + Send + Sync + 'static,
    open: &mut Open,
) -> Infallible {
    serve_within([HEAD_PATIENCE, PATIENCE], accept, Metrics::of(write), open).await
}

async fn serve_within<S: Stream>(
    patience: [Duration; 2],
    accept: impl AsyncFn() -> Result<S>,
    metrics: Metrics,
    open: &mut Open,
) -> Infallible {
    loop {
        let Ok(stream) = accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        open.retain(|(task, _)| !task.is_finished());
        if open.len() == CONNECTIONS {
            // Who has asked is answered soon.
            let silent = open.iter().position(|(_, has_asked)| !has_asked.load(Relaxed));
            open.remove(silent.unwrap_or(0)).inspect(|(task, _)| task.abort());
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(connection(stream, metrics.clone(), Arc::clone(&has_asked), patience));
        open.push_back((task, has_asked));
    }
}

/// Answers one request.
async fn connection(
    stream: impl Stream,
    metrics: Metrics,
    has_asked: Arc<AtomicBool>,
    [of_head, of_all]: [Duration; 2],
) {
    let service = service_fn(|request| {
        has_asked.store(true, Relaxed);
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(of_head)
        .serve_connection(TokioIo::new(stream), service);
    // The client has gone, was too slow, or spoke no HTTP, to which hyper has answered.
    let _ = timeout(of_all, served).await;
}

async fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
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
        Some(text) => response(StatusCode::OK, OPEN_METRICS, text),
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

/// The served text and its age. Clones are the same.
#[derive(Clone)]
struct Metrics {
    write: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// The last text, and when it was begun.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Metrics {
    fn of(write: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write), last: Arc::default() }
    }

    /// The text. Requests that come while it is being made wait, and get the same.
    async fn text(&self) -> Option<Bytes> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some((_, text)) = last.as_ref().filter(|(begun, _)| begun.elapsed() < REUSED_FOR) {
            return Some(text.clone());
        }
        let write = self.write.clone();
        // The lock goes with the work, which cannot be stopped. A client that goes away meanwhile takes this call with
        // it, and the next call would begin the same work beside it.
        let work = move || {
            let begun = Instant::now();
            let text = Bytes::from(write()?);
            *last = Some((begun, text.clone()));
            Some(text)
        };
        tokio::task::spawn_blocking(work).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn who_says_nothing_keeps_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut open, accept) = (Open::new(), async || listener.accept().await.map(|(stream, _)| stream));
        // None of these is over in the time of the test.
        let serving = serve_within([Duration::from_secs(3600); 2], accept, Metrics::of(|| None), &mut open);
        let asked = async {
            let mut silent = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let mut probe = TcpStream::connect(address).await.unwrap();
            probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n").await.unwrap();
            let mut text = String::new();
            probe.read_to_string(&mut text).await.unwrap();
            text
        };
        let text = tokio::select! {
            never = serving => match never {},
            text = timeout(Duration::from_secs(60), asked) => text.expect("it is answered"),
        };
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("ok\n"), "{text}");
    }

    /// Its text is being written while others come.
    #[tokio::test]
    async fn who_has_asked_is_answered_however_many_come() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut open, accept) = (Open::new(), async || listener.accept().await.map(|(stream, _)| stream));
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let write = move || {
            begun.send(()).ok()?;
            may_go_on.lock().ok()?.recv().ok()?;
            Some("# EOF\n".into())
        };
        let serving = serve_within([Duration::from_secs(3600); 2], accept, Metrics::of(write), &mut open);
        let asked = async {
            let mut scrape = TcpStream::connect(address).await.unwrap();
            scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n").await.unwrap();
            has_begun.recv().await.unwrap();
            let mut silent = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            // One of the last is closed only once the server has accepted all before it.
            let _ = silent[CONNECTIONS].read(&mut [0]).await;
            go_on.send(()).unwrap();
            let mut text = String::new();
            scrape.read_to_string(&mut text).await.unwrap();
            text
        };
        let text = tokio::select! {
            never = serving => match never {},
            text = timeout(Duration::from_secs(60), asked) => text.expect("it is answered"),
        };
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn a_text_is_made_once_a_second() {
        let metrics = Metrics::of(|| Some("text".into()));
        let first = metrics.text().await.unwrap();
        let begun_at = async |at| metrics.last.lock().await.as_mut().unwrap().0 = at;
        begun_at(Instant::now() + REUSED_FOR).await;
        assert_eq!(metrics.text().await.unwrap().as_ptr(), first.as_ptr());
        begun_at(Instant::now() - REUSED_FOR).await;
        assert_ne!(metrics.text().await.unwrap().as_ptr(), first.as_ptr());
    }
}
