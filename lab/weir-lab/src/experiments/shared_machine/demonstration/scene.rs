//! The scene of the demonstration.

use super::terminal::{Recording, Terminal};
use crate::experiments::servers::redis;
use crate::harness::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How large everything is, and how many seconds are calm.
pub struct Play {
    pub limit: u64,
    pub values: u64,
    pub need: u64,
    calm: f64,
}

impl Play {
    pub const FULL: Play = Play { limit: 768 << 20, values: 450 << 20, need: 520 << 20, calm: 10.0 };
    pub const QUICK: Play = Play { limit: 256 << 20, values: 120 << 20, need: 150 << 20, calm: 3.0 };
}

/// The outcome of the scene.
pub struct Told {
    pub recording: Recording,
    pub pictures: Vec<(String, vt100::Screen)>,
    /// Before the other program, and after.
    pub resident: [f64; 2],
    pub released_s: f64,
    /// Sets a second before, while, and after it takes memory.
    pub sets: [Sample; 3],
}

const IDLE_MS: &str = "12000";
const BATCH: u64 = 16;
const KEYS: u64 = 10_000;
const STEP: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(10);

pub fn play(play: &Play, weir: &Allocator, weir_command: &Path) -> Result<Told> {
    let (folder, cgroup) = (Folder::in_memory("demonstration")?, Cgroup::make("demonstration", play.limit)?);
    let socket = folder.at("socket");
    let mut start = redis::server(weir, &socket)?;
    start.env("WEIR_IDLE_MS", IDLE_MS);
    cgroup.group.enter(&mut start);
    let redis = KilledOnDrop::start(start, "redis-server")?;
    let (sets, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| load(&socket, &sets, &ends));
        let terminal = Terminal::start(weir_command, &["top", "--delay", "250ms"]);
        let told = terminal.and_then(|terminal| {
            Stage { play, redis: redis.pid(), sets: &sets, terminal, cgroup: &cgroup }.play(&socket)
        });
        ends.store(true, Relaxed);
        client.join().map_err(|_| anyhow!("the client panicked"))??;
        told
    })
}

/// Sets small values until it is told to end.
fn load(socket: &Path, sets: &AtomicU64, ends: &AtomicBool) -> Result<()> {
    let (mut client, mut number) = (Client::connect(socket, START_LIMIT)?, 0u64);
    while !ends.load(Relaxed) {
        let mut batch = Pipeline::default();
        for _ in 0..BATCH {
            number = number.wrapping_add(7919);
            batch.add(&[b"SET", format!("small:{}", number % KEYS).as_bytes(), &[b'v'; 100]]);
        }
        client.send(&batch)?;
        sets.fetch_add(BATCH, Relaxed);
    }
    Ok(())
}

/// Writes values of 1 to 8 KiB to a database of their own, and has it emptied.
fn fill_and_delete(socket: &Path, bytes: u64) -> Result<()> {
    let mut client = Client::connect(socket, START_LIMIT)?;
    client.command(&[b"SELECT", b"1"])?;
    client.fill("large:", bytes as usize, 64, |key| 1024 + key * 2654 % 7168)?;
    client.command(&[b"FLUSHDB", b"ASYNC"])
}

struct Stage<'a> {
    play: &'a Play,
    redis: u32,
    sets: &'a AtomicU64,
    terminal: Terminal,
    cgroup: &'a Cgroup,
}

impl Stage<'_> {
    fn play(self, socket: &Path) -> Result<Told> {
        let Play { values, need, limit, calm } = *self.play;
        let writing = format!("{} MiB of values are written to redis, and deleted again.", values >> 20);
        std::thread::scope(|scope| {
            let fill = scope.spawn(|| fill_and_delete(socket, values));
            while !fill.is_finished() {
                self.step(&writing)?;
            }
            fill.join().map_err(|_| anyhow!("the filling client panicked"))?
        })?;
        self.steps(2.0, "Redis deletes them on a thread of its own.")?;
        let before = self.steps(calm, "Deleted: for a while the memory stays with redis, idle (idle_ms=12000).")?;
        let resident_before = self.resident()?;
        let mut pictures = vec![("Before: redis holds memory that nothing uses".to_string(), self.terminal.picture())];
        let began = Instant::now();
        let scan = plain_load(&format!("hog bytes={need} pause_us=8000"))?;
        let other = Program::start("the other program", scan, Some(self.cgroup))?;
        let line = format!("Another program takes {} MiB in the same group of {} MiB.", need >> 20, limit >> 20);
        let (mut during, mut released_s) = (Sample::default(), f64::NAN);
        while other.memory()?.rss < need as f64 || during.0.len() < 8 {
            ensure!(began.elapsed() < PATIENCE, "the other program has {} of its memory only", other.memory()?.rss);
            during.0.push(self.step(&line)?);
            if released_s.is_nan() && self.resident()? < resident_before / 4.0 {
                released_s = began.elapsed().as_secs_f64();
            }
        }
        let after = self.steps(calm, "Redis gave back what it did not use; neither was killed, neither swaps.")?;
        pictures.push(("After: another program has the memory, redis goes on".to_string(), self.terminal.picture()));
        let resident = [resident_before, self.resident()?];
        let is_swapped = [memory(self.redis)?, other.memory()?].iter().any(|memory| memory.swap > 0.0);
        ensure!(!is_swapped, "redis or the other program was swapped out");
        drop(other);
        let recording = self.terminal.finish();
        Ok(Told { recording, pictures, resident, released_s, sets: [before, during, after] })
    }

    fn resident(&self) -> Result<f64> {
        memory(self.redis).map(|memory| memory.rss)
    }

    fn steps(&self, seconds: f64, line: &str) -> Result<Sample> {
        (0..(seconds / STEP.as_secs_f64()) as u32).map(|_| self.step(line)).collect()
    }

    /// Lets a moment pass, and tells of it; the sets a second.
    fn step(&self, line: &str) -> Result<f64> {
        let (began, before) = (Instant::now(), self.sets.load(Relaxed));
        std::thread::sleep(STEP);
        let rate = (self.sets.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        let resident = self.resident()? / f64::from(1 << 20);
        let load = format!("Load: {:>4.0},000 SET a second.  Redis: {resident:>4.0} MiB resident.", rate / 1000.0);
        self.terminal.tell(&[line.to_string(), load]);
        Ok(rate)
    }
}
