//! weir-nbd, nbdkit and qemu-nbd under fio, in two parts. `throughput`: requests small and random, large and in sequence, at the
//! ends of queue depth and of clients. They go against each server in turn, on a Unix socket and a file in memory. `resident`:
//! what each server holds at rest, with clients that do nothing, after each read 1 MiB, after a load, and later.
//!
//! Goals: throughput at least 1.2 times the better of the others', p99 and processor time below it. A server at rest holds 6 MiB.
//! With clients at rest it holds a tenth of the others'. The file is tmpfs's: servers that map it would count it.

use crate::harness::nbd::client::NbdClient;
use crate::harness::nbd::fio::{Fio, PROGRAM};
use crate::harness::nbd::servers::{Kind, Server, make_volume};
use crate::harness::prelude::*;

/// A load: whether it is large and in sequence, whether it writes, its depth and its clients.
#[derive(Clone, Copy)]
struct Point(bool, bool, u32, u32);

impl Display for Point {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let block = if self.0 { "1 MiB sequential" } else { "4 KiB random" };
        write!(f, "{block} {}, depth {}, {} clients", if self.1 { "write" } else { "read" }, self.2, self.3)
    }
}

impl Point {
    fn jobs(self, bytes: u64, seconds: u32, uri: &str) -> String {
        let Point(is_large, is_write, depth, jobs) = self;
        let pattern = if is_write { "write" } else { "read" };
        // Each client of a sequential load has a part of its own.
        let (prefix, block, part) = if is_large { ("", "1m", bytes / u64::from(jobs)) } else { ("rand", "4k", bytes) };
        let offset = if is_large { part } else { 0 };
        format!(
            "[load]\nioengine=nbd\nuri={uri}\nthread=1\nrw={prefix}{pattern}\nbs={block}\niodepth={depth}\nnumjobs={jobs}\n\
             size={part}\noffset_increment={offset}\ntime_based=1\nruntime={seconds}\nramp_time={}\nrandrepeat=0\n",
            seconds / 5
        )
    }
}

pub fn run(lab: &mut Lab) -> Result<()> {
    let parts = lab.chosen(&["throughput", "resident"])?;
    if lab.lacks(&[PROGRAM, Kind::Weir.need()]) {
        return Ok(());
    }
    let (kinds, absent): (Vec<Kind>, Vec<Kind>) =
        Kind::ALL.into_iter().partition(|kind| kind.need().missing().is_none());
    lab.skips("servers", absent.iter().filter_map(|kind| kind.need().missing()).collect());
    let _lock = machine::lock()?;
    lab.args.subject = Kind::Weir.to_string();
    let (bytes, seconds, clients, later) = lab.pick((1 << 30, 10, 500, 15), (64 << 20, 1, 50, 1));
    let folder = Folder::in_memory("fio")?;
    let volumes = folder.below("volumes")?;
    make_volume(&volumes.join("disk"), bytes)?;
    let start = |kind| Server::start(kind, &volumes, &["disk".to_string()], &folder.at("socket"), &[], None);
    let outcome = |server: &Server, point: Point| {
        Fio::start(&folder.at("jobs"), &point.jobs(bytes, seconds, &server.uri("disk")))?.outcome()
    };
    if parts.contains(&"throughput") {
        let ends = [(1, 1), (1, 8), (32, 1), (32, 8)].into_iter().filter(|ends| !lab.args.quick || *ends == (32, 1));
        let points: Vec<Point> = [(false, false), (false, true), (true, false), (true, true)]
            .into_iter()
            .flat_map(|(large, write)| ends.clone().map(move |(depth, jobs)| Point(large, write, depth, jobs)))
            .collect();
        let measures = vec![more("MiB/s").mib(), less("p99, us"), less("processor time of the server a request, us")];
        lab.by_measure(measures, &points, &kinds, |point, kind| {
            let mut server = start(*kind)?;
            let before = cpu_seconds(server.child.pid())?;
            let outcome = outcome(&server, *point)?;
            server.check()?;
            // fio counts what comes after the ramp, the server all.
            let share = f64::from(seconds) / f64::from(seconds + seconds / 5);
            let cpu = (cpu_seconds(server.child.pid())? - before) * 1e6 * share / outcome.requests.max(1.0);
            Ok(vec![outcome.bytes_a_second, outcome.p99_ns / 1e3, cpu])
        });
    }
    if parts.contains(&"resident") {
        let looks = ["started, MiB", "clients at rest", "each has read 1 MiB", "after a load", "later"];
        let case = format!("Resident, {clients} clients");
        lab.by_case(looks.map(|look| less(look).mib()).into(), &[case], &kinds, |_, kind| {
            let server = start(*kind)?;
            let resident = |seconds| {
                std::thread::sleep(Duration::from_secs(seconds));
                memory(server.child.pid()).map(|memory| memory.rss)
            };
            let mut figures = vec![resident(1)?];
            let connect = |_| NbdClient::connect(&server.socket, server.export("disk"));
            let mut connected = (0..clients).map(connect).collect::<Result<Vec<_>>>()?;
            figures.push(resident(1)?);
            connected.iter_mut().try_for_each(|client| client.read(0, 1 << 20).map(drop))?;
            figures.push(resident(1)?);
            drop(connected);
            outcome(&server, Point(true, false, 32, 8))?;
            figures.push(resident(1)?);
            figures.push(resident(later + 1)?);
            Ok(figures)
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_client_of_a_sequential_load_has_its_part() {
        let text = super::Point(true, true, 32, 8).jobs(1 << 30, 10, "nbd://x");
        assert!(text.contains("rw=write\nbs=1m\niodepth=32\nnumjobs=8\nsize=134217728\noffset_increment=134217728\n"));
        assert!(super::Point(false, false, 1, 8).jobs(1 << 30, 10, "x").contains("rw=randread\nbs=4k"));
    }
}
