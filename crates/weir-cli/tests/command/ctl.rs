//! `weir ctl` and the control channel of real processes under the real library.

use crate::subject::{Subject, hold_listener, is_in_state, is_root, resident, says, steered, text, wait_for, weir};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket, sockopt,
};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_core::telemetry::stats::{Control, Stats};
use weir_core::telemetry::tunables::TABLE;
use weir_testing::{PATIENCE, skip, wait_until};

/// The name of a process's socket, from the list of all: it is no secret.
fn socket_name(pid: u32) -> Option<Vec<u8>> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).ok()?;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let sockets: Vec<String> = threads
        .flat_map(|thread| std::fs::read_dir(thread.path().join("fd")).into_iter().flatten().flatten())
        .filter_map(|entry| {
            entry.path().read_link().ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(String::from)
        })
        .collect();
    let is_its =
        |line: &&str| line.contains("@weir-control-") && sockets.iter().any(|inode| line.contains(inode.as_str()));
    let line = table.lines().find(is_its)?;
    line.rsplit_once('@').map(|(_, name)| name.as_bytes().to_vec())
}

fn connection(name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new_abstract_name(name)?;
    retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
}

fn receive(socket: &OwnedFd) -> Option<String> {
    let mut message = [0u8; 8192];
    match retry_on_intr(|| recv(socket, &mut message, RecvFlags::empty())) {
        Ok((len, _)) if len > 0 => Some(text(&message[..len])),
        _ => None,
    }
}

/// The first message of a client, from the page that the process shares with who may look into it.
fn token(pid: u32) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut files =
        threads.flat_map(|thread| std::fs::read_dir(thread.path().join("fd")).into_iter().flatten().flatten());
    let is_page = |path: &PathBuf| path.read_link().is_ok_and(|name| name.starts_with("/memfd:weir-page (deleted)"));
    let page = std::fs::File::open(files.find_map(|entry| Some(entry.path()).filter(is_page))?).ok()?;
    let mut words = [[0u8; 8]; 2];
    let offset = (offset_of!(Stats, control) + offset_of!(Control, token)) as u64;
    page.read_exact_at(words.as_flattened_mut(), offset).ok()?;
    let [first, second] = words.map(u64::from_ne_bytes);
    Some(format!("token {first:016x}{second:016x}"))
}

/// A connection that may ask.
fn client(subject: &Subject) -> OwnedFd {
    let client = connection(&socket_name(subject.pid()).unwrap()).unwrap();
    assert_eq!(receive(&client).as_deref(), Some("weir control 2\n"));
    send(&client, token(subject.pid()).unwrap().as_bytes(), SendFlags::empty()).unwrap();
    assert_eq!(receive(&client).as_deref(), Some("ok\n"));
    client
}

/// A process of the same user, as one in a sandbox is that may read the list of sockets, but not look into the
/// process.
#[test]
fn without_the_token_of_the_page_the_same_user_is_refused() {
    let Some(subject) = steered() else { return };
    let name = socket_name(subject.pid()).unwrap();
    let wrong = format!("token {:032x}", 1);
    for first in ["set limit 1", "subscribe", wrong.as_str()] {
        let stranger = connection(&name).unwrap();
        assert_eq!(receive(&stranger).as_deref(), Some("weir control 2\n"));
        send(&stranger, first.as_bytes(), SendFlags::empty()).unwrap();
        assert_eq!(receive(&stranger).as_deref(), Some("error: the token on the page of statistics comes first\n"));
        assert_eq!(receive(&stranger), None);
    }
    let client = client(&subject);
    send(&client, b"get limit", SendFlags::empty()).unwrap();
    assert_eq!(receive(&client).as_deref(), Some("ok\nlimit 0 bytes\n"));
    assert_eq!(says(&["ctl", &subject.pid().to_string(), "get", "limit"]), "limit 0 B\n");
}

