//! The HTTP server: metrics, and whether the agent lives.
//!
//! The cost of a client is bounded: so many connections at a time, one request for each, all of which has to be over in time.

use crate::metrics::{CONTENT_TYPE, Metrics};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE as KIND, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Connections served at a time: others wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// Time for a connection in all: a scrape is given 10 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts to accept a connection when the kernel refuses one.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves for ever.
pub async fn serve(listener: TcpListener, metrics: Metrics) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, slot, metrics.clone()))),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, slot: OwnedSemaphorePermit, metrics: Metrics) {
    let service = service_fn(|request| {
        let answer = answer(&request, &metrics);
        async { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // The client has gone, was too slow, or spoke no HTTP, to which hyper has answered.
    let _ = timeout(PATIENCE, served).await;
    drop(slot);
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    match request.uri().path() {
        _ if !is_read => response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n".into()),
        "/metrics" => {
            let mut found = response(StatusCode::OK, metrics.text());
            found.headers_mut().insert(KIND, HeaderValue::from_static(CONTENT_TYPE));
            found
        }
        "/healthz" => response(StatusCode::OK, "ok\n".into()),
        _ => response(StatusCode::NOT_FOUND, "not found: the metrics are at /metrics\n".into()),
    }
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
