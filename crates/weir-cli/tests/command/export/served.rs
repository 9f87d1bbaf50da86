//! `weir export`: what it says of real processes under the real library, and how it serves it.

use crate::subject::{Subject, library, program, says, text, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use weir_testing::skip;

/// The exporter, listening.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let mut child = command.arg("export").args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("weir: metrics at ").unwrap_or_else(|| panic!("{line}"));
        let address = address.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
        Self { child, address }
    }

    fn on_a_free_port(args: &[&str]) -> Self {
        Self::start(&[&["--listen", "127.0.0.1:0"], args].concat())
    }

    /// Sends these bytes; the head and the body of what is answered.
    fn send(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(weir_testing::PATIENCE)).unwrap();
        // It may be refused before all of it is read.
        let _ = stream.write_all(request.as_bytes());
        answer(&mut stream)
    }

    fn request(&self, method: &str, path: &str) -> (String, String) {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn metrics(&self) -> String {
        let (head, body) = self.request("GET", "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(stream: &mut impl Read) -> (String, String) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let all = text(&bytes);
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    (head.to_lowercase().replacen("http/", "HTTP/", 1), body.to_owned())
}

/// The value of the sample of a process that has all these labels.
fn sample(metrics: &str, name: &str, pid: u32, labels: &[&str]) -> Option<f64> {
    let pid = format!("pid=\"{pid}\"");
    let mut of_name = metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
    let has = |line: &&str| line.contains(&pid) && labels.iter().all(|label| line.contains(label));
    of_name.find(has)?.rsplit(' ').next()?.parse().ok()
}

fn once() -> String {
    says(&["export", "--once"])
}

/// Waits until the exporter tells of so many MiB in use, in its tables too, which follow a moment later; the zones' last.
fn holding(pid: u32, mib: std::ops::Range<u64>) -> String {
    wait_for("the figures in the metrics", || {
        let metrics = once();
        let live = sample(&metrics, "weir_memory_bytes", pid, &["state=\"live\""])? as u64 >> 20;
        let zone = sample(&metrics, "weir_zone_used_bytes", pid, &[])? as u64 >> 20;
        (mib.contains(&live) && zone >= mib.start).then_some(metrics)
    })
}

/// Output of `python` as it runs `script` with `input` to read; none if it cannot be started.
fn fed(python: &str, script: &str, input: &str) -> Option<Output> {
    let mut command = Command::new(python);
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let (mut pipe, bytes) = (child.stdin.take().unwrap(), input.to_owned());
    let writer = std::thread::spawn(move || pipe.write_all(bytes.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    Some(output)
}

/// The families that a parser that is not ours reads from the text, as JSON; none without it.
fn parsed(metrics: &str) -> Option<Value> {
    const SCRIPT: &str = "
import json, sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
except ImportError:
    sys.exit(77)
print(json.dumps([dict(name=f.name, unit=f.unit, type=f.type, help=f.documentation,
    samples=[[s.name, s.labels, s.value] for s in f.samples]) for f in parse(sys.stdin.read())]))";
    // The system's own has what is installed as a package, though another may come first on the path.
    let outputs: Vec<_> =
        ["python3", "/usr/bin/python3"].into_iter().filter_map(|python| fed(python, SCRIPT, metrics)).collect();
    if outputs.is_empty() {
        skip!("no python3, the parser of which would read the metrics");
        return None;
    }
    let Some(output) = outputs.into_iter().find(|output| output.status.code() != Some(77)) else {
        skip!(
            "python3 has no prometheus_client, which would read the metrics (Debian has it in python3-prometheus-client)"
        );
        return None;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_metrics_say_what_weir_stat_says() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    let pid = subject.pid();
    subject.tell("hold 60");
    let metrics = holding(pid, 58..70);
    let of = |name: &str, labels: &[&str]| {
        sample(&metrics, name, pid, labels).unwrap_or_else(|| panic!("{name} {labels:?} in {metrics}"))
    };
    let states = ["live", "idle", "fragmented", "metadata", "not_weirs"];
    let sum: f64 = states.iter().map(|state| of("weir_memory_bytes", &[&format!("state=\"{state}\"")])).sum();
    assert_eq!(sum, of("weir_resident_bytes", &[]));
    assert!(of("weir_zone_used_bytes", &[]) >= (60 << 20) as f64);
    assert_eq!(of("weir_background_thread", &[]), 1.0);
    assert!((0.0..600.0).contains(&of("weir_measured_age_seconds", &[])));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..600.0).contains(&(now - of("weir_start_time_seconds", &[]))));
    // The kernel cuts names at 15 bytes.
    assert!(metrics.contains(&format!("{{pid=\"{pid}\",comm=\"subject-")), "{metrics}");
    subject.tell("drop");
    let metrics = wait_for("memory released", || {
        let metrics = once();
        let released = sample(&metrics, "weir_released_bytes_total", pid, &["cause=\"idle\""])?;
        (released > (30 << 20) as f64).then_some(metrics)
    });
    let stat: Value = serde_json::from_str(&says(&["stat", &pid.to_string(), "--json"])).unwrap();
    let of = |name: &str, labels: &[&str]| sample(&metrics, name, pid, labels).unwrap();
    // It may go on releasing between the two.
    let idle = of("weir_released_bytes_total", &["cause=\"idle\""]);
    assert!(idle <= stat["released_bytes"]["idle"].as_f64().unwrap());
    let batches = of("weir_release_seconds_count", &[]);
    assert!(batches > 0.0 && batches <= stat["times"][1]["count"].as_f64().unwrap());
    assert_eq!(of("weir_release_seconds_bucket", &["le=\"+Inf\""]), batches);
    assert!(of("weir_release_seconds_sum", &[]) > 0.0);
}

/// The format's own rules (contiguous families, units, suffixes, buckets, no sample twice) are the parser's to judge.
#[test]
fn a_parser_of_openmetrics_reads_all_of_it() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 60");
    holding(subject.pid(), 58..70);
    subject.tell("drop");
    let metrics = says(&["export", "--once", "--caches"]);
    assert!(metrics.ends_with("\n# EOF\n"));
    let Some(families) = parsed(&metrics) else { return };
    let families = families.as_array().unwrap();
    let pid = subject.pid().to_string();
    for family in families {
        let name = family["name"].as_str().unwrap();
        assert!(name.starts_with("weir_") && family["help"].as_str().unwrap().len() > 5, "{family}");
        let unit = family["unit"].as_str().unwrap();
        assert!(["bytes", "seconds", ""].contains(&unit), "{family}");
        assert_eq!(unit.is_empty(), !name.ends_with("_bytes") && !name.ends_with("_seconds"), "{family}");
    }
    let of_process =
        |family: &&Value| family["samples"].as_array().unwrap().iter().any(|sample| sample[1]["pid"] == pid.as_str());
    // All but those of limited zones and caches, and of evictable caches, of which it has none.
    let told = families.iter().filter(of_process).count();
    assert!(told > 50, "{told} families tell of the process");
    let cache = families.iter().find(|family| family["name"] == "weir_cache_objects").unwrap();
    let is_used = |sample: &&Value| {
        let labels = &sample[1];
        labels["pid"] == pid.as_str() && labels["cache"] == "malloc 24576" && labels["state"] == "used"
    };
    assert!(cache["samples"].as_array().unwrap().iter().any(|sample| is_used(&sample)));
    let kinds = |kind: &str| families.iter().filter(|family| family["type"] == kind).count();
    assert_eq!(kinds("histogram"), 3);
    assert!(kinds("counter") > 30 && kinds("gauge") > 20);
}

#[test]
fn names_that_a_user_chose_are_escaped() {
    let Some(made) = program(&[]) else { return };
    // On the same file system, as /tmp may not be.
    let folder = tempfile::tempdir_in(made.parent().unwrap()).unwrap();
    let name = "q\"\\\n{é}, x=\"";
    let path = folder.path().join(name);
    std::fs::rename(&made, &path).unwrap();
    let mut command = Command::new(&path);
    command.env("LD_PRELOAD", library());
    let mut subject = Subject::start(command);
    subject.tell("hold 20");
    let metrics = holding(subject.pid(), 18..30);
    let line = format!("weir_resident_bytes{{pid=\"{}\",comm=\"q\\\"\\\\\\n{{é}}, x=\\\"\"", subject.pid());
    assert!(metrics.contains(&line), "{metrics}");
    let Some(families) = parsed(&metrics) else { return };
    let resident = families.as_array().unwrap().iter().find(|family| family["name"] == "weir_resident_bytes").unwrap();
    let pid = subject.pid().to_string();
    let samples = resident["samples"].as_array().unwrap();
    assert_eq!(samples.iter().find(|sample| sample[1]["pid"] == pid.as_str()).unwrap()[1]["comm"], name);
}

#[test]
fn the_group_and_the_container_are_labels() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 20");
    holding(subject.pid(), 18..30);
    let id = "0123456789abcdef".repeat(4);
    // Version 1 has the memory's groups in a place of their own.
    let mounted = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
    let Some(root) = mounted.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        return skip!("no cgroups are mounted in /sys/fs/cgroup");
    };
    let above = root.join(format!("weir-export-{}", std::process::id()));
    let group = above.join(format!("docker-{id}.scope"));
    let moved = std::fs::create_dir_all(&group)
        .and_then(|()| std::fs::write(group.join("cgroup.procs"), subject.pid().to_string()));
    let metrics = moved.map(|()| once());
    subject.kill();
    // The kernel lets go of the group some time after the process has ended.
    let removed = || std::fs::remove_dir(&group).and_then(|()| std::fs::remove_dir(&above)).is_ok() || !above.exists();
    wait_for("the group to be empty", || removed().then_some(()));
    match metrics {
        Ok(metrics) => {
            // As the kernel has it: relative to the group of whoever looks, if that is in a namespace of its own.
            let cgroup = format!("{}/docker-{id}.scope\"", above.file_name().unwrap().to_string_lossy());
            let container = format!("container=\"{id}\"");
            assert!(
                sample(&metrics, "weir_resident_bytes", subject.pid(), &[&cgroup, &container]).is_some(),
                "{metrics}"
            );
        }
        Err(why) => skip!("no group can be made here: {why}"),
    }
}

