//! The server, over real TLS with a real client.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::{Webhook, body, library, pod, post, review};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use json_patch::Patch;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_webhook::certificates::Served;
use weir_webhook::certificates::issue::serving;
use weir_webhook::events::Notice;
use weir_webhook::inject::Outcome;
use weir_webhook::metrics::{Ended, Metrics};
use weir_webhook::serve::connections::serve;
use weir_webhook::serve::observe::Observe;

/// The bound of all waiting.
const BOUND: Duration = Duration::from_secs(180);

/// The response of a review, which is there and allows.
fn response(answer: &[u8]) -> Value {
    let review: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["uid"], "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4");
    assert_eq!(review["response"]["allowed"], true);
    review["response"].clone()
}

fn patched(response: &Value) -> Value {
    // Bytes as numbers: an API server takes these as it takes base64.
    let bytes: Vec<u8> = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: Patch = serde_json::from_slice(&bytes).unwrap();
    let mut pod = pod();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}

#[tokio::test]
async fn a_review_is_answered_with_a_patch() {
    let webhook = Webhook::start().await;
    let mut client = webhook.client().await;
    let answer = client.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let response = response(&body(answer).await);
    assert_eq!(response["patchType"], "JSONPatch");
    let pod = patched(&response);
    assert_eq!(pod["metadata"]["annotations"]["weir.dev/injected"], "preloaded in migrate, app, proxy");
    assert_eq!(pod["spec"]["initContainers"][0]["name"], "weir-library");
    let text = webhook.metrics.text().unwrap();
    assert!(text.contains("weir_webhook_requests_total{outcome=\"Injected\"} 1"), "{text}");
    assert!(text.contains("weir_webhook_request_seconds_count 1"), "{text}");
}

