//! The runs: at each point every server in turn.

use super::points::{Point, Size};
use crate::harness::fio::Fio;
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::{Exports, Kind, Server};
use crate::harness::proc_files::cpu_seconds;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use std::io::Write;

/// What a server came to at a point.
#[derive(Default)]
pub struct Cell {
    /// MiB a second.
    pub rate: Sample,
    /// The time that 99 of 100 requests did not take longer than, us.
    pub p99: Sample,
    /// The server's processor time a request, us.
    pub cpu: Sample,
    pub failed: Option<String>,
}

/// A point's cells, in the order of the servers.
pub struct Row {
    pub point: Point,
    pub cells: Vec<Cell>,
}

/// Makes the file that all servers serve, in `folder`.
pub fn make_file(folder: &Folder, size: &Size) -> Result<(), String> {
    let file = folder.at("volumes");
    let make = || {
        std::fs::create_dir(&file)?;
        let mut file = std::fs::File::create(file.join("disk"))?;
        // Not zeroes: what could be seen as a hole would be no data.
        let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8 + 1).collect();
        (0..size.file >> 20).try_for_each(|_| file.write_all(&block))
    };
    make().map_err(|why: std::io::Error| format!("cannot make the file: {why}"))
}

/// Starts a server of that file.
pub fn start(kind: Kind, folder: &Folder) -> Result<Server, String> {
    let names = ["disk".to_string()];
    let volumes = folder.at("volumes");
    Server::start(kind, &Exports { folder: &volumes, names: &names }, &folder.at("socket"), &[], None)
}

/// Measures all points.
pub fn all(rounds: u32, size: &Size, kinds: &[Kind]) -> Result<Vec<Row>, String> {
    let folder = Folder::in_memory("fio")?;
    make_file(&folder, size)?;
    let mut rows = Vec::new();
    for point in Point::all(size.seconds == Size::QUICK.seconds) {
        let mut cells: Vec<Cell> = kinds.iter().map(|_| Cell::default()).collect();
        for (round, turn) in rounds::of(rounds, kinds.len()) {
            eprintln!("fio, {point}, round {} of {rounds}: {}", round + 1, kinds[turn].name());
            let cell = &mut cells[turn];
            if cell.failed.is_some() {
                continue;
            }
            match one(&folder, size, kinds[turn], point) {
                Ok([rate, p99, cpu]) => {
                    cell.rate.push(rate);
                    cell.p99.push(p99);
                    cell.cpu.push(cpu);
                }
                Err(why) => {
                    eprintln!("{}: {why}", kinds[turn].name());
                    cell.failed = Some(why);
                }
            }
        }
        rows.push(Row { point, cells });
    }
    Ok(rows)
}

fn one(folder: &Folder, size: &Size, kind: Kind, point: Point) -> Result<[f64; 3], String> {
    let mut server = start(kind, folder)?;
    let before = cpu_seconds(server.pid())?;
    let outcome = Fio::start(&folder.at("jobs"), &point.jobs(size, &server.uri("disk")))?.outcome()?;
    server.check()?;
    let seconds = cpu_seconds(server.pid())? - before;
    // The processor time is of the warming up too, the requests are not.
    let share = f64::from(size.seconds) / f64::from(size.seconds + size.seconds / 5);
    Ok([
        outcome.bytes_a_second / f64::from(1 << 20),
        outcome.p99_ns / 1e3,
        seconds * 1e6 * share / outcome.requests.max(1.0),
    ])
}
