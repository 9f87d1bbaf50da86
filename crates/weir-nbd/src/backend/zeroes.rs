//! Trimming and writing zeroes: by the file system or the device where it can, else as data.

use super::cached::Change;
use super::volume::{Kind, Volume, Zeroes};
use crate::buffers::Buffer;
use crate::io::{Inline, allocate, discard, on_thread, yield_once};
use crate::protocol::{ErrorCode, Fault};
use rustix::fs::{FallocateFlags, fstat};
use std::io;
use std::ops::Range;

/// Zeroes are written in pieces of this many bytes: few calls, and little memory.
pub const CHUNK: usize = 256 << 10;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
/// A file that has become shorter grows by it, as by a write.
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;

impl Volume {
    /// Gives a range's storage back, if what is below can. It is a hint: no error where it cannot.
    pub async fn trim(&self, range: Range<u64>) -> io::Result<()> {
        let emptied = self.empty(&range).await;
        for range in self.pieces(range) {
            let change = self.begin_change(range.clone(), emptied).await;
            match self.release(self.whole_sectors(range)).await {
                Err(why) if is_unsupported(&why) => return Ok(()),
                result => result?,
            }
            change.into_iter().for_each(Change::finish);
        }
        Ok(())
    }

    /// Punches a hole in a file. A device discards, and what is read there then is not known: it may free nothing for a hole, and
    /// write zeroes.
    async fn release(&self, range: Range<u64>) -> io::Result<()> {
        match self.kind {
            Kind::BlockDevice { .. } if range.is_empty() => Ok(()),
            Kind::BlockDevice { .. } => discard(&self.medium.file, range).await,
            _ => self.allocate(PUNCH, range).await,
        }
    }

    /// Makes a range read as zeroes. With `no_hole` it keeps its storage; with `fast` it fails, and changes nothing,
    /// where that would take as long as writing.
    pub async fn write_zeroes(&self, range: Range<u64>, no_hole: bool, fast: bool) -> Result<(), Fault> {
        let emptied = self.empty(&range).await;
        for range in self.pieces(range) {
            let change = self.begin_change(range.clone(), emptied).await;
            self.zero_piece(range, no_hole, fast).await?;
            change.into_iter().for_each(Change::finish);
        }
        Ok(())
    }

    async fn zero_piece(&self, range: Range<u64>, no_hole: bool, fast: bool) -> Result<(), Fault> {
        let inner = self.whole_sectors(range.clone());
        match self.zero(inner.clone(), no_hole, fast).await {
            Ok(()) => {
                // Parts of sectors at either end, which only a block device has.
                self.write_as_data(range.start..inner.start).await?;
                self.write_as_data(inner.end..range.end).await?;
            }
            Err(why) if !is_unsupported(&why) => return Err(why.into()),
            Err(_) if fast => return Err(Fault::new(ErrorCode::NotSupported, "zeroes are written as data here")),
            Err(_) => self.write_as_data(range).await?,
        }
        Ok(())
    }

