//! Bounds: what a client may hold, how long it may take, how many there may be.

use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, eventually, with_engines_at_once};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_handshake_has_an_end() {
    with_engines_at_once(|engine| {
        // Long enough for what a client does at once, also where the CPUs are others' for a while.
        let server = Server::start(&["--export", "m=memory:1M", "--handshake-timeout", "3s", "--io", engine]);
        // A client that has an export may be silent for any time.
        let mut idle = server.simple("m");
        let mut silent = server.connect();
        let mut half = server.connect();
        half.greet();
        half.send(&IHAVEOPT.to_be_bytes());
        let mut inside = server.connect();
        inside.greet();
        inside.send(&[&IHAVEOPT.to_be_bytes()[..], &GO.to_be_bytes(), &[0, 0, 0, 99], b"m"].concat());
        assert_eq!(silent.ends().len(), 18, "the greeting");
        assert!(half.ends().is_empty() && inside.ends().is_empty());
        assert_eq!(idle.read_simple(0, 512), [0; 512]);
        eventually("three failed", || server.stat()["failed_handshakes"] == 3);
        server.stop();
    });
}

#[test]
fn who_leaves_with_the_greeting_unread_has_only_looked() {
    with_engines_at_once(|engine| {
        let server = Server::start(&["--export", "m=memory:1M", "--io", engine]);
        let mut stream = std::os::unix::net::UnixStream::connect(server.socket()).unwrap();
        std::io::Read::read_exact(&mut stream, &mut [0]).unwrap();
        drop(stream);
        eventually("it has left", || {
            server.log().contains("left in the handshake") && server.stat()["connections"] == 0
        });
        assert_eq!(server.stat()["failed_handshakes"], 0);
        server.stop();
    });
}

#[test]
fn who_aborts_and_does_not_wait_has_left_in_order() {
    with_engines_at_once(|engine| {
        let server = Server::start(&["--export", "m=memory:1M", "--io", engine]);
        for _ in 0..20 {
            let mut client = server.connect();
            client.greet();
            client.send_option(ABORT, b"");
        }
        eventually("all have left", || {
            let now = server.stat();
            now["accepted"] == 20 && now["connections"] == 0
        });
        assert_eq!(server.stat()["failed_handshakes"], 0);
        server.stop();
    });
}

#[test]
fn few_addresses_are_enough_for_long_reads() {
    for engine in engines() {
        let most = 300_000 << 10;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: between fork and exec, the call only changes the child's limit.
        let low = |command: &mut Command| unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        };
        let folder = tempfile::tempdir().expect("a folder");
        let disk = std::fs::File::create(folder.path().join("disk")).expect("a file");
        disk.set_len(64 << 20).expect("a sparse file");
        let options = ["--export", "d=disk", "--cache", "64M", "--workers", "2", "--io", engine];
        let server = Server::spawn(folder, &options, low);
        let mut client = server.simple("d");
        for read in 0..10 {
            assert!(client.read_simple((read % 8) << 23, 8 << 20) == vec![0; 8 << 20], "with {engine}");
        }
        server.stop();
    }
}

#[test]
fn a_request_that_never_comes_whole_has_an_end() {
    with_engines_at_once(|engine| {
        let server = Server::start(&["--export", "m=memory:1M", "--client-timeout", "1s", "--io", engine]);
        let mut header = server.simple("m");
        header.send(&REQUEST.to_be_bytes());
        assert!(header.ends().is_empty());
        let mut payload = server.simple("m");
        payload.request(WRITE, 0, 0, 4096, &[1; 100]);
        assert!(payload.ends().is_empty());
        let mut skipped = server.simple("m");
        skipped.request(WRITE, 0, 1 << 30, 4096, &[1; 100]);
        assert!(skipped.ends().is_empty());
        assert_eq!(server.simple("m").read_simple(0, 4096), [0; 4096], "half a write is none");
        server.stop();
    });
}

