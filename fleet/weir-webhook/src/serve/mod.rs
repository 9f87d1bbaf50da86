//! The two servers: admission by HTTPS, and what is looked at by HTTP.

pub mod admission;
pub mod connections;
pub mod observe;
pub mod room;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// A whole answer.
pub type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", text)
}