#[test]
fn a_process_that_has_ended_is_gone_from_the_next_scrape() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 20");
    holding(subject.pid(), 18..30);
    let exporter = Exporter::on_a_free_port(&[]);
    let pid = format!("pid=\"{}\"", subject.pid());
    assert!(exporter.metrics().contains(&pid));
    subject.kill();
    wait_for("the process to be gone", || (!exporter.metrics().contains(&pid)).then_some(()));
}

#[test]
fn no_more_processes_than_asked_for_and_how_many_are_missing() {
    let Some(mut small) = Subject::new(&[]) else { return };
    let Some(mut large) = Subject::new(&[]) else { return };
    small.tell("hold 20");
    large.tell("hold 200");
    holding(small.pid(), 18..30);
    holding(large.pid(), 190..220);
    let metrics = says(&["export", "--once", "--max-processes", "1"]);
    let pids = metrics.lines().filter(|line| line.starts_with("weir_resident_bytes{")).count();
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(
        (pids, value("weir_exporter_processes "), value("weir_exporter_max_processes ")),
        (1, 1, 1),
        "{metrics}"
    );
    assert!(value("weir_exporter_processes_left_out ") >= 1);
    // The largest stay.
    assert_eq!(sample(&metrics, "weir_resident_bytes", small.pid(), &[]), None);
}

