//! Processes of a program that lies on a server that does not answer: who looks at them names it, and does not wait.
//! Apart from the command's other tests: they look at all processes.

mod fuse;

use fuse::{STANDS, SWALLOWS, SWALLOWS_READS, Server};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use weir_testing::{PATIENCE, compiles, skip, wait_until};

/// A process, which is ended when this is dropped.
struct Process(Child);

impl Process {
    /// The program; `library` is preloaded.
    fn start(program: &Path, library: Option<&Path>) -> Self {
        let mut command = Command::new(program);
        command.env("WEIR_PROFILE_PERCENT", "0").env("WEIR_PROFILE_BYTES", "65536");
        command.envs(library.map(|library| ("LD_PRELOAD", library)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        writeln!(child.stdin.as_mut().unwrap(), "leak").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "done");
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        // It may wait for the server itself: the end of that ends it.
    }
}

/// What `weir` says with these arguments, and its status. It has ended, and so has all that had its output open.
fn weir(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).stdin(Stdio::null());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(command.output()));
    let output = told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("weir {args:?} waits")).unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned())
}

#[test]
fn who_looks_at_a_process_does_not_wait_for_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (program, mounted) = (dir.path().join("leak"), dir.path().join("mounted"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/leak.c");
    if !compiles(Command::new("cc").args(["-g", "-O1", "-fno-builtin", "-w"]).arg(source).arg("-o").arg(&program)) {
        return;
    }
    std::fs::create_dir(&mounted).unwrap();
    let (library, program) = (weir_testing::build_library(), std::fs::read(program).unwrap());
    for way in [STANDS, SWALLOWS, SWALLOWS_READS] {
        let server = match Server::mount(&mounted, program.clone()) {
            Ok(server) => server,
            Err(why) => return skip!("no file system can be mounted: {why}"),
        };
        let path = mounted.join(fuse::NAME);
        let (with, without) = (Process::start(&path, Some(&library)), Process::start(&path, None));
        let (with_pid, without_pid) = (with.pid(), without.pid());
        wait_until("its figures", || weir(&["stat", &with_pid]).0 == Some(0));
        server.falls_silent(way);
        let named = format!("not to be read in time, and left out: {}\n", path.display());
        let silent = format!("{} did not answer in time", path.display());
        let all = [
            (&["why", &with_pid][..], 0, named.as_str(), "resident"),
            (&["why", &without_pid], 0, &named, "glibc's malloc"),
            (&["doctor", &without_pid], 1, &named, "not loaded"),
            (&["profile", &with_pid], 0, &silent, "program+0x"),
            (&["stat", &with_pid], 0, "", ""),
            (&["top", "--once", "--all"], 0, "", &with_pid),
        ];
        std::thread::scope(|scope| {
            for (args, status, named, shown) in all {
                scope.spawn(move || {
                    let (ended, said) = weir(args);
                    assert_eq!(ended, Some(status), "weir {args:?}: {said}");
                    assert!(said.contains(named) && said.contains(shown), "weir {args:?}, way {way}: {said}");
                    // It is asked once, and named once.
                    assert!(said.matches("in time").count() == usize::from(!named.is_empty()), "weir {args:?}: {said}");
                });
            }
        });
    }
}
