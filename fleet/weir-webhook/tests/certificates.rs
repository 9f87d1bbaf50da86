//! Certificates in files, and in a Secret of an API server that this test is.

mod common;

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use time::OffsetDateTime;
use weir_webhook::certificates::Served;
use weir_webhook::certificates::files::Files;
use weir_webhook::certificates::issue::serving;
use weir_webhook::certificates::kubernetes::Objects;
use weir_webhook::certificates::rotation::look;

#[tokio::test]
async fn files_are_read_again_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, _) = common::issued();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let issue = || serving(&authority, &[common::NAME.to_owned()], OffsetDateTime::now_utc()).unwrap();
    let (served, mut files) = (Served::default(), Files::new(folder.path().to_owned()));
    assert!(files.look(&served).await.is_err());

    let first = issue();
    write("tls.crt", &first.certificate);
    write("tls.key", &first.key);
    assert!(files.look(&served).await.unwrap());
    assert!(!files.look(&served).await.unwrap());
    let before = served.current().unwrap();

    let second = issue();
    write("tls.crt", &second.certificate); // its key is still to come
    assert!(files.look(&served).await.is_err());
    assert_eq!(served.current().unwrap().cert, before.cert);
    write("tls.key", &second.key);
    assert!(files.look(&served).await.unwrap());
    assert_ne!(served.current().unwrap().cert, before.cert);
}

/// An API server that has one Secret and one configuration, and remembers what it was asked.
#[derive(Clone)]
struct ApiServer(Arc<Mutex<State>>);

struct State {
    secret: Value,
    configuration: Value,
    asked: Vec<String>,
}

impl ApiServer {
    fn new() -> Self {
        let webhook =
            |name| json!({"name": name, "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        Self(Arc::new(Mutex::new(State {
            secret: json!({"metadata": {"name": "s", "namespace": "n", "resourceVersion": "1", "labels": {"a": "b"}}}),
            configuration: json!({"metadata": {"name": "c"}, "webhooks": [webhook("one"), webhook("two")]}),
            asked: Vec::new(),
        })))
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, answer) = server.answer(head.method.as_str(), head.uri.path(), &body);
                let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "n")
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let mut objects = self.0.lock().unwrap();
        objects.asked.push(format!("{method} {path}"));
        match (method, path.rsplit('/').next().unwrap()) {
            ("GET", "s") => (200, objects.secret.clone()),
            ("GET", "c") => (200, objects.configuration.clone()),
            ("PUT", "s") => {
                let mut new: Value = serde_json::from_slice(body).unwrap();
                let version = objects.secret["metadata"]["resourceVersion"].clone();
                if new["metadata"]["resourceVersion"] != version {
                    return (
                        409,
                        json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "m"}),
                    );
                }
                new["metadata"]["resourceVersion"] = json!(format!("{}1", version.as_str().unwrap()));
                objects.secret = new.clone();
                (200, new)
            }
            ("PATCH", "c") => {
                // A strategic merge by the names of webhooks.
                let patch: Value = serde_json::from_slice(body).unwrap();
                for patched in patch["webhooks"].as_array().unwrap() {
                    let webhooks = objects.configuration["webhooks"].as_array_mut().unwrap();
                    let webhook = webhooks.iter_mut().find(|webhook| webhook["name"] == patched["name"]).unwrap();
                    webhook["clientConfig"]["caBundle"] = patched["clientConfig"]["caBundle"].clone();
                }
                (200, objects.configuration.clone())
            }
            _ => (
                403,
                json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"}),
            ),
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

#[tokio::test]
async fn it_asks_for_no_more_than_its_role_allows() {
    const SECRET: &str = "/api/v1/namespaces/n/secrets/s";
    const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/c";
    let server = ApiServer::new();
    let objects = Objects::new(server.client(), "n", "s", "c");
    let (served, names, now) = (Served::default(), [common::NAME.to_owned()], OffsetDateTime::now_utc());
    look(&objects, &served, &names, now).await.unwrap();
    let expected = [
        format!("GET {SECRET}"),
        format!("PUT {SECRET}"),
        format!("GET {CONFIGURATION}"),
        format!("PATCH {CONFIGURATION}"),
    ];
    assert_eq!(server.asked(), expected);
    {
        let state = server.0.lock().unwrap();
        assert_eq!(state.secret["metadata"]["labels"], json!({"a": "b"}));
        for webhook in state.configuration["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["clientConfig"]["caBundle"], state.secret["data"]["ca.crt"]);
        }
    }
    // Nothing is due: it reads alone.
    look(&objects, &served, &names, now).await.unwrap();
    assert_eq!(server.asked(), [format!("GET {SECRET}"), format!("GET {CONFIGURATION}")]);
    // Another replica finds what the first has made.
    let other = Served::default();
    look(&Objects::new(server.client(), "n", "s", "c"), &other, &names, now).await.unwrap();
    assert_eq!(other.current().unwrap().cert, served.current().unwrap().cert);
    // Somebody takes the authority out: it is put back.
    server.0.lock().unwrap().configuration["webhooks"][1]["clientConfig"] = json!({});
    look(&objects, &served, &names, now).await.unwrap();
    assert!(server.0.lock().unwrap().configuration["webhooks"][1]["clientConfig"]["caBundle"].is_string());
}

#[tokio::test]
async fn a_write_that_comes_too_late_is_known_as_such() {
    use weir_webhook::certificates::rotation::{Store, Written};
    let server = ApiServer::new();
    let objects = Objects::new(server.client(), "n", "s", "c");
    let (kept, early) = objects.read().await.unwrap();
    let (_, late) = objects.read().await.unwrap();
    assert_eq!(objects.write(&kept, early).await.unwrap(), Written::Yes);
    assert_eq!(objects.write(&kept, late).await.unwrap(), Written::TooLate);
}

#[tokio::test]
async fn what_is_not_allowed_is_said_with_the_objects_name() {
    let objects = Objects::new(ApiServer::new().client(), "n", "other", "c");
    let error = look(&objects, &Served::default(), &[], OffsetDateTime::now_utc()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("cannot read the Secret other: "), "{error:#}");
}
