//! The HTTP server: metrics, and whether the agent lives.
//!
//! The cost of a client is bounded: so many connections at a time, one request for each, all of which has to be over in time. One
//! more ends the oldest: who opens many and says nothing keeps neither a scrape nor the kubelet's probe out, which would have the
//! agent started again.

use crate::metrics::{CONTENT_TYPE, Metrics};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE as KIND, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Connections at a time: a scrape and a probe are over in a few milliseconds.
const CONNECTIONS: usize = 64;
/// Time for a connection in all: a scrape is given 10 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head at most; hyper takes no less than 8 KiB.
const HEAD_BYTES: usize = 16 << 10;
/// Time between two attempts to accept a connection when the kernel refuses one.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves for ever.
pub async fn serve(listener: TcpListener, metrics: Metrics) {
    serve_within(listener, metrics, PATIENCE).await;
}

async fn serve_within(listener: TcpListener, metrics: Metrics, patience: Duration) {
    let mut open = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        open.retain(|it: &JoinHandle<()>| !it.is_finished());
        if open.len() == CONNECTIONS {
            open.pop_front().inspect(JoinHandle::abort);
        }
        open.push_back(tokio::spawn(connection(stream, metrics.clone(), patience)));
    }
}

async fn connection(stream: TcpStream, metrics: Metrics, patience: Duration) {
    let service = service_fn(|request| {
        let answer = answer(&request, &metrics);
        async { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // The client has gone, was too slow, or spoke no HTTP, to which hyper has answered.
    let _ = timeout(patience, served).await;
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    match request.uri().path() {
        _ if !is_read => response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n".into()),
        "/metrics" => {
            let mut found = response(StatusCode::OK, metrics.page(Instant::now()));
            found.headers_mut().insert(KIND, HeaderValue::from_static(CONTENT_TYPE));
            found
        }
        "/healthz" => response(StatusCode::OK, "ok\n".into()),
        _ => response(StatusCode::NOT_FOUND, "not found: the metrics are at /metrics\n".into()),
    }
}

fn response(status: StatusCode, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_says_nothing_keeps_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // None of these is over in the time of the test.
        let serving = tokio::spawn(serve_within(listener, Metrics::default(), Duration::from_secs(3600)));
        let asked = async {
            let mut silent = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let mut probe = TcpStream::connect(address).await.unwrap();
            probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n").await.unwrap();
            let mut text = String::new();
            probe.read_to_string(&mut text).await.unwrap();
            text
        };
        let text = timeout(Duration::from_secs(60), asked).await.expect("it is answered");
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("ok\n"), "{text}");
        serving.abort();
    }
}
