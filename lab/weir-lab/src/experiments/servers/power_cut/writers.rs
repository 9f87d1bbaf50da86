//! Clients that write, zero, read and flush, each in a part of its own, until the server goes.

use super::drive::SECTOR;
use super::model::Part;
use crate::harness::nbd::client::NbdClient;
use crate::harness::prelude::*;
use anyhow::Result as Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const WRITERS: usize = 3;
/// Sectors of a part, and of a request at most.
pub const PART: usize = 8192;
const MOST: usize = 64;

/// Answers to the writes.
#[derive(Clone, Copy, Default)]
pub struct Answers {
    pub requests: u64,
    pub flushes: u64,
}

pub struct Parts(Vec<Mutex<Part>>);

impl Parts {
    pub fn new() -> Parts {
        Parts((0..WRITERS).map(|at| Mutex::new(Part::new((at * PART) as u64, PART))).collect())
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Part> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the drive holds now as what each part holds; an error is what may not be.
    pub fn settle(&self, image: &[u8]) -> Result<(), String> {
        let mut parts = image.chunks(PART * SECTOR).take(WRITERS).enumerate();
        parts.try_for_each(|(at, image)| self.lock(at).settle(image))
    }
}

/// Sends requests until the server goes. An error is something read that was not written.
pub fn write(parts: &Parts, own: usize, socket: &Path, random: &mut Random) -> Result<Answers, String> {
    let mut answers = Answers::default();
    let Ok(mut client) = NbdClient::connect(socket, "drive") else { return Ok(answers) };
    loop {
        match request(parts, own, &mut client, random) {
            Ok(Ok(flushes)) => {
                answers.requests += 1;
                answers.flushes += flushes;
            }
            Ok(Err(wrong)) => return Err(wrong),
            Err(_is_gone) => return Ok(answers),
        }
    }
}

/// A request: how many flushes it was, or what was wrong.
fn request(parts: &Parts, own: usize, client: &mut NbdClient, random: &mut Random) -> Any<Result<u64, String>> {
    let count = 1 + random.below(MOST);
    // Half of them in a sixteenth of the part.
    let range = if random.below(2) == 0 { PART / 16 } else { PART };
    let sector = random.below(range - count);
    let (offset, length) = (parts.lock(own).offset(sector), count * SECTOR);
    match random.below(20) {
        0..12 => {
            let is_forced = random.below(16) == 0;
            let data = parts.lock(own).begin(sector, count, false);
            client.write(offset, &data, is_forced)?;
            parts.lock(own).answer(sector, count, is_forced);
        }
        12..14 => {
            parts.lock(own).begin(sector, count, true);
            client.zero(offset, length, random.below(2) == 0)?;
            parts.lock(own).answer(sector, count, false);
        }
        14..17 => {
            let read = client.read(offset, length)?;
            return Ok(parts.lock(own).check_read(sector, &read).map(|()| 0));
        }
        _ => {
            // What was answered before the flush is sent, of every part: the flush is the export's.
            let answered: Vec<u64> = (0..WRITERS).map(|at| parts.lock(at).answered()).collect();
            client.flush()?;
            answered.iter().enumerate().for_each(|(at, &answered)| parts.lock(at).flushed(answered));
            return Ok(Ok(1));
        }
    }
    Ok(Ok(0))
}
