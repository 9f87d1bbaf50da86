//! PostgreSQL under pgbench, in a cluster of its own.

use super::stage::{Figures, LIMIT, Stage, check_preloaded, find, start};
use crate::harness::prelude::*;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};

const LOOK: Duration = Duration::from_millis(20);

pub fn run(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let home = stage.folder.at("postgres");
    if !home.join("ready").exists() {
        prepare(&home, stage.pick("10", "1"))?;
    }
    let server = Server::start(&home, allocator)?;
    check_preloaded(server.0.pid(), allocator)?;
    let mut load = pgbench(&home)?;
    load.args(["-c", "4", "-j", "2", "-T", stage.pick("5", "1")]);
    let over = AtomicBool::new(false);
    let (finished, peak) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| peak_of_all(server.0.pid(), &over));
        let finished = run_child(load, LIMIT, "pgbench");
        over.store(true, Ordering::Relaxed);
        (finished, peak.join().unwrap_or(f64::NAN))
    });
    let output = finished?.output;
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = line.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok()).context("pgbench told no tps")?;
    Ok([1e9 / tps, peak, proc_files::minor_faults(server.0.pid())?])
}

/// Makes the cluster and its tables, on the C library's malloc.
fn prepare(home: &Path, scale: &str) -> Result<()> {
    let _ = std::fs::remove_dir_all(home);
    std::fs::create_dir(home)?;
    if let Some(user) = other_user()? {
        std::os::unix::fs::chown(home, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let mut init = as_its_user(Command::new(find("initdb")?))?;
    init.arg("-D").arg(home.join("data")).args(["-U", "postgres", "-A", "trust", "--no-sync"]);
    run_child(init, LIMIT, "initdb")?;
    let _server = Server::start(home, &Allocator::none())?;
    let mut tables = pgbench(home)?;
    tables.args(["-i", "-q", "-s", scale]);
    run_child(tables, LIMIT, "pgbench -i")?;
    Ok(std::fs::write(home.join("ready"), "")?)
}

fn pgbench(home: &Path) -> Result<Command> {
    let mut command = Command::new(find("pgbench")?);
    command.arg("-h").arg(home).args(["-U", "postgres"]).env("PGDATABASE", "postgres");
    Ok(command)
}

/// A server, which is told to shut down fast when it goes.
struct Server(KilledOnDrop);

impl Server {
    fn start(home: &Path, allocator: &Allocator) -> Result<Server> {
        let mut server = as_its_user(under(find("postgres")?, allocator))?;
        server.arg("-D").arg(home.join("data")).arg("-k").arg(home);
        server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_wal_size=4GB"]);
        let server = Server(start(server, "postgres")?);
        let deadline = Instant::now() + LIMIT;
        let mut ask = Command::new(find("pg_isready")?);
        ask.arg("-q").arg("-h").arg(home).stdin(Stdio::null());
        while !ask.status()?.success() {
            ensure!(Instant::now() < deadline, "postgres does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        restore::send(self.0.pid(), Signal::SIGINT);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && matches!(self.0.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// PostgreSQL refuses to run as root.
fn other_user() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")?.context("as root, PostgreSQL needs the user 'postgres'")?;
    Ok(Some(user))
}

fn as_its_user(mut command: Command) -> Result<Command> {
    if let Some(user) = other_user()? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.current_dir("/");
    Ok(command)
}

/// The greatest sum of the anonymous memory of its processes, until it is over.
fn peak_of_all(server: u32, over: &AtomicBool) -> f64 {
    let mut peak = 0.0;
    while !over.load(Ordering::Relaxed) {
        let all = proc_files::children(server).into_iter().chain([server]);
        peak = f64::max(peak, all.filter_map(proc_files::anonymous).sum());
        std::thread::sleep(LOOK);
    }
    peak
}
