//! Locked memory: blocks and requests lie there first, and what is served does not depend on it.

use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, eventually, pattern};
use rustix::process::{Resource, getrlimit};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

const MIB: usize = 1 << 20;
const SIZE: usize = 16 * MIB;
const LOCKED: u64 = 4 << 20;
/// Enough for one of many workers to register the locked memory, and not for all.
const LITTLE: u64 = LOCKED + LOCKED / 2;

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

/// Registered buffers of the server's rings.
fn registers(server: &Server) -> usize {
    let folder = format!("/proc/{}/fdinfo", server.pid());
    let all = std::fs::read_dir(folder).expect("the server's descriptors");
    let buffers = |text: String| {
        let count = text.lines().find_map(|line| line.strip_prefix("UserBufs:"))?;
        count.trim().parse::<usize>().ok()
    };
    // A descriptor may be closed meanwhile.
    all.filter_map(|one| std::fs::read_to_string(one.ok()?.path()).ok().and_then(buffers)).sum()
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
        for registers_it in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut data = pattern(9, SIZE);
            std::fs::write(folder.path().join("disk"), &data).expect("a file");
            let options = ["--export", "f=disk", "--workers", "1", "--io", engine, "--cache", "64M"];
            let asked = registers_it.to_string();
            let more = ["--locked-memory", "4M", "--registered-buffers", &asked, "--squeeze-ms", "0", "--write-back"];
            let server = Server::start_in(folder, &[&options[..], &more].concat());
            assert_eq!(server.stat()["locked"]["bytes"], LOCKED);
            assert_eq!(
                registers(&server),
                usize::from(registers_it && engine == "uring"),
                "{engine}\n{}",
                server.log()
            );
            (1..=2).for_each(|round| use_all(&server, &mut data, round));
            // What requests had of it when the blocks came is free again, a moment after the last reply. The rest of
            // the blocks lie elsewhere.
            eventually("requests give their part of the locked memory back", || used(&server) < LOCKED);
            let (used, blocks) = (used(&server), server.stat()["cache"]["blocks"].as_u64().expect("a number"));
            assert!(used > LOCKED / 2, "{engine}, registers {registers_it}: {used} bytes");
            assert_eq!(blocks as usize * 4096, SIZE, "{engine}, registers {registers_it}:\n{}", server.log());
            assert!(std::fs::read(server.path("disk")).expect("the file") == data, "what was written is there");
            server.stop();
        }
    }
}

/// The locked memory counts for the process, and what its rings register for the user.
#[test]
fn what_the_kernel_does_not_register_is_used_as_plain_memory() {
    if !is_possible() || !engines().contains(&"uring") {
        return;
    }
    if getrlimit(Resource::Memlock).maximum.is_some_and(|most| most < LITTLE) {
        weir_testing::skip!("less than 6 MiB can be locked");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut data, file) = (pattern(7, SIZE), folder.path().join("disk"));
    std::fs::write(&file, &data).expect("a file");
    for path in [folder.path(), &file] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("own files");
    }
    let with_little = |command: &mut std::process::Command| {
        // SAFETY: between fork and exec: a system call, which reads a value of this closure's.
        unsafe {
            command.pre_exec(|| {
                let little = libc::rlimit { rlim_cur: LITTLE, rlim_max: LITTLE };
                match libc::setrlimit(libc::RLIMIT_MEMLOCK, &little) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        // SAFETY: takes and changes nothing.
        if unsafe { libc::geteuid() } == 0 {
            // Root may lock as much as it likes.
            command.uid(65_534).gid(65_534);
        }
    };
    let options = ["--export", "f=disk", "--workers", "8", "--io", "uring", "--cache", "1M"];
    let more = ["--locked-memory", "4M", "--registered-buffers", "true"];
    let server = Server::spawn(folder, &[&options[..], &more].concat(), with_little);
    assert!(server.log().contains("the locked memory is not registered"), "{}", server.log());
    // Clients go to the workers in turn.
    (1..=8).for_each(|round| use_all(&server, &mut data, round));
    assert!(std::fs::read(server.path("disk")).expect("the file") == data, "what was written is there");
    server.stop();
}

#[test]
fn that_there_is_nothing_to_register_is_said() {
    let server = Server::start(&["--export", "m=memory:1M", "--cache", "1M", "--registered-buffers", "true"]);
    assert!(server.log().contains("registered-buffers: there is no locked memory"), "{}", server.log());
    server.stop();
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
