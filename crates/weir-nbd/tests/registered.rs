//! Registered buffers: direct I/O by io_uring's fixed buffers, what memory pressure and a limit do to them.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use support::server::Server;
use support::wire::*;
use support::{engines, eventually, pattern};

const MIB: usize = 1 << 20;
/// Bytes of the export.
const SIZE: usize = 32 * MIB;

/// Whether there is what these tests need: io_uring, and direct I/O where temporary files are.
fn is_possible() -> bool {
    if !engines().contains(&"uring") {
        return false;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    let found = rustix::fs::fstatfs(file.as_file()).expect("a file system").f_type;
    // tmpfs and overlayfs on it: what is in memory is not read past it.
    if found == 0x0102_1994 {
        weir_testing::skip!("temporary files are in memory here");
        return false;
    }
    true
}

fn registered(server: &Server) -> u64 {
    server.stat()["pools"]["registered_pages"].as_u64().expect("a number")
}

/// A server of a file of [`SIZE`] bytes, with a cache so small that reads go to the file.
fn server(options: &[&str], change: impl FnOnce(&mut std::process::Command)) -> (Server, Vec<u8>) {
    try_server(options, change).unwrap_or_else(|log| panic!("the server ended:\n{log}"))
}

fn try_server(options: &[&str], change: impl FnOnce(&mut std::process::Command)) -> Result<(Server, Vec<u8>), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let data = pattern(7, SIZE);
    let file = folder.path().join("disk");
    std::fs::write(&file, &data).expect("a file");
    for path in [folder.path(), &file] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("own files");
    }
    let all = ["--export", "f=disk", "--workers", "1", "--io", "uring", "--cache", "1M"];
    Ok((Server::try_spawn(folder, &[&all, options].concat(), change)?, data))
}

/// Reads all of the export, and writes it anew, a MiB at a time; what is read has to be what is there.
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
fn direct_io_uses_registered_buffers_and_quiet_ones_are_given_up() {
    if !is_possible() {
        return;
    }
    // Pressure from elsewhere on the machine does not count.
    let (server, mut data) = server(&["--registered-buffers", "true", "--squeeze-ms", "0"], |_| {});
    assert_eq!(registered(&server), 0, "nothing is registered for a server that is not used");
    use_all(&server, &mut data, 1);
    let mut client = server.simple("f");
    let mut reads_register = || {
        eventually("a read registers its run", || {
            // A cache of 1 MiB has none of it any more.
            for at in [0, 8 * MIB] {
                assert!(client.read_simple(at as u64, MIB) == data[at..at + MIB]);
            }
            (256..=1024).contains(&registered(&server))
        });
    };
    reads_register();
    eventually("quiet ones are given up", || registered(&server) == 0);
    reads_register();
    let file = std::fs::read(server.path("disk")).expect("the file");
    assert!(file == data, "what was written is there");
    server.stop();
}

#[test]
fn memory_pressure_empties_the_slots_and_no_request_is_hurt() {
    if !is_possible() {
        return;
    }
    // Below what the server has in use: pressure comes again and again.
    let (server, mut data) = server(&["--registered-buffers", "true", "--limit", "2M"], |_| {});
    let mut seen = 0;
    for round in 1..=8 {
        use_all(&server, &mut data, round);
        seen = seen.max(registered(&server));
    }
    eventually("they are given up, also without a request", || registered(&server) == 0);
    let pools = server.stat()["pools"].clone();
    assert!(pools["idle_pages"].as_u64().is_some());
    let file = std::fs::read(server.path("disk")).expect("the file");
    assert!(file == data, "what was written is there ({seen} pages were registered)");
    server.stop();
}

#[test]
fn where_the_kernel_refuses_requests_use_plain_memory() {
    if !is_possible() {
        return;
    }
    let with_little = |command: &mut std::process::Command| {
        // SAFETY: between fork and exec: a system call, which reads a value of this closure's.
        unsafe {
            command.pre_exec(|| {
                // Enough for the ring itself, and less than a request's MiB.
                let little = libc::rlimit { rlim_cur: 900 << 10, rlim_max: 900 << 10 };
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
    let mut started = None;
    // What all servers of this user have locked counts, also for a while after they ended.
    eventually("this user's other rings leave room for one", || {
        started = try_server(&["--registered-buffers", "true"], with_little)
            .inspect_err(|log| assert!(log.contains("io_uring is refused: Cannot allocate memory"), "{log}"))
            .ok();
        started.is_some()
    });
    let (server, mut data) = started.expect("a server");
    use_all(&server, &mut data, 1);
    assert_eq!(registered(&server), 0);
    assert!(server.log().contains("the kernel registers no more buffers"), "{}", server.log());
    use_all(&server, &mut data, 2);
    server.stop();
}

#[test]
fn they_are_off_unless_asked_for_and_not_used_without_direct_io() {
    if !is_possible() {
        return;
    }
    let (off, mut data) = server(&[], |_| {});
    use_all(&off, &mut data, 1);
    assert_eq!(registered(&off), 0);
    off.stop();
    let plain =
        Server::start(&["--export", "m=memory:64M", "--io", "uring", "--cache", "1M", "--registered-buffers", "true"]);
    let mut client = plain.simple("m");
    assert_eq!(client.simple(WRITE, 0, 0, MIB as u64, &vec![1; MIB]), 0);
    assert_eq!(registered(&plain), 0);
    plain.stop();
}
