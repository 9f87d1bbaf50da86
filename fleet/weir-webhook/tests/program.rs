//! The program itself: started, asked, ended by a signal.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};

use common::{body, connect, pod, post, review};
use http_body_util::Full;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use weir_webhook::certificates::issue::{Issued, serving};

struct Program {
    child: Child,
    lines: BufReader<ChildStderr>,
    seen: String,
    address: SocketAddr,
    authority: Issued,
    _folder: tempfile::TempDir,
}

impl Program {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, _) = common::issued();
        let certificate = serving(&authority, &[common::NAME.to_owned()], OffsetDateTime::now_utc()).unwrap();
        std::fs::write(folder.path().join("tls.crt"), certificate.certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), certificate.key).unwrap();
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-webhook"))
            .args(["--image", "weir:1", "--listen", &address.to_string(), "--observe", "127.0.0.1:0", "--drain", "0"])
            .args([std::ffi::OsStr::new("--certificates"), folder.path().as_os_str()])
            .env("KUBECONFIG", folder.path().join("none")) // no API server: no events, and all else
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let (mut seen, mut serving) = (String::new(), false);
        while !serving {
            let before = seen.len();
            assert_ne!(lines.read_line(&mut seen).unwrap(), 0, "{seen}");
            serving = seen[before..].contains("serving those of");
        }
        Self { child, lines, seen, address, authority, _folder: folder }
    }

    async fn client(&self) -> SendRequest<Full<Bytes>> {
        let stream = connect(self.address, &self.authority.certificate, b"h2").await.unwrap();
        let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// The most memory that it had, bytes.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let (_, rest) = status.split_once("VmHWM:").unwrap();
        rest.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Ends it; what it said.
    fn end(mut self) -> String {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.lines.read_to_string(&mut self.seen).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn it_starts_answers_and_ends() {
    let program = Program::start().await;
    let answer = program.client().await.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert!(String::from_utf8_lossy(&body(answer).await).contains("\"JSONPatch\""));
    let seen = program.end();
    assert!(seen.contains("ending in 0 s"), "{seen}");
}

/// Memory that the chart lets it have, bytes.
fn limit() -> u64 {
    let values = include_str!("../../chart/weir/values.yaml");
    let (_, of_webhook) = values.split_once("\nwebhook:").unwrap();
    let (_, limit) = of_webhook.split_once("limits: {memory: ").unwrap();
    limit.split_once("Mi}").unwrap().0.parse::<u64>().unwrap() << 20
}

#[tokio::test]
async fn the_worst_that_it_is_sent_fits_the_chart_s_limit() {
    let program = Program::start().await;
    // Three quarters of the room are bodies that do not end.
    let mut halves = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(program.address, &program.authority.certificate, b"http/1.1").await.unwrap();
        let head = format!("POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 4 << 20);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; (4 << 20) - 1]).await.unwrap();
        halves.push(stream);
    }
    // Reviews that are small, and large once they are read.
    let mut worst = review(&pod());
    worst["request"]["object"]["spec"]["volumes"] = vec![json!({}); 8_000].into();
    let worst = Bytes::from(worst.to_string());
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(program.client().await);
    }
    let answers: Vec<_> =
        clients.iter_mut().map(|client| client.send_request(post("/mutate/pod", worst.clone()))).collect();
    let mut kept = Vec::new();
    for answer in answers {
        kept.push(answer.await.unwrap());
    }
    assert!(kept.iter().all(|answer| answer.status() == StatusCode::OK), "{kept:?}");
    println!("at most {} MiB", program.peak() >> 20);
    assert!(program.peak() < limit() * 3 / 4, "{} of {}", program.peak(), limit());
}
