//! A webhook in this process, on a real socket with real TLS, and a client of it.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_webhook::certificates::Served;
use weir_webhook::certificates::issue::{Issued, authority, serving};
use weir_webhook::inject::library::{Library, Way};
use weir_webhook::metrics::Metrics;
use weir_webhook::serve::admission::Admission;
use weir_webhook::serve::connections::serve;
use weir_webhook::serve::room::Room;

pub const NAME: &str = "weir-webhook.weir-system.svc";

pub struct Webhook {
    pub address: SocketAddr,
    pub authority: Issued,
    pub served: Arc<Served>,
    pub metrics: Arc<Metrics>,
    pub room: Room,
    pub stop: oneshot::Sender<()>,
    pub running: JoinHandle<()>,
}

pub fn library() -> Library {
    Library {
        image: "registry.example/weir:0.1.0".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        way: Way::InitContainer,
        run_as_user: Some(65534),
    }
}

/// An authority, and what serves a certificate of it.
pub fn issued() -> (Issued, Arc<Served>) {
    let now = OffsetDateTime::now_utc();
    let authority = authority(now).unwrap();
    let served = Arc::new(Served::default());
    let certificate = serving(&authority, &[NAME.to_owned()], now).unwrap();
    served.serve(&certificate.certificate, &certificate.key).unwrap();
    (authority, served)
}

impl Webhook {
    pub async fn start() -> Self {
        let (authority, served) = issued();
        let metrics = Arc::new(Metrics::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (library, room) = (library(), Room::default());
        let handler = Arc::new(Admission { library, metrics: metrics.clone(), events: None, room: room.clone() });
        let (stop, stopped) = oneshot::channel();
        let running =
            tokio::spawn(serve(listener, Some(served.tls().unwrap()), handler, async { drop(stopped.await) }));
        Self { address, authority, served, metrics, room, stop, running }
    }

    pub async fn tls(&self, protocol: &[u8]) -> Result<TlsStream<TcpStream>, std::io::Error> {
        connect(self.address, &self.authority.certificate, protocol).await
    }

    pub async fn client(&self) -> SendRequest<Full<Bytes>> {
        let stream = self.tls(b"h2").await.unwrap();
        let (client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// A TLS connection by someone who trusts `bundle` alone.
pub async fn connect(
    address: SocketAddr,
    bundle: &str,
    protocol: &[u8],
) -> Result<TlsStream<TcpStream>, std::io::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), stream).await
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://{NAME}{path}?timeout=1s")).body(Full::new(body.into())).unwrap()
}

pub async fn body(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// What an API server sends when this pod is made.
pub fn review(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "p", "namespace": "n", "operation": "CREATE",
            "userInfo": {"username": "u"},
            "object": pod, "oldObject": null, "dryRun": false,
        },
    })
}

/// A pod as a Deployment makes it, of some KiB.
pub fn pod() -> Value {
    let env: Vec<Value> =
        (0..20).map(|n| json!({"name": format!("NAME_{n}"), "value": "a value of some length"})).collect();
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example/app:1", "env": env, "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "app-7d9c-", "labels": {"app": "app", "weir.dev/inject": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-7d9c", "uid": "u", "controller": true}],
        },
        "spec": {
            "containers": [container("app"), container("proxy")], "initContainers": [container("migrate")],
            "volumes": [{"name": "token", "emptyDir": {}}],
        },
    })
}