/// As by Ctrl-Z, and `fg` after it.
#[test]
fn stopped_while_it_waits_for_its_answer_it_has_it_when_it_goes_on() {
    let Some(subject) = steered() else { return };
    let Some(listener) = hold_listener(subject.pid()) else { return };
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_weir"));
    ctl.args(["ctl", &subject.pid().to_string(), "get", "limit"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ctl = ctl.spawn().unwrap();
    let call = || std::fs::read_to_string(format!("/proc/{}/syscall", ctl.id())).unwrap();
    wait_until("its wait", || call().starts_with(&format!("{} ", libc::SYS_recvfrom)));
    crate::subject::send(libc::SIGSTOP, ctl.id());
    wait_until("its stop", || is_in_state(ctl.id(), 'T'));
    crate::subject::send(libc::SIGCONT, ctl.id());
    drop(listener);
    let output = ctl.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("limit 0 B\n", ""));
}

#[test]
fn one_that_is_stopped_is_not_waited_for() {
    let Some(subject) = steered() else { return };
    let pid = subject.pid().to_string();
    crate::subject::send(libc::SIGSTOP, subject.pid());
    wait_until("the program's stop", || is_in_state(subject.pid(), 'T'));
    for args in [&["ctl", &pid, "trim"][..], &["profile", &pid]] {
        let output = weir(args);
        let said = text(&output.stderr);
        let is_told = said.contains("it is stopped") && said.lines().count() == 1;
        assert!(output.status.code() == Some(6) && is_told, "{args:?}: {said}");
    }
}

/// `/proc` is that of the namespace around it, with other numbers than its own.
#[test]
fn from_a_pid_namespace_below_the_process_it_is_said_what_hinders() {
    let Some(subject) = steered() else { return };
    if !Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|status| status.success()) {
        return skip!("no namespace can be made here");
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", env!("CARGO_BIN_EXE_weir"), "ctl", &subject.pid().to_string(), "get", "limit"]);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("it is in a PID namespace"), "{said}");
}

#[test]
fn settings_are_read_and_set_while_the_program_runs() {
    let Some(subject) = steered() else { return };
    let pid = subject.pid().to_string();
    assert_eq!(says(&["ctl", &pid, "get", "limit"]), "limit 0 B\n");
    assert_eq!(says(&["ctl", &pid, "set", "limit", "64M"]), "limit 64 MiB\n");
    assert_eq!(says(&["ctl", &pid, "get", "limit"]), "limit 64 MiB\n");
    assert_eq!(says(&["ctl", &pid, "get"]).lines().count(), TABLE.len());
    // One that has all notifications armed anew.
    assert_eq!(says(&["ctl", &pid, "set", "headroom_percent", "7"]), "headroom_percent 7 percent\n");
    assert_eq!(says(&["ctl", &pid, "get", "headroom_percent"]), "headroom_percent 7 percent\n");
    let wrong = weir(&["ctl", &pid, "set", "limit", "lots"]);
    assert!(
        wrong.status.code() == Some(2) && text(&wrong.stderr).contains("not a size (such as 64M)"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn a_limit_that_is_set_is_kept_to() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    // Nothing is released by itself.
    says(&["ctl", &pid, "set", "idle_ms", "3600000"]);
    subject.tell("hold 100");
    subject.tell("drop");
    says(&["ctl", &pid, "set", "limit", "32M"]);
    wait_until("the resident set below the limit", || resident(subject.pid()) < 32 << 20);
}

#[test]
fn a_shorter_window_ends_the_one_under_way() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    says(&["ctl", &pid, "set", "idle_ms", "3600000"]);
    subject.tell("hold 100");
    subject.tell("drop");
    says(&["ctl", &pid, "set", "idle_ms", "300"]);
    wait_until("the resident set without what is idle", || resident(subject.pid()) < 32 << 20);
}

#[test]
fn the_level_of_pressure_falls_at_rest_and_a_child_begins_with_none() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    let is_told = |pid: &str, level: &str| {
        let said = text(&weir(&["stat", pid]).stdout);
        // How long ago it was heard of follows, if it ever was.
        [';', ','].iter().any(|end| said.contains(&format!("pressure {level}{end}")))
    };
    // Until it is made shorter there is no relief.
    says(&["ctl", &pid, "set", "relief_ms", "3600000"]);
    says(&["ctl", &pid, "set", "limit", "1M"]);
    wait_until("pressure", || is_told(&pid, "severe"));
    says(&["ctl", &pid, "set", "limit", "0"]);
    let child = subject.tell("fork");
    wait_until("the child's figures", || weir(&["ctl", &child, "get", "limit"]).status.success());
    assert!(is_told(&child, "none") && is_told(&pid, "severe"));
    says(&["ctl", &pid, "set", "relief_ms", "10"]);
    wait_until("relief", || is_told(&pid, "none"));
    crate::subject::send(libc::SIGKILL, child.parse().unwrap());
}

#[test]
fn a_program_that_locks_its_memory_is_steered() {
    if !is_root() {
        skip!("only root may lock more than the limit");
        return;
    }
    let Some(mut subject) = Subject::new(&[]) else { return };
    assert_eq!(subject.tell("lock"), "done");
    subject.tell("hold 20");
    let pid = subject.pid().to_string();
    wait_until("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success());
}

#[test]
fn with_releasing_switched_off_a_request_says_so() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    subject.tell("hold 20");
    subject.tell("drop");
    says(&["ctl", &pid, "set", "report", "0"]);
    for request in ["trim", "drain"] {
        let output = weir(&["ctl", &pid, request]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("releasing is switched off"), "{request}: {said}");
    }
    says(&["ctl", &pid, "set", "report", "1"]);
    says(&["ctl", &pid, "trim"]);
}

#[test]
fn memory_is_released_when_it_is_asked_for_and_the_amount_is_told() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    says(&["ctl", &pid, "set", "idle_ms", "3600000"]);
    subject.tell("hold 60");
    subject.tell("drop");
    let figure = |said: &str, name: &str| {
        let said: serde_json::Value = serde_json::from_str(said).unwrap();
        said[name].as_u64().unwrap()
    };
    let released = |said: &str| figure(said, "released");
    let trimmed = released(&says(&["ctl", &pid, "--json", "trim"]));
    let drained = released(&says(&["ctl", &pid, "--json", "drain"]));
    assert!(trimmed + drained > 50 << 20, "{trimmed} + {drained}");
    let report = says(&["ctl", &pid, "report", "--json"]);
    let figure = |name: &str| figure(&report, name);
    assert!(figure("idle") < 4 << 20, "{report}");
    assert_eq!(
        figure("resident"),
        figure("live") + figure("idle") + figure("fragmented") + figure("metadata") - figure("untouched")
    );
}