#[tokio::test]
async fn the_path_says_whether_the_namespace_asks() {
    let webhook = Webhook::start().await;
    let mut client = webhook.client().await;
    let mut pod = pod();
    pod["metadata"]["labels"] = json!({});
    for (path, expected) in [("/mutate/pod", false), ("/mutate/namespace", true)] {
        let answer = client.send_request(post(path, review(&pod).to_string())).await.unwrap();
        assert_eq!(response(&body(answer).await).get("patch").is_some(), expected, "{path}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_let_through() {
    let webhook = Webhook::start().await;
    let mut client = webhook.client().await;
    let mut broken = review(&pod());
    broken["request"]["object"]["spec"]["containers"] = json!("none");
    let answer = client.send_request(post("/mutate/pod", broken.to_string())).await.unwrap();
    let response = response(&body(answer).await);
    assert_eq!(response.get("patch"), None);
    assert!(response["warnings"][0].as_str().unwrap().starts_with("weir-webhook: this pod is left as it is: "));

    for garbage in ["", "{", "{}", "[]", r#"{"request":{"uid":7}}"#] {
        let answer = client.send_request(post("/mutate/pod", garbage)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{garbage}");
    }
    let answer = client.send_request(post("/mutate/pod", vec![b' '; (4 << 20) + 1])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let mut dense = review(&pod());
    dense["request"]["object"]["spec"]["containers"] = vec![json!({}); 20_000].into();
    let answer = client.send_request(post("/mutate/pod", dense.to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let answer = client.send_request(post("/elsewhere", "")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    // It is as it was.
    let answer = client.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("waited too long: {what}"));
}

#[tokio::test]
async fn what_clients_bring_has_a_bound_together() {
    let webhook = Webhook::start().await;
    let all = || webhook.room.take(16 << 20);
    let taken = all().unwrap();
    let mut client = webhook.client().await;
    let answer = client.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let text = webhook.metrics.text().unwrap();
    assert!(text.contains("weir_webhook_requests_total{outcome=\"Failed\"} 1"), "{text}");
    drop(taken);
    let answer = client.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop(body(answer).await);
    // What was answered has no room any more; what has not come as a whole has some.
    eventually("all is answered", async || all().is_some()).await;
    let mut stream = webhook.tls(b"http/1.1").await.unwrap();
    stream.write_all(b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    eventually("half of a body is held", async || all().is_none()).await;
    drop(stream);
    eventually("its client is gone", async || all().is_some()).await;
}

#[tokio::test]
async fn connections_have_a_bound_and_who_has_many_keeps_no_other_out() {
    let webhook = Webhook::start().await;
    let mut open = Vec::new();
    for _ in 0..=64 {
        open.push(webhook.tls(b"h2").await.unwrap());
    }
    // What the server has sent of HTTP/2, and the end.
    let mut sent = Vec::new();
    let _ = tokio::time::timeout(BOUND, open[0].read_to_end(&mut sent)).await.expect("it has ended");
    let answer = webhook.client().await.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[test]
fn only_pods_that_are_being_made_are_changed() {
    for (field, value) in
        [("operation", json!("UPDATE")), ("subResource", json!("ephemeralcontainers")), ("object", json!(null))]
    {
        let mut review = review(&pod());
        review["request"][field] = value;
        let reviewed = weir_webhook::serve::admission::review(review.to_string().as_bytes(), true, &library());
        assert_eq!(reviewed.ended, Ended::Unchanged);
        let response = reviewed.response.unwrap();
        assert!(response.allowed && response.patch.is_none());
    }
}

#[test]
fn owners_are_told_but_not_of_rehearsals() {
    let mut review = review(&pod());
    let told = |review: &Value| {
        weir_webhook::serve::admission::review(review.to_string().as_bytes(), true, &library()).notice.is_some()
    };
    assert!(told(&review));
    review["request"]["dryRun"] = json!(true);
    assert!(!told(&review));
    let pod = serde_json::from_value(pod()).unwrap();
    assert!(Notice::of(&pod, Some("n"), Outcome::Left, "").is_some());
    assert!(Notice::of(&pod, Some("n"), Outcome::Unchanged, "").is_none());
    assert!(Notice::of(&Default::default(), Some("n"), Outcome::Left, "").is_none());
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart() {
    let webhook = Webhook::start().await;
    let before = webhook.tls(b"h2").await.unwrap();
    let next = serving(&webhook.authority, &[common::NAME.to_owned()], OffsetDateTime::now_utc()).unwrap();
    webhook.served.serve(&next.certificate, &next.key).unwrap();
    let after = webhook.tls(b"h2").await.unwrap();
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    assert_ne!(shown(&before), shown(&after));
    assert_eq!(shown(&after), webhook.served.current().unwrap().cert[0]);
    // A key that is not the certificate's changes nothing.
    assert!(webhook.served.serve(&next.certificate, &webhook.authority.key).is_err());
    assert_eq!(shown(&webhook.tls(b"h2").await.unwrap()), shown(&after));
}

#[tokio::test]
async fn who_trusts_another_authority_gets_no_connection() {
    let webhook = Webhook::start().await;
    let (other, _) = common::issued();
    assert!(common::connect(webhook.address, &other.certificate, b"h2").await.is_err());
    assert!(webhook.tls(b"h2").await.is_ok());
}

#[tokio::test]
async fn what_has_begun_is_finished_when_it_ends() {
    let webhook = Webhook::start().await;
    let mut stream = webhook.tls(b"http/1.1").await.unwrap();
    let text = review(&pod()).to_string();
    let head = format!(
        "POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.unwrap(); // it waits for the body
    assert_eq!(&begun, b"HTTP/1.1 100");
    webhook.stop.send(()).unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await; // the end of the connection may come without TLS's farewell
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("HTTP/1.1 200 OK") && answer.contains("\"allowed\":true"), "{answer}");
    webhook.running.await.unwrap();
    assert!(TcpStream::connect(webhook.address).await.is_err());
}

#[tokio::test]
async fn it_is_ready_with_a_certificate_and_until_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::new(Served::default());
    let observe = Arc::new(Observe {
        metrics: Arc::new(Metrics::default()),
        served: served.clone(),
        ending: AtomicBool::new(false),
    });
    tokio::spawn(serve(listener, None, observe.clone(), std::future::pending()));
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut get = async |path: &str| {
        let request = Request::get(path).header("host", "x").body(Empty::<Bytes>::new()).unwrap();
        let answer = client.send_request(request).await.unwrap();
        (answer.status().as_u16(), String::from_utf8(body(answer).await.to_vec()).unwrap())
    };
    assert_eq!(get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get("/readyz").await, (503, "there is no certificate yet\n".to_owned()));
    let (authority, _) = common::issued();
    let certificate = serving(&authority, &[], OffsetDateTime::now_utc()).unwrap();
    served.serve(&certificate.certificate, &certificate.key).unwrap();
    assert_eq!(get("/readyz").await, (200, "ok\n".to_owned()));
    observe.ending.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(get("/readyz").await, (503, "ending\n".to_owned()));
    assert_eq!(get("/healthz").await.0, 200);
    let (status, metrics) = get("/metrics").await;
    assert!(status == 200 && metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(get("/").await.0, 404);
}
