//! Takes connections until it is told to stop, then lets each finish what it has begun.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Answer;
use super::room::Connections;

/// A client that says nothing for so long is not one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whether the other end is still there is asked so often.
const ALIVE: Duration = Duration::from_secs(30);

/// Requests at a time on one connection. An API server opens another for what is beyond.
const STREAMS: u32 = 32;
/// Bytes that one connection may bring before they are read.
const WINDOW: u32 = 128 << 10;
/// Bytes of one connection of HTTP/1 that are read at a time.
const BUFFER: usize = 64 << 10;

/// What answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The answer to one.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Serves until `stop` is there; then open connections have ten seconds to end. None waits for a place: it would look like one that
/// is served.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    stop: impl Future<Output = ()>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let (open, connections) = (GracefulShutdown::new(), Arc::new(Connections::default()));
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, from) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(_) => { // such as: too many open files
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let connection = connections.enter(from.ip());
        // An answer is written in more than one piece: without this one in some hundred waits 40 ms for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let (watcher, handler, acceptor) = (open.watcher(), handler.clone(), acceptor.clone());
        tokio::spawn(async move {
            let served = async {
                match acceptor {
                    None => drive(stream, handler, watcher).await,
                    Some(acceptor) => {
                        if let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await {
                            drive(stream, handler, watcher).await;
                        }
                    }
                }
            };
            tokio::select! { () = served => {}, () = connection.ended() => {} }
        });
    }
    drop(listener);
    if timeout(PATIENCE, open.shutdown()).await.is_err() {
        eprintln!("weir-webhook: connections are still open; ending all the same");
    }
}

async fn drive<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    handler: Arc<H>,
    watcher: Watcher,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(BUFFER);
    builder.http2().max_concurrent_streams(STREAMS);
    builder.http2().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(ALIVE).keep_alive_timeout(PATIENCE);
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(handler.handle(request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    // An error is the client's end of it.
    let _ = watcher.watch(connection).await;
}
