//! Redis and memcached under load, on Unix sockets.

use super::stage::{Figures, LIMIT, Stage, check_preloaded, find, start};
use crate::harness::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use weir_lab::common::resp;

const START_LIMIT: Duration = Duration::from_secs(10);
/// Commands of memcached's that are sent together, and its keys.
const BATCH: u64 = 64;
const KEYS: usize = 100_000;

pub fn redis(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let socket = stage.folder.at("redis");
    let mut server = under(find("redis-server")?, allocator);
    server.args(resp::SERVER).arg(&socket);
    let server = start(server, "redis-server")?;
    drop(connect(&socket, START_LIMIT)?);
    check_preloaded(server.pid(), allocator)?;
    let mut load = Command::new(find("redis-benchmark")?);
    load.arg("-s").arg(&socket).args(["-t", "set,get", "-n", stage.pick("1000000", "50000")]);
    load.args(["-r", "200000", "-d", "512", "-P", "16", "--csv"]);
    let output = run_child(load, LIMIT, "redis-benchmark")?.output;
    let ns = |test: &str| -> Result<f64> {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("\"{test}\",\"")));
        let rate = line.and_then(|rest| rest.split('"').next()?.parse::<f64>().ok());
        Ok(1e9 / rate.with_context(|| format!("redis-benchmark told nothing of {test}"))?)
    };
    figures(&server, (ns("SET")? + ns("GET")?) / 2.0)
}

pub fn memcached(stage: &Stage, allocator: &Allocator) -> Result<Figures> {
    let socket = stage.folder.at("memcached");
    let mut server = under(find("memcached")?, allocator);
    server.arg("-s").arg(&socket).args(["-m", "1024", "-t", "2"]);
    if nix::unistd::geteuid().is_root() {
        server.args(["-u", "root"]);
    }
    let server = start(server, "memcached")?;
    let streams = [connect(&socket, START_LIMIT)?, connect(&socket, START_LIMIT)?];
    check_preloaded(server.pid(), allocator)?;
    let batches = stage.pick(10_000, 200);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let start = |(thread, stream)| scope.spawn(move || use_cache(stream, Random::new(1, thread), batches));
        let clients: Vec<_> = streams.into_iter().enumerate().map(start).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
    })?;
    figures(&server, begin.elapsed().as_nanos() as f64 / (2 * batches * BATCH) as f64)
}

fn figures(server: &KilledOnDrop, ns: f64) -> Result<Figures> {
    Ok([ns, proc_files::peak(server.pid())?, proc_files::minor_faults(server.pid())?])
}

fn use_cache(stream: UnixStream, mut random: Random, batches: u64) -> Result<()> {
    let (mut stream, value) = (BufReader::new(stream), vec![b'w'; 8 << 10]);
    for _ in 0..batches {
        let mut commands = Vec::new();
        for _ in 0..BATCH {
            let key = random.below(KEYS);
            if random.below(2) == 0 {
                commands.extend(format!("get key:{key}\r\n").bytes());
                continue;
            }
            let size = random.doublings(4, 13);
            commands.extend(format!("set key:{key} 0 0 {size}\r\n").bytes());
            commands.extend_from_slice(&value[..size]);
            commands.extend_from_slice(b"\r\n");
        }
        stream.get_mut().write_all(&commands)?;
        (0..BATCH).try_for_each(|_| read_answer(&mut stream))?;
    }
    Ok(())
}

fn read_answer(stream: &mut BufReader<UnixStream>) -> Result<()> {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim_end() {
            "STORED" | "END" => return Ok(()),
            found if found.starts_with("VALUE ") => {
                let size = found.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
                stream.read_exact(&mut vec![0; size.with_context(|| format!("memcached answered '{found}'"))? + 2])?;
            }
            other => bail!("memcached answered '{other}'"),
        }
    }
}