#[test]
fn of_a_setting_that_counts_at_the_start_it_is_said() {
    let Some(subject) = steered() else { return };
    let pid = subject.pid().to_string();
    let set = weir(&["ctl", &pid, "set", "zone_cpus", "4"]);
    assert_eq!((set.status.code(), text(&set.stdout).as_str()), (Some(0), "zone_cpus 4 count\n"));
    assert!(text(&set.stderr).contains("WEIR_ZONE_CPUS"), "{}", text(&set.stderr));
    let other = weir(&["ctl", &pid, "set", "idle_ms", "600"]);
    assert_eq!((other.status.code(), text(&other.stderr).as_str()), (Some(0), ""));
}

#[test]
fn switched_off_the_socket_is_gone_and_a_killed_process_leaves_none() {
    let Some(subject) = steered() else { return };
    let pid = subject.pid().to_string();
    let name = socket_name(subject.pid()).expect("its socket is listed");
    let switched = weir(&["ctl", &pid, "set", "control", "0"]);
    assert_eq!((switched.status.code(), text(&switched.stdout).as_str()), (Some(0), "control 0 bool\n"));
    assert!(text(&switched.stderr).contains("cannot be steered any more"), "{}", text(&switched.stderr));
    wait_for("the socket's end", || connection(&name).is_err().then_some(()));
    let off = weir(&["ctl", &pid, "get"]);
    assert!(text(&off.stderr).contains("`control` is 0"), "{}", text(&off.stderr));
    let Some(mut other) = steered() else { return };
    let name = socket_name(other.pid()).expect("its socket is listed");
    assert!(connection(&name).is_ok());
    other.kill();
    assert!(connection(&name).is_err());
}

