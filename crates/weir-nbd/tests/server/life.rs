//! Start, reload, stop, statistics; sockets and signals.

use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, eventually, refuse};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[test]
fn a_stop_finishes_what_is_in_flight_and_keeps_what_was_acknowledged() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("disk"), vec![0; 1 << 20]).expect("a file");
        let mut server = Server::start_in(folder, &["--export", "d=disk", "--io", engine]);
        let mut client = server.simple("d");
        for block in 0..256u64 {
            client.request_as(block, WRITE, 0, block * 4096, 4096, &[(block as u8).wrapping_add(1); 4096]);
        }
        server.signal(libc::SIGTERM);
        let replies = client.ends();
        assert!(server.wait().success(), "{}", server.log());
        let disk = std::fs::File::open(server.path("disk")).expect("the file");
        assert_eq!(replies.len() % 16, 0, "no reply is cut off");
        for reply in replies.chunks(16) {
            assert_eq!(reply[4..8], [0; 4]);
            let block = u64::from_be_bytes(reply[8..].try_into().expect("a cookie"));
            let mut found = [0; 4096];
            disk.read_exact_at(&mut found, block * 4096).expect("the block");
            assert_eq!(found, [(block as u8).wrapping_add(1); 4096]);
        }
        assert!(!server.socket().exists() && !server.path("c").exists(), "sockets are removed");
    }
}

#[test]
fn a_stop_does_not_wait_for_clients_that_do_nothing() {
    for engine in engines() {
        let mut server = Server::start(&["--export", "m=memory:1M", "--stop-timeout", "1h", "--io", engine]);
        let mut clients = [server.simple("m"), server.connect(), server.connect()];
        clients[2].greet();
        clients[2].send(&[1, 2, 3]);
        server.signal(libc::SIGTERM);
        assert!(server.wait().success(), "within less than the hour that it may take");
        clients.iter_mut().for_each(|client| drop(client.ends()));
    }
}

#[test]
fn a_stop_does_not_wait_for_a_client_in_its_handshake_that_does_not_read() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let export = format!("[[export]]\nname = 'm'\nmemory = '1M'\ndescription = '{}'\n", "a".repeat(4000));
        std::fs::write(folder.path().join("config"), export).expect("a file");
        let options = ["--config", "config", "--handshake-timeout", "1h", "--stop-timeout", "1h", "--io", engine];
        let mut server = Server::start_in(folder, &options);
        let lazy = UnixStream::connect(server.socket()).expect("it listens");
        let mut client = Client::new(lazy.try_clone().expect("a descriptor"));
        client.greet();
        client.send(&[&IHAVEOPT.to_be_bytes()[..], &LIST.to_be_bytes(), &[0; 4]].concat().repeat(1000));
        eventually("the server waits for it to read", || {
            let unread = || rustix::io::ioctl_fionread(&lazy).expect("a socket");
            let before = unread();
            std::thread::sleep(std::time::Duration::from_millis(50));
            before > 64 << 10 && unread() == before
        });
        server.signal(libc::SIGTERM);
        assert!(server.wait().success(), "within less than the hour that it may take: {}", server.log());
    }
}

#[test]
fn a_stop_has_an_end_even_if_a_client_does_not_read() {
    for engine in engines() {
        let mut server = Server::start(&["--export", "m=memory:64M", "--stop-timeout", "300ms", "--io", engine]);
        let mut lazy = server.simple("m");
        lazy.request(READ, 0, 0, 32 << 20, b"");
        eventually("it is being served", || server.stat()["exports"][0]["reads"] == 1);
        server.signal(libc::SIGINT);
        assert!(server.wait().success());
        assert!(server.log().contains("before all was answered"));
    }
}

