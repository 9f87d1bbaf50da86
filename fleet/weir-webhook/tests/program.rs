//! The program itself: started, asked, ended by a signal.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::{body, connect, pod, post, review};
use hyper_util::rt::{TokioExecutor, TokioIo};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use weir_webhook::certificates::issue::serving;

#[tokio::test]
async fn it_starts_answers_and_ends() {
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
    let stream = connect(address, &authority.certificate, b"h2").await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer = client.send_request(post("/mutate/pod", review(&pod()).to_string())).await.unwrap();
    assert!(String::from_utf8_lossy(&body(answer).await).contains("\"JSONPatch\""));

    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    lines.read_to_string(&mut seen).unwrap();
    assert!(child.wait().unwrap().success(), "{seen}");
    assert!(seen.contains("ending in 0 s"), "{seen}");
}
