//! Parts that the tests of running processes share: the library as it is built, and a program under it.

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tempfile::TempPath;
use weir_testing::{compiles, skip, wait_until};

/// The library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(weir_testing::build_library)
}

/// A program that does what it is told, with Weir or without.
pub struct Subject {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// A program, compiled from a file of `tests/command`, and removed when it is dropped; none if this machine has no compiler, or
/// cannot link it so.
pub fn compiled(source: &str, flags: &[&str]) -> Option<TempPath> {
    // Tests that run at the same time compile it each for itself.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command").join(source);
    let name = source.file_stem().unwrap().display();
    let name = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-w", "-pthread"]).args(flags).arg(&source).arg("-o").arg(&output);
    compiles(&mut compiler).then(|| TempPath::try_from_path(output).unwrap())
}

/// The program that [`Subject`] is.
pub fn program(flags: &[&str]) -> Option<TempPath> {
    compiled("subject/subject.c", flags)
}

/// Stalls of the machine that the tests run on are no pressure, which would release what a test has released.
pub const NO_STALLS: [(&str, &str); 2] = [("WEIR_PSI_SOME_US", "10000000"), ("WEIR_PSI_FULL_US", "10000000")];

impl Subject {
    /// One with Weir and these settings.
    pub fn new(settings: &[(&str, &str)]) -> Option<Self> {
        let program = program(&[])?;
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).envs(NO_STALLS).envs(settings.iter().copied());
        Some(Self::start(command))
    }

    /// One with Weir, started under a filter that allows everything, as in a container. `None` also if none may be set.
    pub fn filtered() -> Option<Self> {
        let program = program(&[])?;
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library());
        filter(&mut command, &[ALLOW]);
        match command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(child) => Some(Self::of(child)),
            Err(error) => {
                skip!("no filter may be set here: {error}");
                None
            }
        }
    }

    /// One that is started so.
    pub fn start(mut command: Command) -> Self {
        Self::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn of(mut child: Child) -> Self {
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut subject = Self { child, stdin, stdout };
        // It runs its own code when it answers.
        subject.tell("hold 0");
        subject
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something; its answer.
    pub fn tell(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the program has ended: {:?}", self.child.wait());
        answer.trim_end().to_owned()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.kill();
    }
}

const ALLOW: libc::sock_filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };

/// Sets a filter of system calls for the program.
fn filter(command: &mut Command, instructions: &'static [libc::sock_filter]) {
    // SAFETY: between fork and exec it makes two system calls, which read what is constant or on the stack.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            let filter = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_ptr().cast_mut() };
            let set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0;
            if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

/// Runs `weir` where no process's memory may be read, as Yama has it; `None`: no filter may be set here.
pub fn weir_without_memory(args: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args);
    without_memory(command)
}

/// As [`weir_without_memory`], by any command.
pub fn without_memory(mut command: Command) -> Option<Output> {
    const REFUSE: &[libc::sock_filter] = &[
        // The number of the call.
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_process_vm_readv as u32 },
        libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 },
        ALLOW,
    ];
    filter(&mut command, REFUSE);
    command.output().inspect_err(|error| skip!("no filter may be set here: {error}")).ok()
}

/// Runs `weir`.
pub fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

/// `weir` where no more files may be open than these.
pub fn weir_within(files: u32, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_weir")]).args(args);
    command
}

