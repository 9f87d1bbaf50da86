//! Object caches under back pressure. A file server's I/O buffers of 4 to 128 KiB come from object caches, with real clients over
//! a socket.
//!
//! `free`: without a limit of memory, beside the kernel's mappings and mallocs. `twentieth`: in a memory cgroup of a twentieth of
//! what `free` takes, in three ways. They are (a) without back pressure, (b) with the last resort alone, (c) with soft back
//! pressure as well. `idle`: all sizes, then one alone: what the idle caches hold. `growth` (only if named): ten minutes in a
//! twentieth.

use crate::harness::nbd::servers::make_volume;
use crate::harness::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const MEMORY: u64 = 1280 << 20;
const FILE: u64 = 64 << 20;
/// The size that stays in use when caches idle: 4 KiB doubled so often.
const WARM: usize = 2;
/// Looks at the server that make a minute.
const MINUTE: usize = 120;

type Env = &'static [(&'static str, &'static str)];
const NO_PRESSURE: Env = &[("WEIR_REPORT", "0"), ("WEIR_IDLE_MS", "3600000")];
const LAST_RESORT: Env =
    &[("WEIR_IDLE_MS", "3600000"), ("WEIR_PSI_SOME_US", "10000000"), ("WEIR_HEADROOM_PERCENT", "1")];

/// The load of clients: a name, sizes, connections, and whether the server has but a twentieth.
type Load = (&'static str, &'static str, usize, bool);
const ALL: Load = ("all the memory it wants, all sizes mixed, 24 connections", "all", 24, false);
const TIGHT: [Load; 3] = [
    ("a twentieth, one size after another, 24 connections", "turns", 24, true),
    ("a twentieth, one size after another, 6 connections", "turns", 6, true),
    ("a twentieth, all sizes mixed, 6 connections", "all", 6, true),
];

/// A server: its label, allocator, and where its buffers come from.
struct Row(String, Allocator, &'static str);

impl Display for Row {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let parts = lab.chosen(&["free", "twentieth", "idle", "growth"])?;
    let asked = |part: &str| parts.contains(&part) && (part != "growth" || parts.len() < 4);
    let (ms, weir, folder) = (lab.pick(6000, 1000), lab.weir()?, Folder::make(&std::env::temp_dir(), "files")?);
    make_volume(&folder.at("file"), FILE)?;
    if asked("free") {
        let mut rows = vec![
            Row("object caches".into(), weir.clone(), "cache"),
            Row("no caches (the kernel's mappings)".into(), weir.clone(), "map"),
        ];
        rows.extend(lab.allocators.iter().map(|a| Row(format!("malloc of {a}"), a.clone(), "malloc")));
        let grid = lab.by_case(measures(), &[ALL.0], &rows, |_, row| Ok(one(&folder, row, ALL, ms / 2)?.0));
        versus(&grid, 0, &rows[0].0, rows[1..].iter().map(|row| &row.0));
    }
    let c = "(c) soft back pressure and last resort";
    let pressed = |label: &str, env, from| Row(label.into(), weir.with(WEIR.into(), env), from);
    if asked("twentieth") || asked("growth") {
        match tight(lab) {
            Err(why) => _ = lab.skips("a twentieth", vec![format!("{why:#}")]),
            Ok(_guards) => {
                let rows = [
                    pressed("(a) no back pressure", NO_PRESSURE, "pinned"),
                    pressed("(b) last resort alone", LAST_RESORT, "cache"),
                    pressed(c, &[], "cache"),
                ];
                for load in TIGHT.into_iter().take(lab.pick(3, 1)).filter(|_| asked("twentieth")) {
                    let mut curves = String::new();
                    let grid = lab.by_case(measures(), &[load.0], &rows, |_, row| {
                        let (figures, curve) = one(&folder, row, load, ms)?;
                        let slabs: Vec<String> = curve.iter().map(|look| mib(look[0])).collect();
                        curves += &format!("{row}: caches, MiB, each half second: {}\n", slabs.join(" "));
                        Ok(figures)
                    });
                    println!("{curves}");
                    versus(&grid, 0, c, rows[..2].iter().map(|row| &row.0));
                }
                if asked("growth") {
                    growth(&one(&folder, &rows[2], TIGHT[0], lab.pick(600_000, ms))?.1);
                }
            }
        }
    }
    if asked("idle") {
        idle(&folder, &pressed("idle caches", &[], "cache"), ms)?;
    }
    Ok(())
}

fn measures() -> Vec<crate::harness::grid::Measure> {
    vec![more("MiB/s").mib(), told("resident at the end, MiB").mib(), told("swapped, MiB").mib()]
}

fn versus<'a>(grid: &Grid, case: usize, subject: &str, others: impl Iterator<Item = &'a String>) {
    others.filter_map(|other| grid.versus(case, subject, other)).for_each(|verdict| print!("{verdict}"));
    println!();
}