#[test]
fn a_stop_gives_up_the_names_of_its_sockets_at_its_beginning() {
    let mut server = Server::start(&["--export", "m=memory:64M", "--stop-timeout", "1h"]);
    let mut lazy = server.simple("m");
    lazy.request(READ, 0, 0, 32 << 20, b"");
    eventually("it is being served", || server.stat()["exports"][0]["reads"] == 1);
    server.signal(libc::SIGTERM);
    eventually("the names have gone", || !server.socket().exists() && !server.path("c").exists());
    assert!(server.is_running(), "{}", server.log());
    // Not as the echo of the first signal.
    std::thread::sleep(std::time::Duration::from_millis(200));
    server.signal(libc::SIGTERM);
    assert!(server.wait().success(), "{}", server.log());
    assert!(server.log().contains("before all was answered"));
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_server() {
    // A full disk, and a reader that has gone.
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    for log in [full().into(), Stdio::from(writer)] {
        let server = Server::spawn(tempfile::tempdir().expect("a folder"), &["--export", "m=memory:1M"], |command| {
            command.stderr(log);
        });
        let mut client = server.simple("m");
        assert_eq!(client.simple(WRITE, 0, 0, 3, b"abc"), 0);
        assert_eq!(server.simple("m").read_simple(0, 3), b"abc");
        server.stop();
    }
    let mut mistaken = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
    assert_eq!(mistaken.arg("serve").stderr(full()).status().expect("it runs").code(), Some(1));
}

#[test]
fn a_reload_changes_exports_for_those_who_come_later() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config");
        let export = |name: &str, more: &str| format!("[[export]]\nname = '{name}'\nmemory = '1M'\n{more}\n");
        std::fs::write(&config, export("a", "") + &export("b", "")).expect("a file");
        let server = Server::start_in(folder, &["--config", "config", "--io", engine]);
        let (mut a, mut b) = (server.simple("a"), server.simple("b"));
        assert_eq!(a.simple(WRITE, 0, 0, 3, b"abc"), 0);
        assert_eq!(b.simple(WRITE, 0, 0, 3, b"xyz"), 0);
        std::fs::write(&config, export("b", "") + &export("c", "read-only = true")).expect("a file");
        server.signal(libc::SIGHUP);
        eventually("it is read again", || server.log().contains("read again"));
        assert_eq!(server.simple("c").simple(WRITE, 0, 0, 1, b"x"), EPERM);
        assert_eq!(server.simple("b").read_simple(0, 3), b"xyz", "what stays is the same");
        assert_eq!(a.read_simple(0, 3), b"abc", "a session keeps what it has");
        let mut client = server.connect();
        client.greet();
        assert_eq!(client.outcome(GO, &crate::support::client::export_request("a", &[])), ERR_UNKNOWN);
        // A mistake changes nothing, and is told in one line.
        std::fs::write(&config, "[[export]]\nname = 'd'\ncolour = 'red'\n").expect("a file");
        server.signal(libc::SIGHUP);
        eventually("it is refused", || server.log().contains("the configuration stays as it was"));
        let log = server.log();
        let line = log.lines().find(|line| line.contains("stays as it was")).expect("the line");
        assert!(line.contains("config: line 3") && line.contains("colour"), "{line}");
        assert_eq!(server.simple("b").read_simple(0, 3), b"xyz");
        server.stop();
    }
}

#[test]
fn a_reload_that_hangs_does_not_keep_the_server_from_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    std::fs::write(&config, "[[export]]\nname = 'm'\nmemory = '1M'\n").expect("a file");
    let mut server = Server::start_in(folder, &["--config", "config"]);
    std::fs::remove_file(&config).expect("the file");
    make_pipe(&config);
    server.signal(libc::SIGHUP);
    let pipe = await_reader(&config);
    server.signal(libc::SIGTERM);
    assert!(server.wait().success(), "{}", server.log());
    drop(pipe);
}

#[test]
fn a_start_that_hangs_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    make_pipe(&config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
    command.args(["serve", "--listen", "unix:s", "--control", "none", "--config", "config"]);
    let mut server =
        Killed(command.current_dir(folder.path()).stderr(Stdio::null()).spawn().expect("the server starts"));
    let pipe = await_reader(&config);
    // SAFETY: it signals a child that was not waited for.
    assert_eq!(unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) }, 0);
    let mut end = None;
    eventually("it ends", || {
        end = server.0.try_wait().expect("a child");
        end.is_some()
    });
    assert!(end.is_some_and(|end| end.success()));
    drop(pipe);
}

