//! E14: what a program's group is charged for after a peak of which few blocks are left at random, on every page nearly one.
//!
//! A case has blocks of each of its sizes, so many bytes a size, each with contents of its own. Then all but one in so many are
//! freed at random, and the program rests. Two cases are programs that nobody here wrote: redis-server, of which 15 of 16 keys
//! are deleted, and Python (`PYTHONMALLOC=malloc`), which parsed records and keeps one in 20. Charged: the usage of the
//! program's memory cgroup, less what the group has before the first block. ksmd: processor time of the kernel's merging thread.
//!
//! Then one in ten is written to, each write timed, and all are read and compared: the experiment fails where one is wrong. The
//! kernel's merging is on, and looks at 2,000 pages each 20 ms, while a case runs with the setting `merge`: root.

use super::redis_keys;
use crate::experiments::servers::redis;
use crate::harness::prelude::*;

/// What has a peak.
enum Peak {
    /// Blocks of these sizes, one kept in so many.
    Blocks(&'static str, u64),
    Redis,
    Python,
}

/// The cases: the word for `--only`, the name, what it is.
const CASES: [(&str, &str, Peak); 5] = [
    ("pages", "1 in 20 of 512 B, 1 KiB and 2 KiB", Peak::Blocks("512+1024+2048", 20)),
    ("small", "1 in 16 of 64, 128 and 256 B", Peak::Blocks("64+128+256", 16)),
    ("dense", "1 in 4 of 128, 256 and 512 B", Peak::Blocks("128+256+512", 4)),
    ("redis", "redis, 1 key in 16 left", Peak::Redis),
    ("python", "python, 1 record in 20 left", Peak::Python),
];
const START_LIMIT: Duration = Duration::from_secs(10);

pub fn run(lab: &mut Lab) -> Result<()> {
    let _lock = machine::lock()?;
    if let Err(why) = Cgroup::make("trial", 8 << 30) {
        lab.skips("all of it", vec![format!("{why:#}")]);
        return Ok(());
    }
    let size = lab.pick(
        Size { bytes: 100 << 20, keys: 500_000, records: 200_000, looks: vec![1.0, 10.0, 60.0] },
        Size { bytes: 20 << 20, keys: 100_000, records: 40_000, looks: vec![1.0, 10.0] },
    );
    let mut subjects = with_glibc_by_name(lab.allocators.clone())?;
    let weir = lab.weir()?;
    subjects.push(weir.with("weir, merge 1".into(), &[("WEIR_MERGE", "1")]));
    subjects.push(weir.with("weir, merge 2".into(), &[("WEIR_MERGE", "2")]));
    let measures = [told("live, MiB").mib(), less("charged at the peak, MiB").mib()];
    let after = size.looks.iter().map(|seconds| less(format!("charged {seconds} s after, MiB")).mib());
    let costs = [
        less("own CPU since the frees, s"),
        less("ksmd CPU, s"),
        less("a write, median, us"),
        less("99.9 %, us"),
        less("charged after writes, MiB").mib(),
    ];
    let chosen = lab.chosen(&CASES.each_ref().map(|case| case.0))?;
    let cases: Vec<&str> = CASES.iter().filter(|case| chosen.contains(&case.0)).map(|case| case.1).collect();
    let measures: Vec<Measure> = measures.into_iter().chain(after).chain(costs).collect();
    lab.by_case(measures, &cases, &subjects, |name, allocator| {
        let (.., peak) = CASES.iter().find(|case| case.1 == *name).context("a case")?;
        let _merging = if allocator.name.contains("merge") { Some(machine::switch_merging_on()?) } else { None };
        let cgroup = Cgroup::make("sparse", 8 << 30)?;
        match peak {
            Peak::Blocks(sizes, keep) => {
                let words = format!("sparse bytes={} sizes={sizes} keep={keep}", size.bytes);
                program(load(allocator, &words)?, &cgroup, &size)
            }
            Peak::Python => {
                let mut command = under(find("python3").context("python3 is not here")?, allocator);
                command.env("PYTHONMALLOC", "malloc").args(["-c", include_str!("records.py")]);
                command.args([size.records.to_string(), "20".into()]);
                program(command, &cgroup, &size)
            }
            Peak::Redis => keys(allocator, &cgroup, &size),
        }
    });
    Ok(())
}

/// How much a case has, and when it is looked at, s after the frees.
struct Size {
    bytes: u64,
    keys: usize,
    records: usize,
    looks: Vec<f64>,
}

/// The figures of a program that says its phases.
fn program(command: Command, cgroup: &Cgroup, size: &Size) -> Result<Vec<f64>> {
    let mut program = Program::first_phase("sparse", command, Some(cgroup))?;
    let base = cgroup.usage()? as f64;
    program.next_phase()?;
    let peak = cgroup.usage()? as f64 - base;
    program.next_phase()?;
    let mut figures = vec![program.number("live")?, peak];
    figures.extend(rests(&program.child, program.since, cgroup, base, &size.looks)?);
    program.next_phase()?;
    ensure!(program.number("wrong")? == 0.0, "{} blocks are wrong", program.number("wrong")?);
    figures.extend([program.number("p50_us")?, program.number("p999_us")?, cgroup.usage()? as f64 - base]);
    Ok(figures)
}

/// The figures of a redis-server.
fn keys(allocator: &Allocator, cgroup: &Cgroup, size: &Size) -> Result<Vec<f64>> {
    let folder = Folder::make(&std::env::temp_dir(), "sparse")?;
    let socket = folder.at("socket");
    let mut command = redis::server(allocator, &socket)?;
    cgroup.group.enter(&mut command);
    let server = KilledOnDrop::start(command, "redis-server")?;
    let mut client = Client::connect(&socket, START_LIMIT)?;
    let base = cgroup.usage()? as f64;
    let lengths = redis_keys::fill(&mut client, size.keys)?;
    let peak = cgroup.usage()? as f64 - base;
    let left = redis_keys::thin(&mut client, size.keys)?;
    let live: usize = left.iter().map(|&key| lengths[key]).sum();
    let mut figures = vec![live as f64, peak];
    figures.extend(rests(&server, Instant::now(), cgroup, base, &size.looks)?);
    let mut times = Vec::new();
    for &key in left.iter().step_by(10) {
        let begin = Instant::now();
        client.command(&[b"SET", &redis_keys::name_of(key), &redis_keys::value(key, lengths[key])])?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    redis_keys::check(&mut client, &left, &lengths)?;
    let times = Sample(times);
    figures.extend([times.quantile(0.5), times.quantile(0.999), cgroup.usage()? as f64 - base]);
    Ok(figures)
}

/// What is charged at each look, then the processor time of the program and of ksmd up to the last.
fn rests(child: &KilledOnDrop, since: Instant, cgroup: &Cgroup, base: f64, looks: &[f64]) -> Result<Vec<f64>> {
    let (cpu, ksmd) = (cpu_seconds(child.pid())?, machine::merging_seconds());
    let mut figures = Vec::new();
    for &seconds in looks {
        sleep_until(since, seconds);
        figures.push(cgroup.usage()? as f64 - base);
    }
    figures.extend([cpu_seconds(child.pid())? - cpu, machine::merging_seconds() - ksmd]);
    Ok(figures)
}
