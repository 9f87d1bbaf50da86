//! The contents that each sector of a part of the drive may hold after a cut.
//!
//! One client writes to the part, a request at a time. So writes have an order, and all up to one of them are answered. A
//! flush makes the last answered write of each sector safe: after a cut a sector holds that one or any later one.

use super::drive::SECTOR;

/// A write by its number, 0 for the beginning; whether it made zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    number: u64,
    is_zero: bool,
}

/// A part of the drive, to which one client writes.
pub struct Part {
    /// The part's first sector on the drive.
    first: u64,
    /// For each sector what it may hold, in the order of writing.
    sectors: Vec<Vec<Write>>,
    /// Writes begun, and answered.
    begun: u64,
    answered: u64,
}

impl Part {
    /// A part of zeroes.
    pub fn new(first: u64, sectors: usize) -> Part {
        Part { first, sectors: vec![vec![Write { number: 0, is_zero: true }]; sectors], begun: 0, answered: 0 }
    }

    /// Where a sector is on the drive, bytes.
    pub fn offset(&self, sector: usize) -> u64 {
        (self.first + sector as u64) * SECTOR as u64
    }

    /// Begins a write of `count` sectors; the data is for the drive.
    pub fn begin(&mut self, sector: usize, count: usize, is_zero: bool) -> Vec<u8> {
        self.begun += 1;
        let write = Write { number: self.begun, is_zero };
        let mut data = Vec::with_capacity(count * SECTOR);
        for at in sector..sector + count {
            self.sectors[at].push(write);
            data.extend_from_slice(&self.content(at, write));
        }
        data
    }

    /// The write under way is answered; if it was forced it is safe.
    pub fn answer(&mut self, sector: usize, count: usize, is_forced: bool) {
        self.answered = self.begun;
        if is_forced {
            self.sectors[sector..sector + count].iter_mut().for_each(|writes| keep_from(writes, self.begun));
        }
    }

    /// The last write that is answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// A flush that was sent when `answered` was the last answered write has succeeded.
    pub fn flushed(&mut self, answered: u64) {
        self.sectors.iter_mut().for_each(|writes| keep_from(writes, answered));
    }

    /// Compares what was read with what was written last. No write is under way.
    pub fn check_read(&self, sector: usize, read: &[u8]) -> Result<(), String> {
        for (at, found) in (sector..).zip(read.chunks(SECTOR)) {
            let last = self.sectors[at].last().copied();
            if last.is_none_or(|last| self.content(at, last) != found) {
                return Err(format!("sector {}: read {}, written {last:?}", self.first + at as u64, describe(found)));
            }
        }
        Ok(())
    }

    /// Compares the part of an image with what it may be; from then on it is that. All that is wrong, the first few.
    pub fn settle(&mut self, image: &[u8]) -> Result<(), String> {
        let mut wrong = Vec::new();
        for at in 0..self.sectors.len() {
            let found = &image[at * SECTOR..][..SECTOR];
            let writes = &self.sectors[at];
            match writes.iter().rev().find(|&&write| self.content(at, write) == found) {
                Some(&write) => self.sectors[at] = vec![write],
                None => wrong.push(format!(
                    "sector {}: {} is there, may be {:?}..{:?}",
                    self.first + at as u64,
                    describe(found),
                    writes.first(),
                    writes.last()
                )),
            }
        }
        self.answered = self.begun;
        let count = wrong.len();
        wrong.truncate(3);
        if count == 0 { Ok(()) } else { Err(format!("{count} sectors are wrong: {}", wrong.join("; "))) }
    }

    /// The content that a write puts into a sector: its own number, the sector's, then bytes made of both.
    fn content(&self, sector: usize, write: Write) -> [u8; SECTOR] {
        let mut content = [0; SECTOR];
        if !write.is_zero {
            let place = self.first + sector as u64;
            let (words, _) = content.as_chunks_mut::<8>();
            for (at, word) in (0..).zip(words) {
                *word = match at {
                    0 => write.number,
                    1 => place,
                    at => (write.number ^ place << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at),
                }
                .to_le_bytes();
            }
        }
        content
    }
}

/// Forgets what a sector held before its last write that is not above `number`.
fn keep_from(writes: &mut Vec<Write>, number: u64) {
    let keep = writes.iter().rposition(|write| write.number <= number).unwrap_or(0);
    writes.drain(..keep);
}

fn describe(sector: &[u8]) -> String {
    if sector.iter().all(|&byte| byte == 0) {
        return "zeroes".into();
    }
    let word = |at: usize| sector[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    format!("write {} of sector {}", word(0), word(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flushed_may_not_be_lost_and_what_is_not_may() {
        let mut part = Part::new(8, 2);
        let before = vec![0; 2 * SECTOR];
        let lost = part.begin(0, 2, false);
        assert_ne!(lost, before);
        assert_eq!(part.settle(&before), Ok(()), "it was not flushed");
        let first = part.begin(0, 2, false);
        part.answer(0, 2, false);
        let second = part.begin(0, 1, false);
        part.answer(0, 1, false);
        part.flushed(part.answered());
        let wrong = part.settle(&first).unwrap_err();
        assert!(wrong.contains("1 sectors are wrong: sector 8: write 2 of sector 8 is there"), "{wrong}");
        assert_eq!(part.settle(&[&second[..], &first[SECTOR..]].concat()), Ok(()));
        assert!(part.settle(&lost).is_err());
    }

    #[test]
    fn a_flush_covers_what_was_answered_when_it_was_sent() {
        let mut part = Part::new(0, 1);
        let first = part.begin(0, 1, false);
        part.answer(0, 1, false);
        let sent = part.answered();
        part.begin(0, 1, true);
        part.answer(0, 1, false);
        part.flushed(sent);
        assert!(part.check_read(0, &first).is_err() && part.check_read(0, &[0; SECTOR]).is_ok());
        assert_eq!(part.settle(&first), Ok(()));
        let forced = part.begin(0, 1, false);
        part.answer(0, 1, true);
        assert!(part.settle(&first).is_err());
        assert_eq!(part.settle(&forced), Ok(()));
    }
}
