//! Clients that write, zero, read and flush, each in a part of its own, until the server goes.

use super::drive::SECTOR;
use super::model::Part;
use crate::harness::nbd_client::NbdClient;
use crate::harness::random::Random;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many there are at a time.
pub const WRITERS: usize = 3;
/// Sectors of a part: some of them more than the server's cache has room for.
pub const PART: usize = 8192;
/// Sectors of a request at most: 32 KiB.
const MOST: usize = 64;

/// The parts, one for each writer.
pub struct Parts(Vec<Mutex<Part>>);

/// What the writers were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    pub requests: u64,
    pub flushes: u64,
}

impl Parts {
    /// Of an empty drive.
    pub fn new() -> Parts {
        Parts((0..WRITERS).map(|at| Mutex::new(Part::new((at * PART) as u64, PART))).collect())
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Part> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares all with an image.
    pub fn settle(&self, image: &[u8]) -> Result<(), String> {
        let parts = image.chunks(PART * SECTOR).take(WRITERS).enumerate();
        parts.map(|(at, image)| self.lock(at).settle(image)).collect::<Result<Vec<()>, String>>().map(|_| ())
    }
}

/// Connects and writes to a part until the connection breaks. An error is a wrong answer.
pub fn write(parts: &Parts, own: usize, socket: &Path, random: &mut Random) -> Result<Answers, String> {
    let mut answers = Answers::default();
    // A server that goes while it is greeted is no wrong answer.
    let Ok(mut client) = NbdClient::connect(socket, "drive") else { return Ok(answers) };
    while let Ok(is_flush) = request(parts, own, &mut client, random)? {
        answers.requests += 1;
        answers.flushes += u64::from(is_flush);
    }
    Ok(answers)
}

/// One request; whether it was a flush. The inner error: the connection broke. The outer one: what was read is wrong.
fn request(
    parts: &Parts,
    own: usize,
    client: &mut NbdClient,
    random: &mut Random,
) -> Result<Result<bool, String>, String> {
    let count = 1 + random.below(MOST) as usize;
    // One half of the requests goes to a sixteenth of the part, so that sectors are written again and again.
    let range = if random.below(2) == 0 { PART / 16 } else { PART };
    let sector = random.below(range.min(parts.lock(own).len()) - count) as usize;
    let offset = parts.lock(own).offset(sector);
    let length = (count * SECTOR) as u32;
    Ok(match random.below(20) {
        0..12 => {
            let is_forced = random.below(16) == 0;
            let data = parts.lock(own).begin(sector, count, false);
            client
                .write(offset, &data, is_forced)
                .map(|()| parts.lock(own).answer(sector, count, is_forced))
                .map(|()| false)
        }
        12..14 => {
            parts.lock(own).begin(sector, count, true);
            let done = client.zero(offset, length, random.below(2) == 0);
            done.map(|()| parts.lock(own).answer(sector, count, false)).map(|()| false)
        }
        14..17 => match client.read_to(offset, length) {
            Ok(read) => parts.lock(own).check_read(sector, &read).map(|()| Ok(false))?,
            Err(why) => Err(why),
        },
        _ => {
            // A flush is of all connections: the export says so (`CAN_MULTI_CONN`).
            let answered: Vec<u64> = (0..WRITERS).map(|at| parts.lock(at).answered()).collect();
            let flush = |()| answered.iter().enumerate().for_each(|(at, &answered)| parts.lock(at).flushed(answered));
            client.flush().map(flush).map(|()| true)
        }
    })
}