#[test]
fn a_client_that_does_not_read_holds_bounded_memory_and_has_an_end() {
    with_engines_at_once(|engine| {
        let bounds = ["--max-request", "1M", "--max-client-memory", "2M", "--client-timeout", "2s", "--io", engine];
        let server = Server::start(&[&["--export", "m=memory:8M"][..], &bounds].concat());
        let mut lazy = server.simple("m");
        // 500 reads of 1 MiB, sent at once: one by one they would fill the socket.
        let read = [&REQUEST.to_be_bytes()[..], &[0; 20], &(1u32 << 20).to_be_bytes()].concat();
        lazy.send(&read.repeat(500));
        let mut good = server.simple("m");
        for _ in 0..50 {
            assert_eq!(good.read_simple(0, 1000), [0; 1000]);
            let used = server.stat()["heap_live_bytes"].as_u64().expect("a number");
            assert!(used < 8 << 20, "{used} bytes");
        }
        eventually("it is disconnected", || server.stat()["connections"] == 1);
        assert!(lazy.ends().len() < 500 << 20);
        assert_eq!(good.read_simple(0, 1000), [0; 1000]);
        server.stop();
    });
}

#[test]
fn clients_that_do_not_read_cannot_keep_the_memory_of_all() {
    with_engines_at_once(|engine| {
        let bounds = ["--workers", "1", "--max-request", "1M", "--max-client-memory", "1M", "--max-memory", "2M"];
        // The client that waits has to read within this time as well.
        let more = ["--client-timeout", "2s", "--io", engine, "--export", "m=memory:8M"];
        let server = Server::start(&[&bounds[..], &more].concat());
        let mut lazy: Vec<Client> = (0..6).map(|_| server.simple("m")).collect();
        for client in &mut lazy {
            for _ in 0..4 {
                client.request(READ, 0, 0, 1 << 20, b"");
            }
        }
        // It waits for its turn, which comes when they have been disconnected.
        assert_eq!(server.simple("m").read_simple(0, 1 << 20), vec![0; 1 << 20]);
        server.stop();
    });
}

/// A server with one worker and little memory, and clients that may be slow for an hour.
fn patient(engine: &str, bounds: &[&str]) -> Server {
    let options = ["--workers", "1", "--client-timeout", "1h", "--io", engine, "--export", "m=memory:64M"];
    Server::start(&[&options, bounds].concat())
}

/// Begins a write of `length` bytes, and sends the first `sent` of them.
fn begin_write(server: &Server, length: u64, sent: usize) -> Client {
    let mut client = server.simple("m");
    client.request(WRITE, 0, 0, length, &vec![1; sent]);
    client
}

#[test]
fn clients_that_promise_data_and_do_not_send_it_keep_nobody_from_anything() {
    with_engines_at_once(|engine| {
        let server = patient(engine, &["--max-request", "4M", "--max-client-memory", "4M", "--max-memory", "16M"]);
        let mut slow: Vec<Client> = (0..16).map(|_| begin_write(&server, 4 << 20, 1)).collect();
        let mut good = server.simple("m");
        for length in [512, 4096, 1 << 20] {
            assert_eq!(good.read_simple(32 << 20, length), vec![0; length]);
            assert_eq!(good.simple(WRITE, 0, 32 << 20, length as u64, &vec![0; length]), 0);
            slow.iter_mut().for_each(|client| drop(client.wire.write_all(b"x")));
        }
        assert_eq!(good.simple(FLUSH, 0, 0, 0, b""), 0);
        server.stop();
    });
}

#[test]
fn clients_that_do_not_read_leave_a_share_to_others() {
    with_engines_at_once(|engine| {
        let server = patient(engine, &["--max-request", "1M", "--max-client-memory", "64M", "--max-memory", "64M"]);
        let lazy: Vec<Client> = (0..8)
            .map(|_| {
                let mut client = server.simple("m");
                for at in 0..64 {
                    client.request(READ, 0, at << 20, 1 << 20, b"");
                }
                client
            })
            .collect();
        let mut good = server.simple("m");
        for length in [512, 4096, 100_000] {
            assert_eq!(good.read_simple(0, length), vec![0; length]);
        }
        assert_eq!(good.simple(FLUSH, 0, 0, 0, b""), 0);
        drop(lazy);
        server.stop();
    });
}

