//! This machine as a node: a pod's cgroups, and real programs in them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Removing a group takes no longer.
const BOUND: Duration = Duration::from_secs(180);

/// The files of a group: its usage and its limit.
const FILES: [[&str; 2]; 2] = [["memory.current", "memory.max"], ["memory.usage_in_bytes", "memory.limit_in_bytes"]];

/// A pod's groups, as the kubelet with the driver cgroupfs makes them; removed with this.
pub struct PodGroups {
    top: PathBuf,
    pub containers: [PathBuf; 2],
    /// Containers' IDs.
    pub ids: [String; 2],
}

impl PodGroups {
    /// None where they cannot be made.
    pub fn new() -> Option<Self> {
        let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").is_ok_and(|all| all.contains("memory"));
        let root = Path::new(if v2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" });
        let top = root.join(format!("weir-agent-test-{}", std::process::id()));
        let pod = top.join("kubepods/burstable/poduid-1");
        fs::create_dir_all(&pod).ok()?;
        if v2 {
            // From the top down to the pod: each hands the controller on.
            let chain = [&top, &top.join("kubepods"), &top.join("kubepods/burstable"), &pod];
            chain.iter().try_for_each(|group| fs::write(group.join("cgroup.subtree_control"), "+memory")).ok()?;
        }
        let ids = [1u64, 2].map(|nth| format!("{:064x}", u64::from(std::process::id()) << 8 | nth));
        let containers = ids.each_ref().map(|id| pod.join(id));
        let groups = Self { top, containers, ids };
        groups.containers.iter().try_for_each(fs::create_dir).ok()?;
        groups.file(0, 1).exists().then_some(groups)
    }

    pub fn file(&self, nth: usize, which: usize) -> PathBuf {
        let names = FILES.iter().find(|names| self.containers[nth].join(names[0]).exists()).unwrap_or(&FILES[0]);
        self.containers[nth].join(names[which])
    }

    /// As the kubelet: it refuses a limit below what is used, and sets it else.
    pub fn limit(&self, nth: usize, bytes: u64) -> bool {
        self.used(nth) < bytes && fs::write(self.file(nth, 1), bytes.to_string()).is_ok()
    }

    pub fn used(&self, nth: usize) -> u64 {
        fs::read_to_string(self.file(nth, 0)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for PodGroups {
    fn drop(&mut self) {
        let pod = self.containers[0].parent().unwrap().to_owned();
        let all = self
            .containers
            .iter()
            .map(PathBuf::as_path)
            .chain(pod.ancestors().take_while(|it| it.starts_with(&self.top)));
        for group in all {
            // Its last process may not be gone for good yet.
            let begun = Instant::now();
            while group.exists() && fs::remove_dir(group).is_err() && begun.elapsed() < BOUND {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The library; none: the variable is not set.
fn library() -> Option<PathBuf> {
    let library = std::env::var_os("WEIR_TEST_LIBRARY").map(PathBuf::from);
    library.filter(|path| path.exists())
}

/// A program that does what it is told, on Weir.
pub struct Subject {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Subject {
    /// In that group.
    pub fn start(program: &Path, library: &Path, group: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$1\""]).arg(group).arg(program);
        // Stalls of the machine that this runs on are no pressure, which would empty caches before they are asked.
        command.env("LD_PRELOAD", library).env("WEIR_PSI_SOME_US", "10000000").env("WEIR_PSI_FULL_US", "10000000");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), "done", "{line}: {:?}", self.child.try_wait());
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of weir-cli's tests, compiled; none: there is no compiler.
fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/weir-cli/tests/command/subject/subject.c");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("subject-{}", std::process::id()));
    let made =
        Command::new("cc").args(["-O1", "-fno-builtin", "-w", "-pthread"]).arg(source).arg("-o").arg(&output).status();
    made.is_ok_and(|status| status.success()).then_some(output)
}

/// A pod's two containers, each with a program on Weir: the first has a cache of 300 MiB, which nobody looks into; the second needs
/// the 200 MiB that it has. None where that cannot be had here, which is said.
pub fn two_containers() -> Option<(Arc<PodGroups>, [Subject; 2])> {
    fn or_skip<T>(found: Option<T>, why: &str) -> Option<T> {
        if found.is_none() {
            weir_testing::skip!("{why}");
        }
        found
    }
    let library = or_skip(library(), "WEIR_TEST_LIBRARY names no libweir.so")?;
    let program = or_skip(program(), "there is no C compiler")?;
    let groups = Arc::new(or_skip(PodGroups::new(), "this user cannot make cgroups with memory")?);
    let mut subjects = [0, 1].map(|nth| Subject::start(&program, &library, &groups.containers[nth]));
    subjects[0].tell("hold 12");
    subjects[0].tell("evictable 300");
    subjects[1].tell("hold 200");
    let _ = fs::remove_file(&program);
    Some((groups, subjects))
}
