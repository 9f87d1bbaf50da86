//! Which parts of a volume are holes.

use super::data_map::DataMap;
use super::volume::Volume;
use crate::io::on_thread;
use crate::protocol::Extent;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;

impl Volume {
    /// The extents of a range, from its start on: all of it, or the first `most` of them. What is dirty is written below
    /// first; where it cannot be, all of the range is called data.
    pub async fn extents(&self, range: Range<u64>, most: usize) -> Vec<Extent> {
        let whole = Extent { length: range.end - range.start, is_hole: false };
        let Some(known) = self.data.clone().filter(|_| !self.is_data(&range)) else { return vec![whole] };
        if self.is_dirty(&range) && (self.is_read_only() || self.write_back(range.clone()).await.is_err()) {
            return vec![whole];
        }
        let file = self.medium.file.clone();
        // Not by the worker itself: the file system may have to read its own tables first.
        on_thread(&self.medium.file, move || extents(&file, &known, range, most)).await
    }
}

/// Where it cannot be said, there is data: true of every range. What is found to be data is added to `known`.
fn extents(file: &OwnedFd, known: &DataMap, range: Range<u64>, most: usize) -> Vec<Extent> {
    let (mut at, mut out) = (range.start, Vec::<Extent>::new());
    while at < range.end {
        let (end, is_hole) = match known.end(at, range.end) {
            end if end > at => (end, false),
            _ => ask(file, known, at).unwrap_or((range.end, false)),
        };
        let is_full = out.len() == most;
        let end = end.clamp(at + 1, range.end);
        match out.last_mut() {
            // What was known, and what is behind it.
            Some(last) if last.is_hole == is_hole => last.length += end - at,
            _ if is_full => break,
            _ => out.push(Extent { length: end - at, is_hole }),
        }
        at = end;
    }
    out
}

/// The extent at `at`, as the file system says. Data is remembered.
fn ask(file: &OwnedFd, known: &DataMap, at: u64) -> rustix::io::Result<(u64, bool)> {
    let (end, is_hole) = extent(file, at)?;
    // Behind the end of a file that has become shorter there is neither.
    if !is_hole && end < u64::MAX {
        known.add(at..end);
    }
    Ok((end, is_hole))
}

/// The end of the extent at `at`, and whether it is a hole.
fn extent(file: &OwnedFd, at: u64) -> rustix::io::Result<(u64, bool)> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) if data > at => Ok((data, true)),
        Ok(_) => Ok((seek(file, SeekFrom::Hole(at))?, false)),
        // No data from here on: a hole to the file's end. Behind that, in a file that has become shorter, a read fails:
        // that is no hole.
        Err(Errno::NXIO) => {
            let size = fstat(file)?.st_size as u64;
            if at < size { Ok((size, true)) } else { Ok((u64::MAX, false)) }
        }
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn hole(length: u64) -> Extent {
        Extent { length, is_hole: true }
    }
    fn unknown() -> DataMap {
        DataMap::new(1 << 20, false)
    }
    fn data(length: u64) -> Extent {
        Extent { length, is_hole: false }
    }

    #[test]
    fn holes_and_data_take_turns() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 1 << 20).expect("a length");
        assert_eq!(extents(&file, &unknown(), 0..1 << 20, 9), [hole(1 << 20)]);
        rustix::io::pwrite(&file, &[1; 8192], 65536).expect("memory");
        assert_eq!(extents(&file, &unknown(), 0..1 << 20, 9), [hole(65536), data(8192), hole((1 << 20) - 73728)]);
        assert_eq!(extents(&file, &unknown(), 0..1 << 20, 2), [hole(65536), data(8192)]);
        assert_eq!(extents(&file, &unknown(), 65540..65550, 9), [data(10)]);
        assert_eq!(extents(&file, &unknown(), 100..200, 9), [hole(100)]);
    }

    #[test]
    fn behind_the_end_of_a_file_that_shrank_is_no_hole() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 4096).expect("a length");
        assert_eq!(extents(&file, &unknown(), 0..8192, 9), [hole(4096), data(4096)]);
    }

    #[test]
    fn where_there_are_no_extents_all_is_data() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(extents(&reader.into(), &unknown(), 5..105, 9), [data(100)]);
    }

    #[test]
    fn what_is_known_to_be_data_is_not_asked_about() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 1 << 20).expect("a length");
        rustix::io::pwrite(&file, &[1; 8192], 65536).expect("memory");
        let known = unknown();
        let expected = [hole(65536), data(8192), hole((1 << 20) - 73728)];
        assert_eq!(extents(&file, &known, 0..1 << 20, 9), expected);
        let end = |at| known.end(at, 1 << 20);
        assert_eq!((end(0), end(65536)), (0, 73728), "data is remembered, and holes are not");
        // As if it were all data: only what is not known is asked about.
        known.add(0..1 << 19);
        assert_eq!(extents(&file, &known, 0..1 << 20, 9), [data(1 << 19), hole(1 << 19)]);
        rustix::io::pwrite(&file, &[1; 4096], 1 << 19).expect("memory");
        let expected = [data((1 << 19) + 4096), hole((1 << 19) - 4096)];
        assert_eq!(extents(&file, &known, 0..1 << 20, 9), expected, "one extent");
        assert_eq!(extents(&file, &known, 0..1 << 20, 1), expected[..1]);
    }
}
