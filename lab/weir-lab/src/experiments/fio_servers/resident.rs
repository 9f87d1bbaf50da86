//! What each server holds: when it has started, with clients that do nothing, and after a load.

use super::measure::{make_file, start};
use super::points::{Point, Size};
use crate::harness::fio::Fio;
use crate::harness::folder::Folder;
use crate::harness::nbd_client::NbdClient;
use crate::harness::nbd_servers::Kind;
use crate::harness::proc_files::memory;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use std::time::Duration;

/// The looks, in the order of [`Rest::looks`].
pub const LOOKS: [&str; 5] = ["started", "clients at rest", "each has read 1 MiB", "after a load", "later"];

/// A server's resident set at each look, bytes.
#[derive(Default)]
pub struct Rest {
    pub looks: [Sample; LOOKS.len()],
    pub failed: Option<String>,
}

/// Measures all servers.
pub fn all(rounds: u32, size: &Size, kinds: &[Kind]) -> Result<Vec<Rest>, String> {
    let folder = Folder::in_memory("fio-resident")?;
    make_file(&folder, size)?;
    let mut rests: Vec<Rest> = kinds.iter().map(|_| Rest::default()).collect();
    for (round, turn) in rounds::of(rounds, kinds.len()) {
        eprintln!("fio, resident, round {} of {rounds}: {}", round + 1, kinds[turn].name());
        let rest = &mut rests[turn];
        if rest.failed.is_some() {
            continue;
        }
        match one(&folder, size, kinds[turn]) {
            Ok(bytes) => rest.looks.iter_mut().zip(bytes).for_each(|(look, bytes)| look.push(bytes as f64)),
            Err(why) => {
                eprintln!("{}: {why}", kinds[turn].name());
                rest.failed = Some(why);
            }
        }
    }
    Ok(rests)
}

fn one(folder: &Folder, size: &Size, kind: Kind) -> Result<[u64; LOOKS.len()], String> {
    let server = start(kind, folder)?;
    let resident = || {
        std::thread::sleep(Duration::from_secs(1));
        memory(server.pid()).map(|memory| memory.rss)
    };
    let started = resident()?;
    let connect = |_| NbdClient::connect(server.socket(), server.export("disk"));
    let mut clients = (0..size.clients).map(connect).collect::<Result<Vec<_>, _>>()?;
    let at_rest = resident()?;
    clients.iter_mut().try_for_each(|client| client.read(0, 1 << 20))?;
    let used = resident()?;
    drop(clients);
    let load = Point { is_large: true, is_write: false, depth: 32, jobs: 8 };
    Fio::start(&folder.at("jobs"), &load.jobs(size, &server.uri("disk")))?.outcome()?;
    let after = resident()?;
    std::thread::sleep(Duration::from_secs(size.later));
    Ok([started, at_rest, used, after, resident()?])
}
