//! What is run, and the rows that come of it.

use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::child::{command, load_program, run as run_child};
use crate::harness::owner;
use crate::harness::phases::{PhasedProgram, load};
use crate::harness::restore::{RestoreGuard, on_end};
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::harness::swap;
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What the server may use at first, and the file it serves.
pub(super) const MEMORY: u64 = 1280 << 20;
const FILE: usize = 64 << 20;
const LIMIT: Duration = Duration::from_secs(900);
/// The parts: `--only` takes their names. The last runs for ten minutes, and only if it is named.
pub(super) const PARTS: [&str; 4] = ["free", "twentieth", "idle", "growth"];
pub(super) const GROWTH_MS: u64 = 600_000;
/// The classes of buffers.
pub const CLASSES: usize = 6;
/// The class that stays warm in the last part: 16 KiB.
pub(super) const WARM: usize = 2;

type Env = &'static [(&'static str, &'static str)];

/// The requests of clients.
#[derive(Clone, Copy)]
pub struct Load {
    /// As in the tables.
    pub what: &'static str,
    sizes: &'static str,
    connections: usize,
}

pub(super) const ALL: Load = Load { what: "all sizes mixed, 24 connections", sizes: "all", connections: 24 };
pub(super) const TURNS: Load =
    Load { what: "one size after another, half a second each, 24 connections", sizes: "turns", connections: 24 };
/// A connection holds up to 64 buffers: of 24, those of the largest size alone are three times the twentieth; of 6 they
/// fit, and only what caches keep does not.
pub(super) const FITTING: [Load; 2] = [
    Load { what: "one size after another, 6 connections", sizes: "turns", connections: 6 },
    Load { what: "all sizes mixed, 6 connections", sizes: "all", connections: 6 },
];

/// Neither trims nor reports: what was free stays where it is.
const NO_PRESSURE: Env = &[("WEIR_REPORT", "0"), ("WEIR_IDLE_MS", "3600000")];
/// No calm windows, and soft signals put out of reach; full stalls and the last of the headroom are still answered.
const LAST_RESORT: Env =
    &[("WEIR_IDLE_MS", "3600000"), ("WEIR_PSI_SOME_US", "10000000"), ("WEIR_HEADROOM_PERCENT", "1")];

/// One way of getting buffers.
pub struct Row {
    /// As in the tables.
    pub label: String,
    allocator: Allocator,
    from: &'static str,
    env: Env,
    /// MiB a second.
    pub rate: Sample,
    /// The server's resident set and swap at the end, bytes.
    pub end: [Sample; 2],
    /// Bytes of the caches' slabs and of the resident set, by half second, of the last run.
    pub curve: Vec<[f64; 2]>,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// The idle-cache case: figures before and after only one size was asked for.
pub struct IdleCase {
    /// Bytes of slabs by class, at the burst's end and after the calm time.
    pub slabs: [Vec<f64>; 2],
    /// The warm cache's hit rate in the burst, and afterwards.
    pub hits: [f64; 2],
}

/// Where the server and its clients meet, and what it serves.
pub(super) struct Stage {
    directory: PathBuf,
    _guard: RestoreGuard,
}

/// Swap and memory cgroups: both or none.
pub(super) fn tight(args: &RunArgs) -> Result<(RestoreGuard, crate::harness::exclusive::ExclusiveLock), String> {
    let lock = crate::harness::exclusive::lock()?;
    drop(Cgroup::make("trial", MEMORY)?);
    Ok((swap::make(&args.swap_dir, 512 << 20)?, lock))
}

fn row(label: &str, allocator: &Allocator, from: &'static str, env: Env) -> Row {
    let (label, allocator) = (label.to_string(), allocator.clone());
    Row {
        label,
        allocator,
        from,
        env,
        rate: Sample::default(),
        end: Default::default(),
        curve: Vec::new(),
        failed: None,
    }
}

pub(super) fn free_rows(allocators: &[Allocator]) -> Vec<Row> {
    let mut rows = Vec::new();
    for allocator in allocators {
        if allocator.name == WEIR {
            rows.push(row("object caches", allocator, "cache", &[]));
            rows.push(row("no caches (the kernel's mappings)", allocator, "map", &[]));
        }
        rows.push(row(&format!("malloc of {}", allocator.name), allocator, "malloc", &[]));
    }
    rows
}

pub(super) fn pressed_rows(weir: &Allocator) -> Vec<Row> {
    vec![
        row("(a) no back pressure", weir, "pinned", NO_PRESSURE),
        row("(b) last resort alone", weir, "cache", LAST_RESORT),
        row("(c) soft back pressure and last resort", weir, "cache", &[]),
    ]
}

pub(super) fn measure(
    stage: &Stage,
    rows: &mut [Row],
    rounds: u32,
    ms: u64,
    how: (Load, Option<u64>),
) -> Result<(), String> {
    let count = rows.len();
    for (round, chosen) in rounds::of(rounds, count) {
        let row = &mut rows[chosen];
        eprintln!("e3, round {} of {rounds}: {}", round + 1, row.label);
        if row.failed.is_none()
            && let Err(why) = one(stage, row, ms, how)
        {
            eprintln!("{}: {why}", row.label);
            row.failed = Some(why);
        }
    }
    Ok(())
}

fn one(stage: &Stage, row: &mut Row, ms: u64, (load, limit): (Load, Option<u64>)) -> Result<(), String> {
    let cgroup = limit.map(|bytes| Cgroup::make("server", bytes)).transpose()?;
    let mut server = stage.server(row, cgroup.as_ref())?;
    let over = std::sync::atomic::AtomicBool::new(false);
    let (rate, curve) = std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let rate = stage.clients(ms, load.sizes, load.connections);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            rate
        });
        let mut curve = Vec::new();
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
            if server.next_phase().is_err() {
                break;
            }
            curve.push([list(&server.said, "slabs").iter().sum(), server.number("rss").unwrap_or(f64::NAN)]);
        }
        (clients.join(), curve)
    });
    row.rate.push(rate.map_err(|_| "the clients failed")??);
    row.curve = curve;
    let memory = server.memory().map_err(|_| "the server did not survive")?;
    row.end[0].push(memory.rss as f64);
    row.end[1].push(memory.swap as f64);
    Ok(())
}