/// A socket at which somebody listens, and accepts no more: who connects waits. The second is what fills it up.
fn hanging_socket(path: &Path) -> (UnixListener, Vec<OwnedFd>) {
    let listener = UnixListener::bind(path).expect("a socket");
    // SAFETY: it listens again, with room for one.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = SocketAddrUnix::new(path).expect("a path");
    let mut clients = Vec::new();
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let client = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        if net::connect(&client, &address).is_err() {
            return (listener, clients);
        }
        clients.push(client);
    }
}

#[test]
fn a_start_that_waits_for_another_socket_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let hung = hanging_socket(&folder.path().join("hung"));
    for (listen, control) in [("unix:hung", "none"), ("unix:s", "hung")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
        command.args(["serve", "--export", "m=memory:1M", "--listen", listen, "--control", control]);
        let mut server =
            Killed(command.current_dir(folder.path()).stderr(Stdio::null()).spawn().expect("the server starts"));
        let tasks = format!("/proc/{}/task", server.0.id());
        let waits = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("syscall"))
                .is_ok_and(|call| call.split(' ').next() == Some(&libc::SYS_connect.to_string()))
        };
        eventually("it waits", || std::fs::read_dir(&tasks).expect("its threads").flatten().any(waits));
        // SAFETY: it signals a child that was not waited for.
        assert_eq!(unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) }, 0);
        let mut end = None;
        eventually("it ends", || {
            end = server.0.try_wait().expect("a child");
            end.is_some()
        });
        assert!(end.is_some_and(|end| end.success()), "{listen}");
    }
    drop(hung);
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("it runs").success());
}

/// Waits until a pipe is being read, and never writes to it.
fn await_reader(path: &Path) -> std::fs::File {
    let mut pipe = None;
    eventually("it is being read", || {
        pipe = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
        pipe.is_some()
    });
    pipe.expect("it was opened")
}

/// A child that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel has a thread inherit it.
#[test]
fn the_server_is_an_io_flusher_before_it_has_other_threads() {
    if !crate::support::has("strace") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("strace");
    command.args(["-f", "-X", "raw", "-e", "trace=prctl,clone,clone3", "-o", "calls"]);
    // It ends, as nothing is there to be exported.
    command.args([env!("CARGO_BIN_EXE_weir-nbd"), "serve", "--export", "d=nothing", "--log", "debug"]);
    let output = command.current_dir(folder.path()).output().expect("it runs");
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    if calls.is_empty() {
        return weir_testing::skip!("no process can be traced");
    }
    // `PR_SET_IO_FLUSHER`.
    let asked = calls.lines().position(|call| call.contains("prctl(0x39, ")).expect("it asks for it");
    let first = calls.lines().position(|call| call.contains("clone")).expect("it has threads");
    assert!(asked < first, "{calls}");
    let (is_granted, log) = (calls.lines().nth(asked).is_some_and(|call| call.ends_with("= 0")), output.stderr);
    assert_eq!(String::from_utf8_lossy(&log).contains("no I/O flusher"), !is_granted, "{calls}");
}

