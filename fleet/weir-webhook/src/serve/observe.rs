//! What a kubelet and Prometheus look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::connections::Handler;
use super::{Answer, answer, plain};
use crate::certificates::Served;
use crate::metrics::Metrics;

/// The server's part that tells how it is.
#[derive(Debug)]
pub struct Observe {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Without a certificate there is no handshake, and the webhook is not ready.
    pub served: Arc<Served>,
    /// Set once it is to end: then it is not ready either.
    pub ending: AtomicBool,
}

impl Observe {
    fn ready(&self) -> Result<(), &'static str> {
        if self.ending.load(Ordering::Relaxed) {
            return Err("ending\n");
        }
        self.served.current().map(drop).ok_or("there is no certificate yet\n")
    }
}

impl Handler for Observe {
    async fn handle(&self, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" => match self.ready() {
                Ok(()) => plain(StatusCode::OK, "ok\n"),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason),
            },
            "/metrics" => match self.metrics.text() {
                Ok(text) => answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            _ => plain(StatusCode::NOT_FOUND, "see /healthz, /readyz, /metrics\n"),
        }
    }
}
