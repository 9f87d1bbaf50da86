//! What happens in the demonstration.

use super::terminal::{Recording, Terminal};
use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{KilledOnDrop, command, load_program};
use crate::harness::folder::Folder;
use crate::harness::proc_files::memory;
use crate::harness::programs::find;
use crate::harness::resp::{self, Client};
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How large, and how long.
pub struct Play {
    /// Of the cgroup, bytes.
    pub limit: u64,
    /// Of the values that are written and deleted.
    pub values: u64,
    /// What the other program takes.
    pub need: u64,
    /// Seconds before the other program comes, and after it has what it needs.
    pub calm: f64,
}

impl Play {
    pub const FULL: Play = Play { limit: 768 << 20, values: 450 << 20, need: 520 << 20, calm: 10.0 };
    pub const QUICK: Play = Play { limit: 256 << 20, values: 120 << 20, need: 150 << 20, calm: 3.0 };
}

/// What it came to.
pub struct Told {
    pub recording: Recording,
    /// Screens worth a look, each with a line on it.
    pub pictures: Vec<(String, vt100::Screen)>,
    /// Of redis, bytes.
    pub resident_before: u64,
    pub resident_after: u64,
    /// Until three quarters of what it then released were released.
    pub released_s: f64,
    /// SET a second, each quarter of a second.
    pub before: Sample,
    pub during: Sample,
    pub after: Sample,
}

/// The first calm window measures, and releases nothing of what was in use within it; the second one ends after the other
/// program has come.
const IDLE_MS: &str = "12000";
/// Commands that the client sends at a time, and its keys.
const BATCH: usize = 16;
const KEYS: u64 = 10_000;
const STEP: Duration = Duration::from_millis(250);
/// Time for the other program to have its memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays it.
pub fn play(play: &Play, weir: &Allocator, weir_command: &Path) -> Result<Told, String> {
    let folder = Folder::in_memory("demonstration")?;
    let cgroup = Cgroup::make("demonstration", play.limit)?;
    let socket = folder.at("socket");
    let redis = start_redis(weir, &folder, &cgroup)?;
    let (sets, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| load(&socket, &sets, &ends));
        let terminal = Terminal::start(weir_command, &["top", "--delay", "250ms"]);
        let told = terminal.and_then(|terminal| {
            Stage { play, redis: redis.0.id(), sets: &sets, terminal, cgroup: &cgroup }.play(&socket)
        });
        ends.store(true, Relaxed);
        let served = client.join().map_err(|_| "the client panicked".to_string())?;
        served.and(told)
    })
}

fn start_redis(weir: &Allocator, folder: &Folder, cgroup: &Cgroup) -> Result<KilledOnDrop, String> {
    let mut start = command(find("redis-server").ok_or("redis-server is not here")?, weir);
    start.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
    start.arg("--unixsocket").arg(folder.at("socket")).arg("--dir").arg(folder.path());
    start.env("WEIR_IDLE_MS", IDLE_MS).stdin(Stdio::null()).stdout(Stdio::null());
    enter(&mut start, cgroup);
    KilledOnDrop::start(start, "redis-server")
}

/// Sets small values until the end; counts them.
fn load(socket: &Path, sets: &AtomicU64, ends: &AtomicBool) -> Result<(), String> {
    let mut client = Client::connect(socket, Duration::from_secs(10))?;
    let mut number = 0u64;
    while !ends.load(Relaxed) {
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            number = number.wrapping_add(7919);
            resp::command(&mut batch, &[b"SET", format!("small:{}", number % KEYS).as_bytes(), &[b'v'; 100]]);
        }
        client.all_ok(&batch, BATCH)?;
        sets.fetch_add(BATCH as u64, Relaxed);
    }
    Ok(())
}

