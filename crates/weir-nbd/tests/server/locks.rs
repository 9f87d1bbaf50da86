//! Locks of volumes.

use crate::storage::sparse;
use crate::support::refuse_second;
use crate::support::server::Server;
use crate::support::wire::*;
use std::process::Command;

#[test]
fn two_servers_with_caches_do_not_write_one_volume() {
    let disk = |server: &Server| format!("d={}", server.path("disk").display());
    let second = |export: &str, cache: &[&str]| {
        let options = ["20", env!("CARGO_BIN_EXE_weir-nbd"), "serve", "--listen", "127.0.0.1:0", "--control", "none"];
        let mut command = Command::new("timeout");
        command.args(options).args(["--log", "error", "--export", export]).args(cache);
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let first = Server::start_in(sparse(1 << 20), &["--export", "d=disk", "--export", "e=disk", "--cache", "4M"]);
    for cache in [&[][..], &["--cache", "4M"]] {
        let (status, said) = second(&disk(&first), cache);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("'d'") && said.contains("another program") && said.lines().count() == 1, "{said}");
    }
    first.stop();
    // Without caches they see each other's data.
    let first = Server::start_in(sparse(1 << 20), &["--export", "d=disk"]);
    let other = Server::start(&["--export", &disk(&first)]);
    assert_eq!(first.structured("d").error(WRITE, 0, 0, 3, b"abc"), 0);
    assert_eq!(other.structured("d").read(0, 0, 3), b"abc");
    assert_eq!(second(&disk(&first), &["--cache", "4M"]).0, Some(1));
    other.stop();
    first.stop();
}

#[test]
fn a_volume_without_locks_is_served_with_a_warning() {
    let refused = |command: &mut Command| refuse_second(command, libc::SYS_fcntl, libc::F_OFD_SETLK, libc::ENOLCK);
    for (cache, warnings) in [(&[][..], 0), (&["--cache", "4M"], 1)] {
        let server = Server::spawn(sparse(1 << 20), &[&["--export", "d=disk"], cache].concat(), refused);
        let log = server.log();
        let is_it = |line: &&str| line.contains("WARN") && line.contains("disk: no lock");
        assert_eq!(log.lines().filter(is_it).count(), warnings, "{log}");
        assert_eq!(server.structured("d").error(WRITE, 0, 0, 3, b"abc"), 0);
        server.stop();
    }
}