#[test]
fn http_is_spoken_as_it_should_be() {
    let exporter = Exporter::on_a_free_port(&[]);
    let (head, body) = exporter.request("GET", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())) && body.ends_with("# EOF\n"), "{head}");
    let (head, body) = exporter.request("HEAD", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}\n{body}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert!(length.parse::<usize>().unwrap() > 1000, "{head}");
    assert_eq!(exporter.request("GET", "/healthz").1, "ok\n");
    assert!(exporter.request("GET", "/metrics?x=1").0.starts_with("HTTP/1.1 200 "));
    for path in ["/", "/metric", "/metrics/", "/../metrics", "/%6detrics"] {
        assert!(exporter.request("GET", path).0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "WEIR"] {
        let (head, _) = exporter.request(method, "/metrics");
        assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("allow: get, head"), "{head}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    for garbage in ["\0\0\0\r\n\r\n", "hello\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n", &long] {
        let (head, _) = exporter.send(garbage);
        assert!(head.is_empty() || head.starts_with("HTTP/1.1 4"), "{head}");
    }
    assert_eq!(exporter.request("GET", "/healthz").1, "ok\n");
}

/// More connections than there are slots, none of which says anything: they end after their time, others are served.
#[test]
fn clients_that_say_nothing_keep_nobody_out_for_ever() {
    let exporter = Exporter::on_a_free_port(&[]);
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(&exporter.address).unwrap()).collect();
    assert_eq!(exporter.request("GET", "/healthz").1, "ok\n");
    drop(silent);
}

/// Each would have a thread of its own read the figures.
#[test]
fn clients_that_go_away_leave_one_reading_behind() {
    let exporter = Exporter::on_a_free_port(&[]);
    for _ in 0..60 {
        let mut stream = TcpStream::connect(&exporter.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    assert!(exporter.metrics().ends_with("# EOF\n"));
    let threads = std::fs::read_dir(format!("/proc/{}/task", exporter.child.id())).unwrap().count();
    // One that talks, one that reads, and those that help it: one for each CPU, eight at most.
    let most = 2 + std::thread::available_parallelism().unwrap().get().min(8);
    assert!(threads <= most, "{threads} threads");
}

#[test]
fn a_signal_ends_it_and_its_socket_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let listen = format!("unix:{}", path.display());
    let mut exporter = Exporter::start(&["--listen", &listen]);
    assert_eq!(exporter.address, listen);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    crate::subject::send(libc::SIGTERM, exporter.child.id());
    // What was asked before is answered still.
    let (head, body) = answer(&mut stream);
    assert!(head.is_empty() || body.ends_with("# EOF\n"), "{head}");
    assert_eq!(exporter.child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn an_address_that_is_taken_is_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = crate::subject::weir(&["export", "--listen", &taken.local_addr().unwrap().to_string()]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 1 && said.contains("cannot listen at"), "{said}");
}