/// Values of 1 to 8 KiB in a database of their own, then nothing of them.
fn fill_and_delete(socket: &Path, bytes: u64) -> Result<(), String> {
    let mut client = Client::connect(socket, Duration::from_secs(10))?;
    let value = vec![b'w'; 8 << 10];
    let (mut written, mut key) = (0, 0u64);
    client.all_ok(b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n", 1)?;
    while written < bytes {
        let mut batch = Vec::new();
        for _ in 0..64 {
            let length = 1024 + (key * 2654 % 7168) as usize;
            resp::command(&mut batch, &[b"SET", format!("large:{key}").as_bytes(), &value[..length]]);
            (written, key) = (written + length as u64, key + 1);
        }
        client.all_ok(&batch, 64)?;
    }
    client.all_ok(b"*2\r\n$7\r\nFLUSHDB\r\n$5\r\nASYNC\r\n", 1)
}

struct Stage<'a> {
    play: &'a Play,
    redis: u32,
    sets: &'a AtomicU64,
    terminal: Terminal,
    cgroup: &'a Cgroup,
}

impl Stage<'_> {
    fn play(self, socket: &Path) -> Result<Told, String> {
        let Play { values, need, limit, calm } = *self.play;
        let writing = format!("{} MiB of values are written to redis, and deleted again.", values >> 20);
        std::thread::scope(|scope| {
            let fill = scope.spawn(|| fill_and_delete(socket, values));
            while !fill.is_finished() {
                self.step(&writing)?;
            }
            fill.join().map_err(|_| "the filling client panicked".to_string())?
        })?;
        // Redis deletes on a thread of its own.
        self.steps(2.0, "Redis deletes them on a thread of its own.")?;
        let before = self.steps(calm, "Deleted: for a while the memory stays with redis, idle (idle_ms=12000).")?;
        let resident_before = self.resident()?;
        let mut pictures = vec![("Before: redis holds memory that nothing uses".to_string(), self.terminal.picture())];
        // Started by this thread, which lives as long as the play: a child in the cgroup is killed with its thread.
        let began = Instant::now();
        let other = self.start_other(need)?;
        let line = format!("Another program takes {} MiB in the same group of {} MiB.", need >> 20, limit >> 20);
        let (mut during, mut released_s) = (Sample::default(), f64::NAN);
        while memory(other.0.id())?.rss < need || during.len() < 8 {
            if began.elapsed() > PATIENCE {
                return Err(format!("the other program has {} of its memory only", memory(other.0.id())?.rss));
            }
            during.push(self.step(&line)?);
            if released_s.is_nan() && self.resident()? < resident_before / 4 {
                released_s = began.elapsed().as_secs_f64();
            }
        }
        let after = self.steps(calm, "Redis gave back what it did not use; neither was killed, neither swaps.")?;
        pictures.push(("After: another program has the memory, redis goes on".to_string(), self.terminal.picture()));
        let resident_after = self.resident()?;
        // As the screen says.
        if [memory(self.redis)?, memory(other.0.id())?].iter().any(|memory| memory.held() > memory.rss) {
            return Err("redis or the other program was swapped out".into());
        }
        drop(other);
        let recording = self.terminal.finish();
        Ok(Told { recording, pictures, resident_before, resident_after, released_s, before, during, after })
    }

    /// A program that scans its memory again and again.
    fn start_other(&self, bytes: u64) -> Result<KilledOnDrop, String> {
        let mut other = std::process::Command::new(load_program()?);
        other.args(["scan", &format!("bytes={bytes}"), "block=1048576", "pause_us=8000"]);
        other.stdin(Stdio::piped()).stdout(Stdio::null());
        enter(&mut other, self.cgroup);
        KilledOnDrop::start(other, "the other program")
    }

    fn resident(&self) -> Result<u64, String> {
        memory(self.redis).map(|memory| memory.rss)
    }

    fn steps(&self, seconds: f64, line: &str) -> Result<Sample, String> {
        let mut sample = Sample::default();
        for _ in 0..(seconds / STEP.as_secs_f64()) as u32 {
            sample.push(self.step(line)?);
        }
        Ok(sample)
    }

    /// A quarter of a second of the load; SET a second.
    fn step(&self, line: &str) -> Result<f64, String> {
        let (began, before) = (Instant::now(), self.sets.load(Relaxed));
        std::thread::sleep(STEP);
        let rate = (self.sets.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        let load = format!(
            "Load: {:>4.0},000 SET a second.  Redis: {:>4} MiB resident.",
            rate / 1000.0,
            self.resident()? >> 20
        );
        self.terminal.tell(&[line.to_string(), load]);
        Ok(rate)
    }
}
