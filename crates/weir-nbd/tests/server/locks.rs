//! Locks of volumes.

use crate::storage::sparse;
use crate::support::refuse_second;
use crate::support::server::Server;
use crate::support::wire::*;
use std::process::Command;

/// How a server ends that cannot start beside another, and what it says.
fn second(exports: &[&str]) -> (Option<i32>, String) {
    let options = ["20", env!("CARGO_BIN_EXE_weir-nbd"), "serve", "--listen", "127.0.0.1:0", "--control", "none"];
    let mut command = Command::new("timeout");
    let output = command.args(options).args(["--log", "error"]).args(exports).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_cache_that_is_only_read_and_a_writer_are_not_beside_each_other() {
    let is_refused = |exports: &[&str]| {
        let (status, said) = second(exports);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("'d'") && said.contains("another program"), "{said}");
    };
    let disk = |server: &Server| format!("d={}", server.path("disk").display());
    let writer = Server::start_in(sparse(1 << 20), &["--export", "d=disk"]);
    is_refused(&["--read-only-export", &disk(&writer), "--cache", "4M"]);
    // Without a cache it sees what the other writes.
    Server::start(&["--read-only-export", &disk(&writer)]).stop();
    writer.stop();
    let reader = Server::start_in(sparse(1 << 20), &["--read-only-export", "d=disk", "--cache", "4M"]);
    is_refused(&["--export", &disk(&reader)]);
    is_refused(&["--export", &disk(&reader), "--cache", "4M"]);
    Server::start(&["--read-only-export", &disk(&reader), "--cache", "4M"]).stop();
    reader.stop();
    // One server reads and writes it, in whichever order its exports come.
    for exports in
        [["--read-only-export", "r=disk", "--export", "d=disk"], ["--export", "d=disk", "--read-only-export", "r=disk"]]
    {
        let both = Server::start_in(sparse(1 << 20), &[&exports[..], &["--cache", "4M"]].concat());
        is_refused(&["--read-only-export", &disk(&both), "--cache", "4M"]);
        is_refused(&["--export", &disk(&both)]);
        both.stop();
    }
}

#[test]
fn two_servers_with_caches_do_not_write_one_volume() {
    let disk = |server: &Server| format!("d={}", server.path("disk").display());
    let second = |export: &str, cache: &[&str]| second(&[&["--export", export], cache].concat());
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