#[test]
fn a_thread_for_reloads_and_the_last_flush_is_there_from_the_start() {
    // Where the system refuses it later, a reload ended the server.
    let server = Server::start(&["--export", "m=memory:1M"]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("its threads");
    let names = tasks.map(|task| std::fs::read_to_string(task.expect("a thread").path().join("comm")));
    assert!(names.flatten().any(|name| name == "weir-nbd main\n"));
    server.stop();
}

#[test]
fn sockets_of_the_service_manager_are_used_and_left_alone() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("activated")).expect("a socket");
        let manager = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        manager.set_read_timeout(Some(crate::support::PATIENCE)).expect("a socket");
        let descriptor = listener.as_raw_fd();
        // The shell becomes the server, so that the number is the server's.
        let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir-nbd"), "serve", "--export", "m=memory:1M"]);
        command.args(["--control", "none", "--io", engine]).env("NOTIFY_SOCKET", folder.path().join("notify"));
        // SAFETY: between fork and exec, the calls only give the child its descriptor 3. It is not closed by exec,
        // even if the listener had that number before.
        unsafe {
            command.pre_exec(move || {
                let copy = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 10);
                if copy >= 0 && libc::dup2(copy, 3) == 3 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let mut child = Killed(command.spawn().expect("the server starts"));
        let said = || {
            let mut bytes = [0; 200];
            loop {
                match manager.recv(&mut bytes) {
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    received => {
                        let length = received.expect("a message");
                        return String::from_utf8_lossy(&bytes[..length]).into_owned();
                    }
                }
            }
        };
        assert!(said().contains("READY=1"));
        let connect = || UnixStream::connect(folder.path().join("activated")).expect("it listens");
        let mut client = Client::new(connect());
        client.greet();
        client.go("m");
        assert_eq!(client.read_simple(0, 512), [0; 512]);
        let signal = |signal| {
            // SAFETY: the child has not been waited for, so that its number is its own.
            assert_eq!(unsafe { libc::kill(child.0.id() as i32, signal) }, 0);
        };
        signal(libc::SIGHUP);
        assert!(said().contains("RELOADING=1"));
        assert!(said().contains("READY=1"));
        signal(libc::SIGTERM);
        assert!(said().contains("STOPPING=1"));
        assert!(child.0.wait().expect("a child").success());
        // The next server finds the socket open, and the clients that came meanwhile.
        let _waiting = connect();
        listener.set_nonblocking(true).expect("a socket");
        assert!(listener.accept().is_ok());
    }
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_living_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(UnixListener::bind(folder.path().join("s")).expect("a socket"));
    let server = Server::start_in(folder, &["--export", "m=memory:1M"]);
    let address = format!("unix:{}", server.socket().display());
    let output = Server::run(&["serve", "--log", "error", "--export", "m=memory:1M", "--listen", &address]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("in use") && said.lines().count() == 1, "{said}");
    assert_eq!(server.simple("m").read_simple(0, 512), [0; 512]);
    // A file that is no socket is not touched.
    std::fs::write(server.path("file"), "precious").expect("a file");
    let address = format!("unix:{}", server.path("file").display());
    assert!(!Server::run(&["serve", "--export", "m=memory:1M", "--listen", &address]).status.success());
    assert_eq!(std::fs::read_to_string(server.path("file")).expect("the file"), "precious");
    server.stop();
}

#[test]
fn tcp_is_served_and_other_machines_without_tls_are_warned_of() {
    for engine in engines() {
        let listen = ["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"];
        let server = Server::start(&[&listen[..], &["--export", "m=memory:1M", "--io", engine]].concat());
        let log = server.log();
        let address = log.split("listening on 127.0.0.1:").nth(1).and_then(|rest| rest.lines().next()).expect("a port");
        let mut client = Client::tcp(&format!("127.0.0.1:{address}"));
        client.greet();
        client.go("m");
        assert_eq!(client.read_simple(0, 512), [0; 512]);
        assert_eq!(log.matches("other machines can reach").count(), 1, "{log}");
        server.stop();
    }
}

#[test]
fn statistics_count_what_clients_do() {
    let server = Server::start(&["--export", "m=memory:1M", "--read-only-export", "r=memory:2M"]);
    let mut client = server.structured("m");
    client.read(0, 0, 4096);
    assert_eq!(client.error(WRITE, 0, 0, 512, &[1; 512]), 0);
    assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
    assert_eq!(client.error(TRIM, 0, 0, 512, b""), 0);
    assert_eq!(client.error(ZEROES, 0, 0, 512, b""), 0);
    assert_eq!(client.error(READ, 0, 1 << 30, 512, b""), EINVAL);
    let stat = server.stat();
    let (m, r) = (&stat["exports"][0], &stat["exports"][1]);
    assert_eq!((&m["name"], &m["connections"], &m["size_bytes"]), (&"m".into(), &1.into(), &(1 << 20).into()));
    for figure in ["reads", "writes", "flushes", "trims", "zeroes", "errors"] {
        assert_eq!(m[figure], 1, "{figure}");
    }
    assert_eq!((&m["read_bytes"], &m["written_bytes"]), (&4096.into(), &512.into()));
    assert_eq!((&r["read_only"], &r["connections"]), (&true.into(), &0.into()));
    let control = server.path("c");
    let table = Server::run(&["stat", "--control", control.to_str().expect("UTF-8")]);
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    assert!(table.contains("m: memory memory:1M, 1M") && table.contains("1 writes"), "{table}");
    server.stop();
    let output = Server::run(&["stat", "--control", control.to_str().expect("UTF-8")]);
    assert_eq!(String::from_utf8(output.stderr).expect("UTF-8").lines().count(), 1);
}