#[test]
fn a_forked_child_has_a_channel_of_its_own() {
    let Some(mut subject) = steered() else { return };
    let child = subject.tell("fork");
    wait_for("the child's channel", || weir(&["ctl", &child, "get", "limit"]).status.success().then_some(()));
    says(&["ctl", &child, "set", "limit", "1G"]);
    assert_eq!(says(&["ctl", &subject.pid().to_string(), "get", "limit"]), "limit 0 B\n");
    crate::subject::send(libc::SIGKILL, child.parse().unwrap());
}

#[test]
fn a_subscriber_hears_of_what_is_released() {
    let Some(mut subject) = steered() else { return };
    let client = client(&subject);
    send(&client, b"subscribe", SendFlags::empty()).unwrap();
    assert_eq!(receive(&client).as_deref(), Some("ok\n"));
    subject.tell("hold 40");
    subject.tell("drop");
    let line = receive(&client).expect("an event");
    assert!(line.starts_with("release ") && line.split_whitespace().count() == 11, "{line}");
}

/// The thread that would send the next line closes it, without a request that has it look for a filter.
#[test]
fn a_subscriber_of_a_program_that_forbids_messages_is_closed_and_the_program_goes_on() {
    let Some(mut subject) = steered() else { return };
    let pid = subject.pid().to_string();
    let client = client(&subject);
    send(&client, b"subscribe", SendFlags::empty()).unwrap();
    assert_eq!(receive(&client).as_deref(), Some("ok\n"));
    if subject.tell("filter messages") != "done" {
        return skip!("no filter may be set here");
    }
    subject.tell("hold 40");
    subject.tell("drop");
    let mut message = [0u8; 8192];
    wait_for("the connection's end", || {
        let received = retry_on_intr(|| recv(&client, &mut message, RecvFlags::empty()));
        matches!(received, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)).then_some(())
    });
    assert_eq!(subject.tell("hold 5"), "done");
    let refused = text(&weir(&["ctl", &pid, "get"]).stderr);
    assert!(refused.contains("sandbox of its own"), "{refused}");
}

#[test]
fn another_user_gets_one_line_that_says_no() {
    if !is_root() {
        return skip!("only root can become another user");
    }
    let Some(subject) = steered() else { return };
    let name = text(&socket_name(subject.pid()).unwrap());
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect('\\0{name}')\n\
         print(s.recv(4096).decode(), end='')\ntry: s.send(b'drain')\nexcept OSError: pass\n\
         try: print(s.recv(4096).decode())\nexcept OSError: pass"
    );
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "/usr/bin/env",
        "-i",
        "/usr/bin/python3",
        "-c",
        &script,
    ]);
    let output = command.output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        return skip!("no setpriv, or no python3 that another user may run");
    };
    assert_eq!(text(&output.stdout).trim_end(), "error: only root and the process's own user may steer it");
}

/// The name of the socket is one of the container's network, the process's number one of its own.
#[test]
fn a_process_in_a_container_is_read_and_steered_from_outside() {
    let Some(program) = crate::subject::program(&[]) else { return };
    let container = ["--net", "--pid", "--mount", "--ipc", "--uts", "--fork"];
    if !Command::new("unshare").args(container).arg("true").status().is_ok_and(|status| status.success()) {
        return skip!("no namespaces can be made here");
    }
    let mut command = Command::new("unshare");
    command.args(container).args(["--kill-child", "--"]).arg(&program).env("LD_PRELOAD", crate::subject::library());
    let mut subject = Subject::start(command);
    subject.tell("hold 20");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", subject.pid()));
    let Ok(children) = children else { return skip!("this kernel tells of no children") };
    let pid = children.split_whitespace().next().unwrap();
    wait_for("the channel", || weir(&["ctl", pid, "get", "limit"]).status.success().then_some(()));
    assert_eq!(says(&["ctl", pid, "set", "limit", "1G"]), "limit 1 GiB\n");
    wait_for("the caches", || says(&["stat", pid]).contains("malloc 24576").then_some(()));
}

