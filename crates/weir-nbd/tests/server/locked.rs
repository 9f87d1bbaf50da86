//! Locked memory: blocks and requests lie there first, and what is served does not depend on it.

use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, eventually, pattern};

const MIB: usize = 1 << 20;
const SIZE: usize = 16 * MIB;
const LOCKED: u64 = 4 << 20;

/// Whether so much may be locked here.
fn is_possible() -> bool {
    let is_possible = weir::zone::Zone::locked(LOCKED as usize).is_ok();
    if !is_possible {
        weir_testing::skip!("4 MiB cannot be locked");
    }
    is_possible
}

fn used(server: &Server) -> u64 {
    server.stat()["locked"]["used_bytes"].as_u64().expect("a number")
}

/// Writes all of the export anew, a MiB at a time; what is read has to be what is there.
fn use_all(server: &Server, data: &mut [u8], round: u8) {
    let mut client = server.simple("f");
    for at in (0..SIZE).step_by(MIB) {
        assert!(client.read_simple(at as u64, MIB) == data[at..at + MIB], "round {round}, at {at}");
        data[at..at + MIB].iter_mut().for_each(|byte| *byte = byte.wrapping_add(round));
        assert_eq!(client.simple(WRITE, 0, at as u64, MIB as u64, &data[at..at + MIB]), 0);
    }
    assert_eq!(client.simple(FLUSH, 0, 0, 0, &[]), 0);
}

#[test]
fn cached_blocks_and_requests_lie_in_locked_memory_first() {
    if !is_possible() {
        return;
    }
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = pattern(9, SIZE);
        std::fs::write(folder.path().join("disk"), &data).expect("a file");
        let options = ["--export", "f=disk", "--workers", "1", "--io", engine, "--cache", "64M"];
        let more = ["--locked-memory", "4M", "--squeeze-ms", "0", "--write-back"];
        let server = Server::start_in(folder, &[&options[..], &more].concat());
        assert_eq!(server.stat()["locked"]["bytes"], LOCKED);
        (1..=2).for_each(|round| use_all(&server, &mut data, round));
        // What requests had of it when the blocks came is free again, a moment after the last reply. The rest of
        // the blocks lie elsewhere.
        eventually("requests give their part of the locked memory back", || used(&server) < LOCKED);
        let (used, blocks) = (used(&server), server.stat()["cache"]["blocks"].as_u64().expect("a number"));
        assert!(used > LOCKED / 2, "{engine}: {used} bytes");
        assert_eq!(blocks as usize * 4096, SIZE, "{engine}:\n{}", server.log());
        assert!(std::fs::read(server.path("disk")).expect("the file") == data, "what was written is there");
        server.stop();
    }
}

#[test]
fn what_cannot_be_locked_is_said_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let command = ["serve", "--export", "m=memory:1M", "--locked-memory", "64T", "--control", "none"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir-nbd")).args(command).current_dir(&folder).output();
    let output = output.expect("the server's program");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("locked-memory"), "{output:?}");
}