/// A machine on which a twentieth can be had.
fn tight(lab: &Lab) -> Result<(machine::ExclusiveLock, crate::harness::machine::restore::RestoreGuard)> {
    let lock = machine::lock()?;
    drop(Cgroup::make("trial", MEMORY)?);
    Ok((lock, swap::make(&lab.args.swap_dir, 512 << 20)?))
}

fn start(folder: &Folder, row: &Row, cgroup: Option<&Cgroup>) -> Result<Program> {
    let (socket, file) = (folder.at("socket"), folder.at("file"));
    let _ = std::fs::remove_file(&socket);
    let words = format!("file-server socket={} file={} from={}", socket.display(), file.display(), row.2);
    Program::first_phase("the server", load(&row.1, &words)?, cgroup)
}

/// Bytes a second that all clients read.
fn clients(folder: &Folder, ms: u64, sizes: &str, connections: usize) -> Result<f64> {
    let words = format!("length={FILE} connections={connections} ms={ms} sizes={sizes}");
    let command = plain_load(&format!("file-clients socket={} {words}", folder.at("socket").display()))?;
    let said = told_by(command, 900, "the clients")?;
    Ok(number(&said, "bytes")? / number(&said, "seconds")?)
}

/// The figures of a run; and what slabs and the server held, each half second.
fn one(folder: &Folder, row: &Row, load: Load, ms: u64) -> Result<(Vec<f64>, Vec<[f64; 2]>)> {
    let (_, sizes, connections, is_tight) = load;
    let cgroup = if is_tight { Some(Cgroup::make("server", MEMORY / 20)?) } else { None };
    let mut server = start(folder, row, cgroup.as_ref())?;
    let over = AtomicBool::new(false);
    let (rate, curve) = std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let rate = clients(folder, ms, sizes, connections);
            over.store(true, Relaxed);
            rate
        });
        let mut curve = Vec::new();
        while !over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
            if server.next_phase().is_err() {
                break;
            }
            curve.push([numbers(&server.said["slabs"]).iter().sum(), server.number("rss").unwrap_or(f64::NAN)]);
        }
        (clients.join(), curve)
    });
    let memory = server.memory()?;
    Ok((vec![rate.map_err(|_| anyhow!("the clients failed"))??, memory.rss, memory.swap], curve))
}

/// Minute by minute.
fn growth(curve: &[[f64; 2]]) {
    let cells = |(minute, looks): (usize, &[[f64; 2]])| {
        let of = |part: usize| looks.iter().map(move |look| look[part]);
        let both = [0, 1].map(|part| [of(part).sum::<f64>() / looks.len() as f64, of(part).fold(0.0, f64::max)]);
        [(minute + 1).to_string()].into_iter().chain(both.concat().into_iter().map(mib)).collect()
    };
    let head = ["minute", "caches, MiB: mean", "most", "resident, MiB: mean", "most"];
    println!("## Growth\n\n{}", table(head, curve.chunks(MINUTE).enumerate().map(cells)));
}

fn idle(folder: &Folder, row: &Row, ms: u64) -> Result<()> {
    let mut server = start(folder, row, None)?;
    let mut phase = |sizes: &str| -> Result<[Vec<f64>; 3]> {
        clients(folder, ms, sizes, ALL.2)?;
        server.next_phase()?;
        Ok(["slabs", "misses", "requests"].map(|key| numbers(&server.said[key])))
    };
    let (burst, calm) = (phase("all")?, phase(&WARM.to_string())?);
    let of = |looks: &[Vec<f64>; 3], key: usize| looks[key].get(WARM).copied().unwrap_or(f64::NAN);
    let head =
        std::iter::once("MiB of slabs after".to_string()).chain((0..burst[0].len()).map(|c| format!("{} KiB", 4 << c)));
    let row = |(when, looks): (&str, &[Vec<f64>; 3])| {
        std::iter::once(when.to_string()).chain(looks[0].iter().map(|bytes| mib(*bytes))).collect()
    };
    println!("## Idle caches\n\n{}", table(head, [("all sizes", &burst), ("one size alone", &calm)].map(row)));
    let misses = [of(&burst, 1) / of(&burst, 2), (of(&calm, 1) - of(&burst, 1)) / (of(&calm, 2) - of(&burst, 2))];
    let [before, after] = misses.map(|misses| 100.0 * (1.0 - misses));
    println!("Of {} KiB a bucket served {before:.2} % before, {after:.2} % after.\n", 4 << WARM);
    Ok(())
}