/// All sizes for a time, then only one.
pub(super) fn idle_case(stage: &Stage, weir: &Allocator, ms: u64) -> Result<IdleCase, String> {
    eprintln!("e3: idle caches");
    let mut server = stage.server(&row("idle caches", weir, "cache", &[]), None)?;
    let mut phase = |sizes: &str| -> Result<Value, String> {
        stage.clients(ms, sizes, ALL.connections)?;
        server.next_phase()?;
        Ok(server.said.clone())
    };
    let (burst, calm) = (phase("all")?, phase(&WARM.to_string())?);
    let of = |said: &Value, key: &str| list(said, key).get(WARM).copied().unwrap_or(f64::NAN);
    let rate = |misses: f64, requests: f64| 1.0 - misses / requests;
    let first = rate(of(&burst, "misses"), of(&burst, "requests"));
    let (misses, requests) =
        (of(&calm, "misses") - of(&burst, "misses"), of(&calm, "requests") - of(&burst, "requests"));
    Ok(IdleCase { slabs: [list(&burst, "slabs"), list(&calm, "slabs")], hits: [first, rate(misses, requests)] })
}

fn list(said: &Value, key: &str) -> Vec<f64> {
    said[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

impl Stage {
    pub(super) fn make() -> Result<Stage, String> {
        let directory = std::env::temp_dir().join(owner::name("-files"));
        let undo = directory.clone();
        let guard = on_end(move || drop(std::fs::remove_dir_all(undo)));
        let told = |why: std::io::Error| format!("cannot make the file to serve: {why}");
        std::fs::create_dir_all(&directory).map_err(told)?;
        let mut file = std::fs::File::create(directory.join("file")).map_err(told)?;
        let chunk: Vec<u8> = (0..1 << 20).map(|byte: u32| byte.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect();
        (0..FILE >> 20).try_for_each(|_| file.write_all(&chunk)).map_err(told)?;
        Ok(Stage { directory, _guard: guard })
    }

    fn server(&self, row: &Row, cgroup: Option<&Cgroup>) -> Result<PhasedProgram, String> {
        let socket = self.directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let path = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        let mut start = load(&row.allocator, &["file-server".into(), path("socket"), path("file"), row.from.into()])?;
        start.envs(row.env.iter().copied());
        PhasedProgram::start("the server", start, cgroup)
    }

    /// MiB a second.
    fn clients(&self, ms: u64, sizes: &str, connections: usize) -> Result<f64, String> {
        let plain = Allocator { name: "clients".into(), preload: None, version: String::new(), env: &[] };
        let mut start = command(load_program()?, &plain);
        start.arg("file-clients").arg(self.directory.join("socket"));
        start.args([FILE.to_string(), connections.to_string(), ms.to_string(), sizes.to_string()]);
        let finished = run_child(start, LIMIT, "the clients")?;
        let said: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
        let number = |key: &str| said[key].as_f64().ok_or_else(|| format!("the clients said no '{key}'"));
        Ok(number("bytes")? / number("seconds")? / f64::from(1 << 20))
    }
}

pub(super) fn as_json(free: &[Row], pressed: &[Vec<Row>], growth: &[Row], idle: Option<&IdleCase>) -> Value {
    let row = |row: &Row| {
        json!({ "row": row.label, "mib_a_second": row.rate.json(), "rss": row.end[0].json(), "swap": row.end[1].json(),
                "slabs_and_rss_by_half_second": row.curve, "failed": row.failed })
    };
    let rows = |rows: &[Row]| rows.iter().map(row).collect::<Vec<_>>();
    let idle = idle.map(
        |idle| json!({ "slabs_after_burst": idle.slabs[0], "slabs_after_calm": idle.slabs[1], "hit_rates": idle.hits }),
    );
    json!({ "free": rows(free), "pressed": pressed.iter().map(|load| rows(load)).collect::<Vec<_>>(),
            "growth": rows(growth), "idle": idle })
}
