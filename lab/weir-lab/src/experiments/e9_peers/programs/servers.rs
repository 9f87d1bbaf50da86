//! Redis and memcached under load, on Unix sockets.

use super::stage::{Figures, Stage, check_preloaded, find, start};
use crate::harness::child::{self, KilledOnDrop, command};
use crate::harness::proc_files;
use crate::harness::resp::Client;
use crate::peers::Allocator;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(10);
const LOAD_LIMIT: Duration = Duration::from_secs(180);

/// SET, then GET; the time is the mean of the two.
pub fn redis(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let socket = stage.directory.join("redis");
    let mut server = command(find("redis-server")?, allocator);
    server.args(["--port", "0", "--save", "", "--appendonly", "no"]).arg("--unixsocket").arg(&socket);
    let server = start(server, "redis-server")?;
    drop(Client::connect(&socket, START_LIMIT)?);
    check_preloaded(server.0.id(), allocator)?;
    let mut load = Command::new(find("redis-benchmark")?);
    let requests = if stage.quick { "50000" } else { "1000000" };
    load.arg("-s").arg(&socket).args(["-t", "set,get", "-n", requests, "-r", "200000", "-d", "512", "-P", "16"]);
    let output = child::run(
        {
            load.arg("--csv");
            load
        },
        LOAD_LIMIT,
        "redis-benchmark",
    )?
    .output;
    let a_second = |test: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("\"{test}\",\"")));
        let number = line.and_then(|rest| rest.split('"').next()?.parse::<f64>().ok());
        number.ok_or_else(|| format!("redis-benchmark told nothing of {test}"))
    };
    let ns = (1e9 / a_second("SET")? + 1e9 / a_second("GET")?) / 2.0;
    figures(&server, ns)
}

/// Two clients at once, each with a connection of its own.
pub fn memcached(stage: &Stage, allocator: &Allocator) -> Result<Figures, String> {
    let socket = stage.directory.join("memcached");
    let mut server = command(find("memcached")?, allocator);
    server.arg("-s").arg(&socket).args(["-m", "1024", "-t", "2"]);
    // SAFETY: geteuid takes and changes nothing.
    if unsafe { libc::geteuid() } == 0 {
        // It refuses to run as root without this option.
        server.args(["-u", "root"]);
    }
    let server = start(server, "memcached")?;
    let streams = [connect(&socket)?, connect(&socket)?];
    check_preloaded(server.0.id(), allocator)?;
    let batches = if stage.quick { 200 } else { 10_000 };
    let begin = Instant::now();
    let done = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (1..).zip(streams).map(|(seed, s)| scope.spawn(move || use_cache(s, seed, batches))).collect();
        let done =
            clients.into_iter().map(|client| client.join().unwrap_or_else(|_| Err("the client panicked".into())));
        done.sum::<Result<u64, String>>()
    })?;
    figures(&server, begin.elapsed().as_nanos() as f64 / done as f64)
}

fn figures(server: &KilledOnDrop, ns: f64) -> Result<Figures, String> {
    let pid = server.0.id();
    Ok(Figures { ns, peak: proc_files::peak(pid)? as f64, faults: proc_files::minor_faults(pid)? as f64 })
}

fn connect(socket: &Path) -> Result<UnixStream, String> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(why) if Instant::now() > deadline => return Err(format!("memcached does not listen: {why}")),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Batches of commands, each a set or a get of a random key; every client draws its own. Counts commands.
fn use_cache(stream: UnixStream, seed: u64, batches: u64) -> Result<u64, String> {
    const BATCH: u64 = 64;
    const KEYS: u64 = 100_000;
    let failed = |why: std::io::Error| format!("memcached: {why}");
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
    let mut stream = BufReader::new(stream);
    let (value, mut random, mut line) = (vec![b'w'; 8 << 10], seed, String::new());
    for _ in 0..batches {
        let mut commands = Vec::new();
        for _ in 0..BATCH {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 40) % KEYS;
            if random >> 63 == 0 {
                commands.extend_from_slice(format!("get key:{key}\r\n").as_bytes());
            } else {
                // Every doubling from 16 B to 8 KiB as likely.
                let base = 16usize << ((random >> 33) % 9);
                let size = base + (random >> 45) as usize % base;
                commands.extend_from_slice(format!("set key:{key} 0 0 {size}\r\n").as_bytes());
                commands.extend_from_slice(&value[..size]);
                commands.extend_from_slice(b"\r\n");
            }
        }
        stream.get_mut().write_all(&commands).map_err(failed)?;
        for _ in 0..BATCH {
            read_answer(&mut stream, &mut line)?;
        }
    }
    Ok(batches * BATCH)
}

fn read_answer(stream: &mut BufReader<UnixStream>, line: &mut String) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("memcached: {why}");
    loop {
        line.clear();
        stream.read_line(line).map_err(failed)?;
        match line.trim_end() {
            "STORED" | "END" => return Ok(()),
            found if found.starts_with("VALUE ") => {
                let size = found.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
                let mut value = vec![0; size.ok_or_else(|| format!("memcached answered '{found}'"))? + 2];
                stream.read_exact(&mut value).map_err(failed)?;
            }
            other => return Err(format!("memcached answered '{other}'")),
        }
    }
}