#[test]
fn a_program_that_gives_up_root_has_a_channel_that_is_its_new_users() {
    let Some(mut subject) = steered() else { return };
    let before = socket_name(subject.pid()).unwrap();
    if subject.tell("user 1234") != "done" {
        return skip!("only root can become another user");
    }
    subject.tell("hold 5");
    let after = wait_for("another socket", || socket_name(subject.pid()).filter(|name| *name != before));
    assert!(connection(&before).is_err());
    assert_eq!(receive(&connection(&after).unwrap()).as_deref(), Some("weir control 2\n"));
    let pid = subject.pid().to_string();
    wait_for("the caches", || says(&["stat", &pid]).contains("malloc 24576").then_some(()));
}

/// In a user namespace that maps no user, all are shown as one: the process itself, and whoever connects.
#[test]
fn users_that_a_namespace_does_not_tell_apart_are_refused() {
    let Some(program) = crate::subject::program(&[]) else { return };
    if !Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|status| status.success()) {
        return skip!("no user namespace can be made here");
    }
    let mut command = Command::new("unshare");
    command.arg("--user").arg(&program).env("LD_PRELOAD", crate::subject::library());
    let mut subject = Subject::start(command);
    subject.tell("hold 20");
    let name = wait_for("the socket", || socket_name(subject.pid()));
    let client = connection(&name).unwrap();
    let said = receive(&client).unwrap();
    assert!(said.starts_with("error: it is in a user namespace that does not have this user"), "{said}");
}

/// Without a descriptor for it a connection waits; the channel is there still when there is one again.
#[test]
fn a_connection_for_which_there_is_no_descriptor_waits_for_one() {
    let Some(subject) = steered() else { return };
    let name = socket_name(subject.pid()).unwrap();
    let limit = |descriptors: u64| {
        let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: 4096 };
        let pid = subject.pid() as libc::pid_t;
        // SAFETY: the kernel reads the limit, and writes none.
        assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) }, 0);
    };
    limit(1);
    let client = connection(&name).unwrap();
    // Nothing comes, however long it is waited: a slow machine sees no less than a quick one.
    sockopt::set_socket_timeout(&client, sockopt::Timeout::Recv, Some(Duration::from_millis(300))).unwrap();
    assert!(recv(&client, &mut [0u8; 100], RecvFlags::empty()).is_err());
    limit(1024);
    assert_eq!(wait_for("the greeting", || receive(&client)), "weir control 2\n");
}

/// Random messages to a real process from several connections: it goes on with its work, and answers.
#[test]
fn garbage_harms_nothing() {
    let Some(mut subject) = steered() else { return };
    let name = socket_name(subject.pid()).unwrap();
    let (mut state, mut sent) = (u64::from(subject.pid()) | 1, 0);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut connections: Vec<OwnedFd> = Vec::new();
    for _ in 0..4_000 {
        if connections.len() < 12 {
            connections.extend(connection(&name));
        }
        let at = random() as usize % connections.len().max(1);
        let length = [0, 1, 7, 255, 256, 257, 5_000, 100_000][random() as usize % 8];
        let message: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        let Some(connection) = connections.get(at) else { continue };
        match send(connection, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => sent += 1,
            Err(_) => drop(connections.swap_remove(at)),
        }
    }
    drop(connections);
    assert!(sent > 100, "{sent} messages");
    assert_eq!(subject.tell("hold 5"), "done");
    assert!(says(&["ctl", &subject.pid().to_string(), "get", "limit"]).starts_with("limit "));
}
