//! The runs: the two limits in turn, a server for each, until a difference as small as is asked for would be seen.

use super::client::{self, REQUEST};
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::Server;
use crate::harness::statistics::{Paired, Sample};
use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The limits: always squeezed, and the default.
pub const LIMITS: [u64; 2] = [0, 1024];
/// A difference that is to be seen: half the width of the confidence interval of the ratio.
pub const SEEN: f64 = 0.03;

/// What came of one limit.
#[derive(Default)]
pub struct Arm {
    /// MB/s.
    pub rate: Sample,
    /// Requests that the client sent in a run.
    pub requests: Sample,
    /// Of the runs of pages that were asked of the pool: which part it had not, and so came from the zones.
    pub missed: Sample,
}

/// What was measured.
#[derive(Default)]
pub struct Done {
    pub arms: [Arm; 2],
    /// Rates of the first limit over the second's, round by round.
    pub ratios: Sample,
}

/// At least `least` rounds, and until [`SEEN`] would be, but at most `most`.
pub fn all(least: u32, most: u32, bytes: u64) -> Result<Done, String> {
    let folder = Folder::in_memory("e2")?;
    let mut done = Done::default();
    for round in 0..most {
        if round >= least && Paired::of(&done.ratios).interval <= SEEN {
            break;
        }
        let mut rates = [0.0; LIMITS.len()];
        for turn in 0..LIMITS.len() {
            let turn = (turn + round as usize) % LIMITS.len();
            eprintln!("e2, round {}: max_idle_pages {}", round + 1, LIMITS[turn]);
            rates[turn] = one(&folder, LIMITS[turn], bytes, &mut done.arms[turn])?;
        }
        done.ratios.push(rates[0] / rates[1]);
    }
    Ok(done)
}

fn one(folder: &Folder, limit: u64, bytes: u64, arm: &mut Arm) -> Result<f64, String> {
    let control = folder.at("control");
    let options = [format!("--max-idle-pages={limit}"), format!("--control={}", control.display())];
    let mut server = Server::weir(&folder.at("socket"), &[&format!("ram=memory:{bytes}")], &options)?;
    // The volume's own pages are there before the time counts.
    client::write(folder, &server, "ram", bytes, 1 << 20)?;
    let before = pools(&control)?;
    let (rate, requests) = client::write(folder, &server, "ram", bytes, REQUEST)?;
    let after = pools(&control)?;
    server.check()?;
    arm.rate.push(rate);
    arm.requests.push(requests);
    arm.missed.push((after.1 - before.1) / (after.0 - before.0));
    Ok(rate)
}

/// Runs of pages that were asked of the server's pools, and those that they had not.
fn pools(control: &Path) -> Result<(f64, f64), String> {
    let mut text = String::new();
    let read = UnixStream::connect(control).and_then(|mut socket| socket.read_to_string(&mut text));
    read.map_err(|why| format!("weir-nbd's figures: {why}"))?;
    let report: Value = serde_json::from_str(&text).map_err(|why| format!("weir-nbd's figures: {why}"))?;
    let figure = |name: &str| report["pools"][name].as_f64().ok_or_else(|| format!("weir-nbd says no {name}"));
    Ok((figure("gets")?, figure("misses")?))
}
