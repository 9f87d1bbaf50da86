//! PostgreSQL under pgbench, in a cluster of its own.

use super::stage::{Figures, Stage, check_preloaded, find, start};
use crate::harness::child::{self, KilledOnDrop, command};
use crate::harness::proc_files;
use crate::peers::Allocator;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// Between two sums over the server's processes.
const LOOK: Duration = Duration::from_millis(20);

/// One run of the server: the cluster is made for the first, and used by all that follow.
pub fn run(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let home = stage.directory.join("postgres");
    if !home.join("ready").exists() {
        prepare(&home, stage.quick)?;
    }
    let server = Server::start(&home, Some(allocator))?;
    let mut load = pgbench(&home)?;
    load.args(["-c", "4", "-j", "2", "-T", if stage.quick { "1" } else { "5" }]);
    let over = AtomicBool::new(false);
    let (finished, peak) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| peak_of_all(server.0.0.id(), &over));
        let finished = child::run(load, LIMIT, "pgbench");
        over.store(true, Ordering::Relaxed);
        (finished, peak.join().unwrap_or(0))
    });
    let output = finished?.output;
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = line.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok()).ok_or("pgbench told no tps")?;
    let faults = proc_files::minor_faults(server.0.0.id())? as f64;
    Ok(Figures { ns: 1e9 / tps, peak: peak as f64, faults })
}

/// Makes the cluster and pgbench's tables.
fn prepare(home: &Path, quick: bool) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", home.display());
    // A cluster half made is no cluster.
    let _ = std::fs::remove_dir_all(home);
    std::fs::create_dir(home).map_err(failed)?;
    if let Some((user, group)) = other_user()? {
        std::os::unix::fs::chown(home, Some(user), Some(group)).map_err(failed)?;
    }
    let mut init = as_its_user(Command::new(find("initdb")?))?;
    init.arg("-D").arg(home.join("data")).args(["-U", "postgres", "-A", "trust", "--no-sync"]);
    child::run(init, LIMIT, "initdb")?;
    let _server = Server::start(home, None)?;
    let mut tables = pgbench(home)?;
    tables.args(["-i", "-q", "-s", if quick { "1" } else { "10" }]);
    child::run(tables, LIMIT, "pgbench -i")?;
    std::fs::write(home.join("ready"), "").map_err(failed)
}

fn pgbench(home: &Path) -> Result<Command, String> {
    let mut command = Command::new(find("pgbench")?);
    command.arg("-h").arg(home).args(["-U", "postgres"]).env("PGDATABASE", "postgres");
    Ok(command)
}

/// A server that is shut down by SIGINT ("fast" in its manual), so that the next one need not recover.
struct Server(KilledOnDrop);

impl Server {
    fn start(home: &Path, allocator: Option<&Allocator>) -> Result<Server, String> {
        let program: PathBuf = find("postgres")?;
        let mut server = as_its_user(match allocator {
            Some(allocator) => command(program, allocator),
            None => Command::new(program),
        })?;
        server.arg("-D").arg(home.join("data")).arg("-k").arg(home);
        server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_wal_size=4GB"]);
        let server = Server(start(server, "postgres")?);
        let deadline = Instant::now() + LIMIT;
        while !ready(home)? {
            if Instant::now() > deadline {
                return Err("postgres does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(allocator) = allocator {
            check_preloaded(server.0.0.id(), allocator)?;
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not waited for yet.
        unsafe { libc::kill(self.0.0.id() as libc::pid_t, libc::SIGINT) };
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && matches!(self.0.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn ready(home: &Path) -> Result<bool, String> {
    let mut ask = Command::new(find("pg_isready")?);
    ask.arg("-q").arg("-h").arg(home).stdin(Stdio::null());
    ask.status().map(|status| status.success()).map_err(|why| format!("pg_isready: {why}"))
}

/// PostgreSQL refuses to be root: then it is the user `postgres`.
fn as_its_user(mut command: Command) -> Result<Command, String> {
    if let Some((user, group)) = other_user()? {
        command.uid(user).gid(group);
    }
    // Not every directory is one that user may be in.
    command.current_dir("/");
    Ok(command)
}

fn other_user() -> Result<Option<(u32, u32)>, String> {
    // SAFETY: geteuid takes and changes nothing; getpwnam takes a C string and returns a static record, read at once.
    unsafe {
        if libc::geteuid() != 0 {
            return Ok(None);
        }
        let found = libc::getpwnam(c"postgres".as_ptr());
        if found.is_null() {
            return Err("as root, PostgreSQL needs the user 'postgres'".into());
        }
        Ok(Some(((*found).pw_uid, (*found).pw_gid)))
    }
}

/// The greatest sum of the anonymous memory of a server and its children; the shared buffers are not malloc's.
fn peak_of_all(server: u32, over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !over.load(Ordering::Relaxed) {
        // A child that has ended in the meantime counts as 0.
        let sum = proc_files::children(server).into_iter().chain([server]).filter_map(proc_files::anonymous).sum();
        peak = peak.max(sum);
        std::thread::sleep(LOOK);
    }
    peak
}
