//! TLS: with certificates, for all exports or some, and what an attacker in the middle cannot do.

use crate::support::client::{Client, export_request};
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, has, pattern};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tempfile::TempDir;

/// A folder with the files of an authority, a server and a client.
struct Keys {
    folder: TempDir,
    roots: RootCertStore,
    client: (rustls::pki_types::CertificateDer<'static>, Vec<u8>),
}

fn keys() -> Keys {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = key();
    let ca = params.self_signed(&ca_key).expect("an authority");
    let issuer = rcgen::Issuer::new(params, ca_key);
    let signed = |name: &str, key: &rcgen::KeyPair| {
        let params = rcgen::CertificateParams::new(vec![name.into()]).expect("parameters");
        params.signed_by(key, &issuer).expect("a certificate")
    };
    let (server_key, client_key) = (key(), key());
    write("ca.pem", ca.pem());
    // The name that libnbd gives it.
    write("ca-cert.pem", ca.pem());
    write("cert.pem", signed("localhost", &server_key).pem());
    write("key.pem", server_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).expect("an authority");
    let client = (signed("client", &client_key).der().clone(), client_key.serialize_der());
    Keys { folder, roots, client }
}

const TLS: [&str; 4] = ["--tls-certificate", "cert.pem", "--tls-key", "key.pem"];

/// A connection with TLS, after its greeting and handshake.
fn secured(server: &Server, roots: &RootCertStore, own: Option<&Keys>) -> std::io::Result<Client> {
    let socket = UnixStream::connect(server.socket())?;
    socket.set_read_timeout(Some(crate::support::PATIENCE))?;
    let mut plain = Client::over(socket.try_clone()?);
    plain.greet();
    assert_eq!(plain.outcome(STARTTLS, b""), ACK);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let builder = builder.with_root_certificates(roots.clone());
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(keys) => {
            let key = rustls::pki_types::PrivateKeyDer::try_from(keys.client.1.clone()).expect("a key");
            builder.with_client_auth_cert(vec![keys.client.0.clone()], key).expect("a certificate")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut stream = StreamOwned::new(session, socket);
    stream.flush()?;
    Ok(Client::over(stream))
}

#[test]
fn data_goes_through_tls_whole() {
    for engine in engines() {
        let Keys { folder, roots, .. } = keys();
        let options = [&TLS[..], &["--export", "m=memory:8M", "--io", engine]].concat();
        let server = Server::start_in(folder, &options);
        let mut client = secured(&server, &roots, None).expect("a session");
        client.structured();
        client.go("m");
        let data = pattern(11, 3 << 20);
        assert_eq!(client.error(WRITE, 0, 12_345, 3 << 20, &data), 0);
        assert!(client.read(0, 12_345, 3 << 20) == data);
        for number in 0..100 {
            client.request_as(number, READ, DF, 12_345 + number * 1000, 1000, b"");
        }
        for _ in 0..100 {
            let chunk = client.chunk();
            let at = chunk.cookie as usize * 1000;
            assert!(chunk.payload[8..] == data[at..at + 1000]);
        }
        client.request(DISC, 0, 0, 0, b"");
        assert!(client.ends().is_empty(), "TLS ends in order");
        // TLS is offered, not required.
        assert_eq!(server.simple("m").read_simple(12_345, 100), data[..100]);
        server.stop();
    }
}

#[test]
fn libnbd_speaks_tls_with_it() {
    if !has("nbdcopy") {
        return;
    }
    let Keys { folder, .. } = keys();
    let data = pattern(13, 5 << 20);
    std::fs::write(folder.path().join("data"), &data).expect("a file");
    let options = ["--tls-required", "--read-only-export", "d=data", "--listen", "127.0.0.1:0"];
    let server = Server::start_in(folder, &[&TLS[..], &options].concat());
    let log = server.log();
    let port = log.split("listening on 127.0.0.1:").nth(1).and_then(|rest| rest.lines().next()).expect("a port");
    let uri = format!("nbds://localhost:{port}/d?tls-certificates={}", server.folder.path().display());
    let back = server.path("back");
    let copied =
        std::process::Command::new("timeout").args(["60", "nbdcopy", &uri]).arg(&back).output().expect("it runs");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert!(std::fs::read(back).expect("the copy") == data);
    server.stop();
}

#[test]
fn a_server_that_requires_tls_does_nothing_without_it() {
    let Keys { folder, roots, .. } = keys();
    let server = Server::start_in(folder, &[&TLS[..], &["--tls-required", "--export", "m=memory:1M"]].concat());
    let mut client = server.connect();
    client.greet();
    for option in [LIST, INFO, GO, STRUCTURED, EXTENDED, LIST_META, SET_META, 4711] {
        assert_eq!(client.outcome(option, b""), ERR_TLS_REQD);
    }
    assert_eq!(client.outcome(STARTTLS, b"x"), ERR_INVALID);
    client.send_option(EXPORT_NAME, b"m");
    assert!(client.ends().is_empty());
    let mut client = secured(&server, &roots, None).expect("a session");
    assert_eq!(client.outcome(STARTTLS, b""), ERR_INVALID, "once is enough");
    client.go("m");
    assert_eq!(client.read_simple(0, 512), [0; 512]);
}

#[test]
fn an_export_may_be_for_tls_alone() {
    let Keys { folder, roots, .. } = keys();
    let file = "[[export]]\nname = 'open'\nmemory = '1M'\n[[export]]\nname = 'secret'\nmemory = '2M'\ntls = true\n\
                [tls]\ncertificate = 'cert.pem'\nkey = 'key.pem'\n";
    std::fs::write(folder.path().join("config"), file).expect("a file");
    let server = Server::start_in(folder, &["--config", "config"]);
    let mut client = server.connect();
    client.greet();
    assert_eq!(client.option(LIST, b"").len(), 2, "the open one and the end");
    assert_eq!(client.outcome(INFO, &export_request("secret", &[])), ERR_TLS_REQD);
    assert_eq!(client.outcome(GO, &export_request("secret", &[])), ERR_TLS_REQD);
    client.send_option(EXPORT_NAME, b"secret");
    assert!(client.ends().is_empty());
    let mut client = secured(&server, &roots, None).expect("a session");
    assert_eq!(client.option(LIST, b"").len(), 3);
    client.go("secret");
}

#[test]
fn what_was_said_in_the_clear_counts_for_nothing_after_starttls() {
    let Keys { folder, roots, .. } = keys();
    let server = Server::start_in(folder, &[&TLS[..], &["--export", "m=memory:1M"]].concat());
    // Structured replies, put in before the client's own STARTTLS, do not change its replies.
    let socket = UnixStream::connect(server.socket()).expect("the server listens");
    let mut plain = Client::new(socket.try_clone().expect("a socket"));
    plain.greet();
    plain.structured();
    assert_eq!(plain.outcome(STARTTLS, b""), ACK);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut client = Client::over(StreamOwned::new(session, socket));
    client.go("m");
    assert_eq!(client.read_simple(0, 512), [0; 512], "the reply is simple");
    // Options that are sent along with STARTTLS are no options: they are taken for TLS, and fail as that.
    let mut client = server.connect();
    client.greet();
    let option = |option: u32| [&IHAVEOPT.to_be_bytes()[..], &option.to_be_bytes(), &[0; 4]].concat();
    client.send(&[option(STARTTLS), option(STRUCTURED), option(LIST)].concat());
    assert_eq!(client.option_reply(STARTTLS).0, ACK);
    let rest = client.ends();
    assert!(rest.len() < 20, "an alert at most: {rest:?}");
}

#[test]
fn clients_need_a_certificate_where_an_authority_is_given() {
    let own = keys();
    let Keys { folder, roots, client } = keys();
    let own = Keys { folder: own.folder, roots: roots.clone(), client };
    let options = [&TLS[..], &["--tls-client-ca", "ca.pem", "--export", "m=memory:1M"]].concat();
    let server = Server::start_in(folder, &options);
    let mut client = secured(&server, &roots, Some(&own)).expect("a session");
    client.go("m");
    // In TLS 1.3 the client hears of it with its first answer.
    let mut client = secured(&server, &roots, None).expect("its own side is done");
    let _ = client.wire.write_all(&[&IHAVEOPT.to_be_bytes()[..], &LIST.to_be_bytes(), &[0; 4]].concat());
    let _ = client.wire.flush();
    assert!(client.wire.read_exact(&mut [0; 20]).is_err(), "nothing without a certificate");
    let other = keys();
    let mut client = secured(&server, &roots, Some(&other)).expect("its own side is done");
    let _ = client.wire.write_all(&[&IHAVEOPT.to_be_bytes()[..], &LIST.to_be_bytes(), &[0; 4]].concat());
    assert!(client.wire.read_exact(&mut [0; 20]).is_err(), "nor with that of another authority");
    // Nor without TLS.
    let mut client = server.connect();
    client.greet();
    assert_eq!(client.outcome(LIST, b""), ERR_TLS_REQD);
    assert_eq!(client.outcome(GO, &export_request("m", &[])), ERR_TLS_REQD);
    client.send_option(EXPORT_NAME, b"m");
    assert!(client.ends().is_empty());
    server.stop();
}

#[test]
fn a_stop_calls_no_client_with_tls_lost() {
    let Keys { folder, roots, .. } = keys();
    let mut server = Server::start_in(folder, &[&TLS[..], &["--export", "m=memory:1M"]].concat());
    let mut client = secured(&server, &roots, None).expect("a session");
    client.go("m");
    assert_eq!(client.read_simple(0, 512), [0; 512]);
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
    let log = server.log();
    assert!(log.contains("disconnected, as the server stops") && !log.contains("lost"), "{log}");
}

#[test]
fn garbage_for_tls_ends_the_session_and_only_that_one() {
    let Keys { folder, roots, .. } = keys();
    let server = Server::start_in(folder, &[&TLS[..], &["--export", "m=memory:1M"]].concat());
    for seed in 0..20 {
        let mut client = server.connect();
        client.greet();
        assert_eq!(client.outcome(STARTTLS, b""), ACK);
        let _ = client.wire.write_all(&pattern(seed, 3000));
        client.ends();
    }
    secured(&server, &roots, None).expect("a session").go("m");
    server.stop();
}

#[test]
fn certificates_that_are_none_are_refused_in_one_line() {
    let Keys { folder, .. } = keys();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (certificate, key, why) in [
        ("nothing.pem", "key.pem", "nothing.pem: "),
        ("key.pem", "key.pem", "key.pem: no certificate in it"),
        ("cert.pem", "cert.pem", "cert.pem: no private key in it"),
    ] {
        let (certificate, key) = (at(certificate), at(key));
        let options = ["serve", "--log", "error", "--export", "m=memory:1M", "--tls-certificate", &certificate];
        let output = Server::run(&[&options[..], &["--tls-key", &key]].concat());
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}