/// Runs `weir` and demands success; its standard output.
pub fn says(args: &[&str]) -> String {
    let output = weir(args);
    assert!(output.status.success(), "weir {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a signal to a process that a test made and has not waited for.
pub fn send(signal: i32, pid: u32) {
    // SAFETY: sends a signal; no memory is touched.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// Whether a process is stopped, or has ended and was not waited for: the letter in its `stat`.
pub fn is_in_state(pid: u32, letter: char) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.contains(&format!(") {letter} ")))
}

/// The resident set of a process, bytes.
pub fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A memory cgroup of a test's own, which is removed with it.
pub struct Group(pub PathBuf);

impl Group {
    /// None where it cannot be made, or has not this file, or another by that name in version 1.
    pub fn new(files: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let of_v2 = std::fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
        let parent = match of_v2.is_ok_and(|controllers| controllers.split_whitespace().any(|it| it == "memory")) {
            true => Path::new("/sys/fs/cgroup"),
            false => Path::new("/sys/fs/cgroup/memory"),
        };
        let group = parent.join(name);
        std::fs::create_dir(&group).ok()?;
        let group = Self(group);
        let has_files = files.iter().any(|file| group.0.join(file).exists());
        has_files.then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may not be gone for good yet.
        wait_until("the group to be empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// Has the thread of a process that listens stop, and no other, as a debugger does. None: it is
/// not allowed.
pub fn hold_listener(pid: u32) -> Option<Held> {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|entry| entry.path());
    let listener =
        threads.find(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "weir\n"))?;
    hold(listener.file_name()?.to_str()?.parse().ok()?)
}

/// Has a thread stop, and no other of its process. None: it is not allowed.
pub fn hold(thread: i32) -> Option<Held> {
    // SAFETY: calls on a thread of a process that this test started; the status is of its type.
    unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        let mut status = 0;
        let is_held = libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
            && libc::waitpid(thread, &raw mut status, libc::__WALL) == thread;
        if !is_held {
            skip!("ptrace is refused: no thread may be stopped here");
        }
        is_held.then_some(Held(thread))
    }
}

/// A thread that is held until this goes, which is the work of the thread that holds it. Its process is to end after that.
pub struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: lets the thread go on; no memory is touched. It may have ended.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// A cgroup of a test's own that freezes its processes. When it goes they are thawed, and back in the root group: a program
/// that is in it is to end after that.
pub struct Freezer {
    pub directory: PathBuf,
    /// The file that freezes, and the words for it and for the end of it.
    switch: (&'static str, [&'static str; 2]),
}

impl Freezer {
    /// None where it cannot be made.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let kinds = [
            ("/sys/fs/cgroup/freezer", ("freezer.state", ["FROZEN", "THAWED"])),
            ("/sys/fs/cgroup", ("cgroup.freeze", ["1", "0"])),
        ];
        let (parent, switch) = kinds.into_iter().find(|(parent, _)| Path::new(parent).join("cgroup.procs").exists())?;
        let directory = Path::new(parent).join(name);
        std::fs::create_dir(&directory).ok()?;
        let it = Self { directory, switch };
        it.directory.join(switch.0).exists().then_some(it)
    }

    /// Takes these processes in, and freezes them.
    pub fn freeze(&self, pids: &[u32]) {
        pids.iter().for_each(|pid| std::fs::write(self.directory.join("cgroup.procs"), pid.to_string()).unwrap());
        let (file, [frozen, _]) = self.switch;
        std::fs::write(self.directory.join(file), frozen).unwrap();
        let is_frozen = || {
            let [state, events] = ["freezer.state", "cgroup.events"]
                .map(|file| std::fs::read_to_string(self.directory.join(file)).unwrap_or_default());
            state == "FROZEN\n" || events.contains("frozen 1\n")
        };
        wait_until("the group to be frozen", is_frozen);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let (file, [_, thawed]) = self.switch;
        let _ = std::fs::write(self.directory.join(file), thawed);
        let inside = std::fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        // One that has ended stays until it is gone for good.
        inside.lines().for_each(|pid| drop(std::fs::write(self.directory.with_file_name("cgroup.procs"), pid)));
        wait_until("the group to be empty", || std::fs::remove_dir(&self.directory).is_ok());
    }
}

/// A program with 20 MiB in use, the channel of which is open.
pub fn steered() -> Option<Subject> {
    let mut subject = Subject::new(&[])?;
    subject.tell("hold 20");
    let pid = subject.pid().to_string();
    wait_for("the channel", || weir(&["ctl", &pid, "get", "limit"]).status.success().then_some(()));
    Some(subject)
}

/// Waits until there is something to be seen.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}

/// A new terminal: its outer and its inner end.
pub fn terminal() -> (File, File) {
    let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&outer).unwrap();
    unlockpt(&outer).unwrap();
    let name = ptsname(&outer, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    (File::from(outer), File::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap()))
}

pub fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}