#[test]
fn stat_says_nothing_of_a_reader_that_has_gone() {
    let server = Server::start(&["--export", "m=memory:1M"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
    command.args(["stat", "--control"]).arg(server.path("c")).stdout(writer).stderr(Stdio::piped());
    let output = command.spawn().and_then(Child::wait_with_output).expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    server.stop();
}

#[test]
fn stat_finds_a_server_whose_folder_is_not_in_its_environment() {
    let [service, session, other] = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    // As systemd names the folders of a service that has two.
    let folders = format!("{}:{}", service.path().display(), other.path().display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
    command.args(["serve", "--export", "m=memory:1M", "--listen", "127.0.0.1:0"]);
    command.env("RUNTIME_DIRECTORY", folders).stderr(Stdio::null());
    let _server = Killed(command.spawn().expect("the server starts"));
    let listens = || UnixStream::connect(service.path().join("weir-nbd.control")).is_ok();
    eventually("its control socket is there", listens);
    let stat = |service: &tempfile::TempDir, session: &tempfile::TempDir| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
        let command = command.arg("stat").env("RUNTIME_DIRECTORY", service.path());
        String::from_utf8(command.env("XDG_RUNTIME_DIR", session.path()).output().expect("it runs").stdout)
            .expect("UTF-8")
    };
    // A server that was killed has left its socket's file.
    drop(UnixListener::bind(session.path().join("weir-nbd.control")).expect("a socket"));
    for said in [stat(&service, &session), stat(&session, &service)] {
        assert!(said.contains("m: memory memory:1M"), "{said}");
    }
}

/// As in containers.
fn refuse_io_uring(command: &mut Command) {
    refuse(command, libc::SYS_io_uring_setup, libc::EPERM);
}

#[test]
fn where_io_uring_is_refused_threads_do_the_work() {
    // Any of its calls.
    for (call, why) in [
        (libc::SYS_io_uring_setup, libc::EPERM),
        (libc::SYS_io_uring_register, libc::EPERM),
        (libc::SYS_io_uring_enter, libc::ENOSYS),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("disk"), [0; 4096]).expect("a file");
        let server = Server::spawn(folder, &["--export", "d=disk"], |command| refuse(command, call, why));
        let log = server.log();
        assert!(log.contains("io_uring is refused") && log.contains("by threads"), "{log}");
        let mut client = server.structured("d");
        assert_eq!(client.error(WRITE, FUA, 0, 3, b"abc"), 0);
        assert_eq!(client.read(0, 0, 3), b"abc");
        assert_eq!(server.stat()["io"], "threads");
        server.stop();
    }
    // With `--io uring` it is an error.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-nbd"));
    command.args(["serve", "--log", "error", "--export", "m=memory:1M", "--io", "uring", "--listen", "127.0.0.1:0"]);
    refuse_io_uring(&mut command);
    let said = String::from_utf8(command.output().expect("it runs").stderr).expect("UTF-8");
    assert!(said.contains("io_uring is refused") && said.lines().count() == 1, "{said}");
}

#[test]
fn mistakes_on_the_command_line_are_told_in_one_line() {
    for (options, expected) in [
        (&["serve"][..], "nothing to export"),
        (&["serve", "--config", "/nonexistent"], "/nonexistent"),
        (&["serve", "--export", "m=memory:1M", "--listen", "unix:/nonexistent/s"], "/nonexistent/s"),
        (&["serve", "--export", "m=memory:1M", "--default", "x"], "the default export 'x'"),
        (&["serve", "--export", "m=memory:1M", "--max-memory", "1K"], "max-memory"),
        (&["stat", "--control", "/nonexistent"], "no server answers at /nonexistent"),
    ] {
        let output = Server::run(options);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        let last = said.lines().last().expect("a line");
        assert!(last.starts_with("weir-nbd: ") && last.contains(expected), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}
