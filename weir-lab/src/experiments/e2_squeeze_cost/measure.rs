//! The runs: the two limits in turn, a server for each.

use super::client::Client;
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::Server;
use crate::harness::rounds;
use crate::harness::statistics::Sample;

/// The limits: always squeezed, and the default.
pub const LIMITS: [u64; 2] = [0, 1024];

/// MB/s at each of the limits.
pub fn all(rounds: u32, client: Client, bytes: u64) -> Result<[Sample; 2], String> {
    let folder = Folder::in_memory("e2")?;
    let mut done = [Sample::default(), Sample::default()];
    for (round, turn) in rounds::of(rounds, LIMITS.len()) {
        eprintln!("e2, round {} of {rounds}: max_idle_pages {}", round + 1, LIMITS[turn]);
        let export = format!("ram=memory:{bytes}");
        let options = [format!("--max-idle-pages={}", LIMITS[turn])];
        let mut server = Server::weir(&folder.at("socket"), &[&export], &options)?;
        let rate = client.write(&folder, &server, "ram", bytes)?;
        server.check()?;
        done[turn].push(rate);
    }
    Ok(done)
}
