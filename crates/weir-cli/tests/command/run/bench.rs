//! Parts that the tests of `weir run` share: a stand-in for the library, and a program that is watched.

use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;
use weir_core::telemetry::stats::{PAGE_BYTES, Stats, VERSION};
pub use weir_testing::wait_until;

/// A directory with a shared library that does nothing, or with one that takes a statistics page.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub library: PathBuf,
}

/// Claims a page as Weir does, and counts a little. `VERSION`, `PAGE_BYTES` and `LIVE` (the offset of four figures in
/// a row) are replaced.
const STAND_IN: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WEIR_STATS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    uint64_t *first = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t slot = __atomic_fetch_add(first + 2, 1, __ATOMIC_SEQ_CST);
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE_BYTES * slot);
    close(fd);
    uint32_t version = VERSION;
    memcpy(page + 8, &version, 4);
    uint32_t pid = getpid();
    memcpy(page + 12, &pid, 4);
    uint64_t given = 3 << 20;
    memcpy(page + 24, &given, 8);
    uint64_t live_idle_fragmented_merged_metadata[5] = {5 << 20, 6 << 20, 7 << 20, 8 << 20, 9 << 20};
    memcpy(page + LIVE, live_idle_fragmented_merged_metadata, 40);
    memcpy(page, "weirstat", 8);
}
"#;

pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (c, out) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&c, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg(&c).arg("-o").arg(&out).args(flags);
    weir_testing::compiles(&mut compiler).then_some(out)
}

impl Bench {
    pub fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let live = offset_of!(Stats, live_bytes).to_string();
        let bytes = PAGE_BYTES.to_string();
        let source =
            STAND_IN.replace("VERSION", &VERSION.to_string()).replace("PAGE_BYTES", &bytes).replace("LIVE", &live);
        let library = compile(dir.path(), "libstandin.so", &source, &["-shared", "-fPIC"])?;
        Some(Self { dir, library })
    }

    pub fn weir(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("run").args(args).env("WEIR_LIB", &self.library).env_remove("LD_PRELOAD");
        command
    }

    /// A directory where files would be left behind.
    pub fn places(&self) -> PathBuf {
        let places = self.dir.path().join("places");
        std::fs::create_dir_all(&places).unwrap();
        places
    }

    /// Files that lie there, and in shared memory with Weir's name and this number of a process.
    pub fn litter(&self, pid: u32) -> Vec<PathBuf> {
        let of = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        // Others have files there too.
        let is_its = |name: &str| name.contains("weir") && name.contains(&pid.to_string());
        let in_shm =
            of(Path::new("/dev/shm")).filter(|path| is_its(&path.file_name().unwrap_or_default().to_string_lossy()));
        of(&self.places()).chain(in_shm).collect()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.weir(args).output().unwrap()
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `weir` and its program, in a process group of their own, which ends with the test whatever becomes of it.
pub struct Running(pub Child);

impl Running {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("weir to end", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: signals to the group that this test made.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// Starts a program that says when it is ready. Whoever runs the tests may ignore signals (a shell does so for what it
/// puts in the background). Its group may be without anyone who could continue it. Here neither is so.
pub fn start(bench: &Bench, options: &[&str], script: &str) -> Running {
    let ready = bench.dir.path().join("ready");
    let script = script.replace("READY", &format!("touch {}", ready.display()));
    let mut command = bench.weir(&[options, &["--", "bash", "-c", &script]].concat());
    command.envs(["TMPDIR", "XDG_RUNTIME_DIR"].map(|name| (name, bench.places())));
    // SAFETY: between fork and exec only the kernel is called.
    unsafe {
        command.process_group(0).pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP, libc::SIGUSR1] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let running = Running(command.spawn().unwrap());
    wait_until("the program to be ready", || ready.exists());
    running
}

/// Runs `weir` with a program that ends with its standard input. That input ends after a line of standard error that is
/// enough. However busy the machine is, what is to be sampled lasts as long as that takes, five minutes at most. What is
/// missing then shows in what is said.
pub fn followed(mut command: Command, mut is_enough: impl FnMut(&str) -> bool) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, begun) = (child.stdin.take(), Instant::now());
    let (mut said, mut line) = (String::new(), String::new());
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    while reader.read_line(&mut line).unwrap() > 0 {
        if is_enough(&line) || begun.elapsed() > weir_testing::PATIENCE {
            input = None;
        }
        said += &line;
        line.clear();
    }
    drop(input);
    Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr: said.into_bytes() }
}

pub fn send(signal: i32, pid: u32) {
    // SAFETY: sends a signal to a child of this test.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}
