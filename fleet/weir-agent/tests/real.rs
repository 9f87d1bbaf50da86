//! The agent on this machine's cgroups and real processes, against an API of the test's own that plays the kubelet.

mod fake;
use clap::Parser;
use fake::{BOUND, Fake, Kubelet, MIB, WEB};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_agent::agent::Agent;
use weir_agent::options::Options;

/// The files of a group: its usage and its limit.
const FILES: [[&str; 2]; 2] = [["memory.current", "memory.max"], ["memory.usage_in_bytes", "memory.limit_in_bytes"]];

/// A pod's groups, as the kubelet with the driver cgroupfs makes them; removed with this.
struct PodGroups {
    top: PathBuf,
    containers: [PathBuf; 2],
    /// Containers' IDs.
    ids: [String; 2],
}

impl PodGroups {
    /// None where they cannot be made.
    fn new() -> Option<Self> {
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

    fn file(&self, nth: usize, which: usize) -> PathBuf {
        let names = FILES.iter().find(|names| self.containers[nth].join(names[0]).exists()).unwrap_or(&FILES[0]);
        self.containers[nth].join(names[which])
    }

    fn used(&self, nth: usize) -> u64 {
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
struct Subject {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Subject {
    /// In that group.
    fn start(program: &Path, library: &Path, group: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$1\""]).arg(group).arg(program);
        // Stalls of the machine that this runs on are no pressure, which would empty caches before they are asked.
        command.env("LD_PRELOAD", library).env("WEIR_PSI_SOME_US", "10000000").env("WEIR_PSI_FULL_US", "10000000");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn tell(&mut self, line: &str) {
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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/weir-cli/tests/subject/subject.c");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("subject-{}", std::process::id()));
    let made =
        Command::new("cc").args(["-O1", "-fno-builtin", "-w", "-pthread"]).arg(source).arg("-o").arg(&output).status();
    made.is_ok_and(|status| status.success()).then_some(output)
}

/// Looks until something is so.
async fn until(agent: &mut Agent, what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            agent.round().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, looking).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn usage_falls_before_the_limit_is_asked_for_and_what_grows_gets_its_limit_back() {
    let Some(library) = library() else { return eprintln!("skipped: WEIR_TEST_LIBRARY names no libweir.so") };
    let Some(program) = program() else { return eprintln!("skipped: there is no C compiler") };
    let Some(groups) = PodGroups::new() else { return eprintln!("skipped: this user cannot make cgroups with memory") };
    let groups = Arc::new(groups);
    let mut subjects = [0, 1].map(|nth| Subject::start(&program, &library, &groups.containers[nth]));
    // The first has a cache of 300 MiB, which nobody looks into; the second needs what it has.
    subjects[0].tell("hold 12");
    subjects[0].tell("evictable 300");
    subjects[1].tell("hold 200");
    let _ = fs::remove_file(&program);
    let before = groups.used(0);
    assert!(before > 300 * MIB, "{before}");

    let fake = Fake::with(WEB, fake::pod("Burstable", "1Gi", [&groups.ids[0], &groups.ids[1]]));
    // As the kubelet: it refuses a limit below what is used, and sets it else.
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kubelet_groups, kubelet_asked) = (groups.clone(), asked.clone());
    let kubelet = move |container: &str, limit: u64| {
        let nth = usize::from(container == "side");
        let used = kubelet_groups.used(nth);
        kubelet_asked.lock().unwrap().push((nth, used, limit));
        used < limit && fs::write(kubelet_groups.file(nth, 1), limit.to_string()).is_ok()
    };
    fake.state().kubelet = Kubelet::Does(Box::new(kubelet));
    let options = "weir-agent --node n1 --resize down --window 1s --cost-bar 1000 --least 256Mi".split(' ');
    let mut agent = Agent::new(Options::parse_from(options), Some(fake.client())).unwrap();
    let limit = |nth: usize| {
        let pod = fake.pod();
        pod.containers[nth].actual.and_then(|actual| actual.limit).unwrap()
    };
    until(&mut agent, "both are lowered", || limit(0) < 300 * MIB && limit(1) < 300 * MIB).await;
    for &(nth, used, to) in asked.lock().unwrap().iter() {
        assert!(used < to, "container {nth} used {used} when {to} was asked for");
    }
    let text = fs::read_to_string(groups.file(0, 1)).unwrap();
    assert_eq!(text.trim().parse::<u64>().unwrap(), limit(0), "the kernel has it");
    let metrics = agent.metrics.text();
    assert!(
        metrics.contains("weir_agent_resizes_total{outcome=\"lowered\"}") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("container_memory_bytes{namespace=\"shop\",pod=\"web\",container=\"app\",state=\"live\"}"),
        "{metrics}"
    );
    println!("used {before} before; lowered to {} with {} used", limit(0), groups.used(0));

    // The second needs more: it gets what it had, before its limit stops it.
    let lowered = limit(1);
    until(&mut agent, "it is raised", || {
        // It takes 8 MiB more for a moment.
        if limit(1) == lowered && groups.used(1) + 11 * MIB < lowered {
            subjects[1].tell("hold 1");
        }
        limit(1) == 1024 * MIB
    })
    .await;
    println!("raised again with {} used", groups.used(1));
    assert_eq!(fake.pod().lowered_from["side"].before.limit, Some(1024 * MIB));
    for subject in &mut subjects {
        subject.tell("hold 1");
    }
}
