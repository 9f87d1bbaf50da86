//! `weir-nbd stat`: a running server's report, for people or programs.

use super::report::Report;
use super::settings::Control;
use crate::base::Failure;
use crate::base::size::Size;
use crate::command_line::Stat;
use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Reads the server's report and prints it.
pub fn stat(options: &Stat) -> Result<(), Failure> {
    let (mut socket, name) = connect(Control::of_server(options.control.clone()))?;
    let mut ask = || {
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    let text = ask().map_err(no_answer(&name))?;
    let report: Report = serde_json::from_str(&text).map_err(Failure::because(&name))?;
    let shown = if options.json { text } else { table(&report) };
    match std::io::stdout().write_all(shown.as_bytes()) {
        // Its reader needs no more.
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::because("standard output")),
    }
}

/// Connects to the first of these sockets at which a server listens. A server that was killed has left its socket's file. Where none
/// listens, the failure is of the first file that is there.
fn connect(places: Vec<PathBuf>) -> Result<(UnixStream, String), Failure> {
    let mut failures = Vec::new();
    for path in places {
        let name = path.display().to_string();
        match UnixStream::connect(path) {
            Ok(socket) => return Ok((socket, name)),
            Err(why) => failures.push((why, name)),
        }
    }
    failures.sort_by_key(|(why, _)| why.kind() == ErrorKind::NotFound);
    let first = failures.into_iter().next();
    Err(first.map_or_else(|| Failure::new("no control socket is given"), |(why, name)| no_answer(&name)(why)))
}

fn no_answer(name: &str) -> impl FnOnce(Error) -> Failure {
    Failure::because(format!("no server answers at {name}"))
}

fn table(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments| writeln!(out, "{text}").expect("a string takes all");
    let uptime = humantime::format_duration(Duration::from_secs(report.uptime_seconds));
    line(format_args!("weir-nbd {}, process {}, up {uptime}", report.version, report.pid));
    line(format_args!("{} workers by {}", report.workers, report.io));
    line(format_args!(
        "{} clients now, {} so far, {} refused, {} failed handshakes",
        report.connections, report.accepted, report.refused, report.failed_handshakes
    ));
    let (used, idle) = (report.heap_live_bytes >> 10, report.heap_idle_bytes >> 10);
    line(format_args!("heap: {used} KiB used, {idle} KiB idle"));
    if report.max_memory_bytes > 0 {
        let bounds = [report.max_memory_bytes, report.max_client_memory_bytes, report.max_request_bytes];
        let [all, client, request] = bounds.map(Size);
        let limit = if report.limit_bytes > 0 { Size(report.limit_bytes).to_string() } else { "none".into() };
        line(format_args!(
            "requests may take {all}, one client's {client}, one {request}; limit of all memory: {limit}"
        ));
    }
    let pools = &report.pools;
    line(format_args!(
        "{} page pools: {} KiB idle, {} KiB in flight, {} gets, {} misses; {} squeezes ({} KiB), {} misses after them",
        pools.count,
        pools.idle_pages * 4,
        pools.in_flight_pages * 4,
        pools.gets,
        pools.misses,
        pools.squeezes,
        pools.squeezed_pages * 4,
        pools.misses_after_squeeze
    ));
    if let Some(locked) = &report.locked {
        let (used, all) = (locked.used_bytes >> 10, Size(locked.bytes as u64));
        line(format_args!("locked memory: {used} KiB of {all} used, {} blocks evicted from it", locked.evicted_blocks));
    }
    if let Some(cache) = &report.cache {
        let most = cache.max_bytes.map_or("auto".into(), |max| Size(max).to_string());
        line(format_args!(
            "cache: {} KiB of {most}, {} hits, {} misses, {} KiB dirty, {} blocks written back",
            cache.bytes >> 10,
            cache.hits,
            cache.misses,
            cache.dirty_bytes >> 10,
            cache.written_back
        ));
    }
    let of = |counter: &AtomicU64| counter.load(Relaxed);
    for export in &report.exports {
        let (counted, access) = (&export.counters, if export.read_only { ", read-only" } else { "" });
        line(format_args!(""));
        line(format_args!("{}: {} {}, {}{access}", export.name, export.kind, export.source, Size(export.size_bytes)));
        line(format_args!(
            "  {} clients; {} reads ({} MiB), {} writes ({} MiB), {} flushes, {} trims, {} zeroes, {} others, \
             {} errors",
            of(&counted.connections),
            of(&counted.reads),
            of(&counted.read_bytes) >> 20,
            of(&counted.writes),
            of(&counted.written_bytes) >> 20,
            of(&counted.flushes),
            of(&counted.trims),
            of(&counted.zeroes),
            of(&counted.others),
            of(&counted.errors)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::PoolFigures;

    #[test]
    fn a_report_of_an_older_server_has_no_bounds() {
        let mut report = serde_json::to_value(Report {
            version: "0.1.0".into(),
            pid: 7,
            uptime_seconds: 1,
            workers: 2,
            io: "threads".into(),
            connections: 0,
            accepted: 0,
            refused: 0,
            failed_handshakes: 0,
            heap_live_bytes: 0,
            heap_idle_bytes: 0,
            max_memory_bytes: 16 << 20,
            max_client_memory_bytes: 8 << 20,
            max_request_bytes: 4 << 20,
            limit_bytes: 0,
            cache: None,
            locked: None,
            pools: PoolFigures::default(),
            exports: Vec::new(),
        })
        .expect("it is written");
        let shown = |report: &serde_json::Value| table(&serde_json::from_value(report.clone()).expect("a report"));
        let now = shown(&report);
        assert!(now.contains("requests may take 16M, one client's 8M, one 4M; limit of all memory: none"), "{now}");
        let fields = report.as_object_mut().expect("an object");
        for new in ["max_memory_bytes", "max_client_memory_bytes", "max_request_bytes", "limit_bytes"] {
            assert!(fields.remove(new).is_some(), "{new}");
        }
        let old = shown(&report);
        assert!(old.contains("process 7") && !old.contains("requests may take"), "{old}");
    }
}