    /// Zeroes by one call.
    async fn zero(&self, range: Range<u64>, no_hole: bool, fast: bool) -> io::Result<()> {
        let is_device = matches!(self.kind, Kind::BlockDevice { .. });
        if !no_hole && self.may_punch(fast) {
            match self.allocate(PUNCH, range.clone()).await {
                Err(why) if is_unsupported(&why) => {}
                Ok(()) => return self.reach(range.end).await,
                failed => return failed,
            }
        }
        // A device without a command for zeroes is sent them as data by the kernel, and a command may be slow too.
        if fast && is_device {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // A file system may do less at the end of a file that has become shorter.
        self.allocate(ZERO, range.clone()).await?;
        self.reach(range.end).await
    }

    /// Has a file that has become shorter reach `end` again, as a write would. A hole does not make it longer, and what is
    /// behind its end cannot be read.
    async fn reach(&self, end: u64) -> io::Result<()> {
        if self.kind != Kind::File {
            return Ok(());
        }
        let file = self.medium.file.clone();
        let found = match self.medium.inline {
            // Such a file system's server may be asked for it.
            Inline::ByThread => on_thread(&self.medium.file, move || fstat(&file)).await,
            _ => fstat(&file),
        };
        // One byte of the range: what another program writes behind it meanwhile is kept.
        if (found?.st_size as u64) < end { self.write_as_data(end - 1..end).await } else { Ok(()) }
    }

    /// Whether a hole is worth a call. Of a device without a command for zeroes the kernel drops what waits to be written in
    /// its page cache, and then refuses: what was there before is read again.
    fn may_punch(&self, fast: bool) -> bool {
        match self.kind {
            Kind::BlockDevice { zeroes: Zeroes::AsData, .. } => false,
            Kind::BlockDevice { zeroes: Zeroes::ByCommand, .. } => !fast,
            _ => true,
        }
    }

    async fn allocate(&self, mode: FallocateFlags, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let result = loop {
            match allocate(&self.medium.file, mode, range.clone(), self.medium.inline).await {
                Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                result => break result,
            }
        };
        if let Some(data) = &self.data {
            data.remove(range);
        }
        result
    }

    async fn write_as_data(&self, range: Range<u64>) -> io::Result<()> {
        self.becomes_data(range.clone());
        let (mut at, mut zeroes) = (range.start, None);
        while at < range.end {
            let length = (range.end - at).min(CHUNK as u64) as usize;
            let buffer = match zeroes.take() {
                Some(buffer) => buffer,
                None => Buffer::zeroes(length)?,
            };
            zeroes = Some(self.medium.write(at, buffer, 0..length).await?);
            at += length as u64;
            // In memory a write waits for nothing, and a range may be long: the worker's other clients have their turn.
            yield_once().await;
        }
        Ok(())
    }

    /// The part of a range that the volume can take at once: all of it in files, whole sectors of a device.
    fn whole_sectors(&self, range: Range<u64>) -> Range<u64> {
        let Kind::BlockDevice { sector, .. } = self.kind else { return range };
        let sector = u64::from(sector);
        let (start, end) = (range.start.next_multiple_of(sector), range.end / sector * sector);
        // A range inside one sector has no whole one: all of it is its end.
        if start < end { start..end } else { range.start..range.start }
    }
}

/// The file system, the device or the kernel does not do it.
fn is_unsupported(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV | libc::ENOTTY))
}

#[cfg(test)]
mod tests {
    use super::super::open::Source;
    use super::super::testing::run;
    use super::*;
    use crate::base::size::Size;
    use std::cell::Cell;

    #[test]
    fn what_a_device_without_a_command_for_zeroes_declines_changes_nothing() {
        run(async {
            let mut volume = Source::Memory(Size(8192)).open(false, None).expect("memory");
            volume.kind = Kind::BlockDevice { sector: 512, zeroes: Zeroes::AsData };
            volume.write(0, Buffer::copy_of(&[7; 8192]).expect("memory")).await.expect("memory");
            for no_hole in [false, true] {
                let declined = volume.write_zeroes(0..4096, no_hole, true).await;
                assert!(declined.is_err_and(|why| why.code == ErrorCode::NotSupported));
            }
            let read = async || volume.read(0..8192).await.map_err(|(why, _)| why).expect("memory");
            assert!(read().await.filled() == [7; 8192]);
            volume.write_zeroes(100..5000, false, false).await.expect("they are written");
            assert!(*read().await.filled() == [vec![7; 100], vec![0; 4900], vec![7; 3192]].concat());
        });
    }

    #[test]
    fn a_command_for_zeroes_is_no_discard_and_may_be_slow() {
        run(async {
            let mut volume = Source::Memory(Size(8192)).open(false, None).expect("memory");
            volume.kind = Kind::BlockDevice { sector: 512, zeroes: Zeroes::ByCommand };
            volume.write(0, Buffer::copy_of(&[7; 8192]).expect("memory")).await.expect("memory");
            let read = async |volume: &Volume| volume.read(0..8192).await.map_err(|(why, _)| why).expect("memory");
            volume.trim(0..8192).await.expect("it is a hint");
            assert!(read(&volume).await.filled() == [7; 8192], "memory cannot discard");
            let declined = volume.write_zeroes(0..4096, false, true).await;
            assert!(declined.is_err_and(|why| why.code == ErrorCode::NotSupported));
            assert!(read(&volume).await.filled() == [7; 8192]);
            volume.kind = Kind::BlockDevice { sector: 512, zeroes: Zeroes::Fast };
            volume.write_zeroes(0..4096, false, true).await.expect("a command is there");
            assert!(*read(&volume).await.filled() == [[0; 4096], [7; 4096]].concat());
        });
    }

    #[test]
    fn others_have_their_turn_while_zeroes_are_written_to_memory() {
        run(async {
            let chunks = 16;
            let size = chunks * CHUNK as u64;
            let volume = Source::Memory(Size(size)).open(false, None).expect("memory");
            let turns = Cell::new(0);
            let others = async {
                loop {
                    turns.set(turns.get() + 1);
                    yield_once().await;
                }
            };
            tokio::select! {
                biased;
                written = volume.write_as_data(0..size) => written.expect("memory"),
                () = others => {}
            }
            assert!(turns.get() >= chunks, "{} turns", turns.get());
        });
    }
}