#[test]
fn who_stops_with_more_than_a_share_is_disconnected_when_others_wait() {
    with_engines_at_once(|engine| {
        let server = patient(engine, &["--max-request", "4M", "--max-client-memory", "8M", "--max-memory", "10M"]);
        eventually("the first look is over", || server.stat()["connections"] == 0);
        // Both get all the memory that their requests need, and together most of what there is.
        let stopped = [begin_write(&server, 4 << 20, 3 << 20), begin_write(&server, 4 << 20, 3 << 20)];
        assert_eq!(server.simple("m").simple(WRITE, 0, 0, 4 << 20, &vec![2; 4 << 20]), 0);
        eventually("one of them had to go", || server.stat()["connections"] == 1);
        drop(stopped);
        server.stop();
    });
}

/// A memory control group of a test's own, of version 1. It is removed with this.
struct Group(PathBuf);

impl Group {
    /// None where it cannot be made.
    fn new(name: &str, mib: u64) -> Option<Self> {
        let group = PathBuf::from(format!("/sys/fs/cgroup/memory/weir-nbd-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        let group = Self(group);
        group.set_limit(mib).ok()?;
        Some(group)
    }

    fn set_limit(&self, mib: u64) -> std::io::Result<()> {
        std::fs::write(self.0.join("memory.limit_in_bytes"), (mib << 20).to_string())
    }

    /// Starts a server inside.
    fn start(&self, folder: tempfile::TempDir, options: &[&str]) -> Server {
        let members = File::options().write(true).open(self.0.join("cgroup.procs")).expect("a group");
        // SAFETY: between fork and exec, the call only writes to a file that is open.
        Server::spawn(folder, options, |command| unsafe {
            command.pre_exec(move || (&members).write_all(b"0"));
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may not be gone for good yet.
        eventually("the group to be empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn in_a_small_group_requests_take_a_part_of_it_and_clients_do_not_end_the_server() {
    let Some(group) = Group::new("small", 64) else { return weir_testing::skip!("no v1 memory group can be made") };
    for engine in engines() {
        group.set_limit(64).expect("a limit");
        let folder = tempfile::tempdir().expect("a folder");
        File::create(folder.path().join("disk")).and_then(|disk| disk.set_len(128 << 20)).expect("a file");
        let options = ["--export", "d=disk", "--cache", "auto", "--workers", "2", "--io", engine];
        let server = group.start(folder, &options);
        let bounds = ["max_memory_bytes", "max_client_memory_bytes", "max_request_bytes", "limit_bytes"];
        let stat = server.stat();
        let found = bounds.map(|bound| stat[bound].as_u64().expect("a number") >> 20);
        assert_eq!(found, [16, 8, 4, 48], "{}", server.log());
        std::thread::scope(|scope| {
            for number in 0..4 {
                let mut client = server.simple("d");
                scope.spawn(move || {
                    let (start, length) = (number << 25, 4 << 20);
                    let data = vec![number as u8 + 1; length];
                    for at in 0..8 {
                        assert_eq!(client.simple(WRITE, 0, start + (at << 22), 4 << 20, &data), 0);
                    }
                    for at in 0..16 {
                        client.request(READ, 0, start + ((at % 8) << 22), 4 << 20, b"");
                    }
                    for _ in 0..16 {
                        assert_eq!(client.simple_reply().0, 0);
                        assert!(client.receive(length) == data);
                    }
                });
            }
        });
        group.set_limit(128).expect("a limit");
        server.signal(libc::SIGHUP);
        eventually("the limit follows", || server.stat()["limit_bytes"] == 96 << 20);
        server.stop();
    }
}

#[test]
fn what_is_locked_or_an_export_in_memory_is_beside_what_a_group_leaves() {
    let Some(group) = Group::new("held", 128) else { return weir_testing::skip!("no v1 memory group can be made") };
    let folder = tempfile::tempdir().expect("a folder");
    File::create(folder.path().join("disk")).and_then(|disk| disk.set_len(1 << 20)).expect("a file");
    let options = ["--export", "d=disk", "--export", "m=memory:64M", "--locked-memory", "32M", "--cache", "auto"];
    let server = group.start(folder, &[&options[..], &["--workers", "2"]].concat());
    let stat = server.stat();
    let found = ["max_memory_bytes", "limit_bytes"].map(|bound| stat[bound].as_u64().expect("a number") >> 20);
    assert_eq!(found, [8, 32 + 24], "{}", server.log());
    let warnings = || server.log().matches("no limit of resident memory").count();
    assert_eq!(warnings(), 0);
    // As much as is held and 4 MiB, but requests may take 8 MiB.
    group.set_limit(100).expect("a limit");
    server.signal(libc::SIGHUP);
    eventually("there is none", || server.stat()["limit_bytes"] == 0);
    assert_eq!(warnings(), 1, "{}", server.log());
    group.set_limit(160).expect("a limit");
    server.signal(libc::SIGHUP);
    eventually("there is one again", || server.stat()["limit_bytes"] == (32 + 48) << 20);
    server.stop();
}

#[test]
fn a_byte_now_and_then_is_not_enough() {
    with_engines_at_once(|engine| {
        let server = Server::start(&["--export", "m=memory:1M", "--client-timeout", "1s", "--io", engine]);
        let mut slow = begin_write(&server, 1 << 20, 1);
        eventually("it is disconnected", || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            slow.wire.write_all(b"x").is_err()
        });
        server.stop();
    });
}

#[test]
fn one_client_too_many_is_refused_and_told_of_once() {
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:1M", "--max-connections", "3", "--io", engine]);
        eventually("the first look is over", || server.stat()["connections"] == 0);
        let mut clients: Vec<Client> = (0..3).map(|_| server.simple("m")).collect();
        for _ in 0..5 {
            assert!(server.connect().ends().is_empty());
        }
        assert_eq!(server.log().matches("more are refused").count(), 1, "{}", server.log());
        assert_eq!(clients[0].read_simple(0, 512), [0; 512]);
        clients.pop();
        eventually("there is room", || server.stat()["connections"] == 2);
        assert_eq!(server.simple("m").read_simple(0, 512), [0; 512]);
        assert_eq!(server.stat()["refused"], 5);
        server.stop();
    }
}

#[test]
fn few_descriptors_mean_few_clients_and_no_more() {
    for engine in engines() {
        let limit = libc::rlimit { rlim_cur: 60, rlim_max: 60 };
        // SAFETY: between fork and exec, the call only changes the child's limit.
        let low = |command: &mut Command| unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        };
        let options = ["--export", "m=memory:1M", "--workers", "1", "--io", engine];
        let server = Server::spawn(tempfile::tempdir().expect("a folder"), &options, low);
        assert_eq!(server.log().matches("the limit of 60 open files allows 23 clients, not 10000").count(), 1);
        eventually("the first look is over", || server.stat()["connections"] == 0);
        let mut clients: Vec<Client> = (0..23).map(|_| server.simple("m")).collect();
        for _ in 0..100 {
            assert!(server.connect().ends().is_empty());
        }
        for client in &mut clients {
            assert_eq!(client.read_simple(0, 512), [0; 512]);
        }
        assert_eq!(server.stat()["connections"], 23, "the control socket still has descriptors");
        server.stop();
    }
}

/// The limit of open files of this process, raised as far as it may be.
fn descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the structure for their time alone.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_max
}

/// As many as are allowed are served and take little, and one more is refused.
fn serve(most: usize) {
    if descriptors() < most as u64 + 300 {
        return weir_testing::skip!("the limit of open files is {}", descriptors());
    }
    for engine in engines() {
        let options = ["--export", "m=memory:1M", "--io", engine, "--max-connections", &most.to_string()];
        let server = Server::start(&options);
        eventually("the first look is over", || server.stat()["connections"] == 0);
        let mut clients: Vec<Client> = (0..most)
            .map(|_| {
                let mut client = Client::new(UnixStream::connect(server.socket()).expect("the server listens"));
                client.greet();
                client.go("m");
                client
            })
            .collect();
        assert_eq!(server.stat()["connections"], most);
        for client in clients.iter_mut().step_by(97) {
            assert_eq!(client.read_simple(0, 512), [0; 512]);
        }
        // A client and its buffer: the heap's own pages included.
        let used = server.stat()["heap_live_bytes"].as_u64().expect("a number");
        assert!(used < most as u64 * 8192, "{} bytes a client", used / most as u64);
        assert!(server.connect().ends().is_empty(), "one more is refused");
        drop(clients);
        eventually("all are gone", || server.stat()["connections"] == 0);
        server.stop();
    }
}

#[test]
fn a_thousand_clients_are_served() {
    serve(1000);
}

#[test]
#[ignore = "nightly: ten thousand handshakes, twice"]
fn ten_thousand_clients_are_served() {
    serve(10_000);
}
