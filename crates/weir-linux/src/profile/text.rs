//! The heap profile as text, in the form that gperftools wrote and that its readers and `go tool pprof` know.
//!
//! The first line has the sums, then a line for each stack: live objects and bytes, those ever allocated in brackets, and the
//! return addresses. The rate behind the name of the form is 1: the counts are estimates of all allocations already, and are
//! not to be scaled. Behind that is what is mapped where, by which a reader finds names for addresses.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weir_core::profile::layout::{Profile, Stack};

use crate::os::fd;
use crate::os::file::own::OwnFile;
use crate::os::syscall::{Errno, Result};

/// Bytes written at a time.
const BUFFER: usize = 4096;

/// A file that is written through a buffer.
struct Writer {
    file: i32,
    buffer: [u8; BUFFER],
    used: usize,
    failed: Result<()>,
}

impl Writer {
    fn flush(&mut self) -> Result<()> {
        let mut rest = &self.buffer[..self.used];
        self.used = 0;
        while !rest.is_empty() {
            match fd::write(self.file, rest)? {
                0 => return Err(Errno::EIO),
                written => rest = &rest[written..],
            }
        }
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.used == BUFFER {
                self.flush()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER - self.used));
            self.buffer[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
        }
        Ok(())
    }
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.failed = self.put(text.as_bytes());
        self.failed.map_err(|_| fmt::Error)
    }
}

/// Live objects and bytes, allocated objects and bytes.
fn counts(stack: &Stack) -> [u64; 4] {
    [&stack.live_objects, &stack.live_bytes, &stack.allocated_objects, &stack.allocated_bytes]
        .map(|counter| counter.load(Relaxed))
}

/// The stacks that are whole.
fn stacks(profile: &Profile) -> impl Iterator<Item = (&Stack, usize)> {
    let whole = profile.stacks.iter().map(|stack| (stack, stack.depth.load(Acquire) as usize));
    whole.filter(|&(stack, depth)| (1..=stack.frames.len()).contains(&depth))
}

/// Writes the profile to an open file, by system calls alone, and under no lock. Other threads may go on, so that two lines may
/// be of two instants.
pub fn write(profile: &Profile, file: i32) -> Result<()> {
    write_with(profile, || OwnFile::MAPS.open(), file)
}

/// [`write`] with what is mapped as `open_maps` has it. The stacks are in the file before it is opened: without `/proc` there are
/// stacks alone.
fn write_with(profile: &Profile, open_maps: impl FnOnce() -> Result<i32>, file: i32) -> Result<()> {
    let mut writer = Writer { file, buffer: [0; BUFFER], used: 0, failed: Ok(()) };
    let _ = write_stacks(profile, &mut writer);
    writer.failed?;
    writer.flush()?;
    let Ok(maps) = open_maps() else { return Ok(()) };
    let copied = write_maps(maps, &mut writer);
    let _ = fd::close(maps);
    writer.flush().and(copied)
}

fn write_stacks(profile: &Profile, to: &mut Writer) -> fmt::Result {
    let add = |sum: [u64; 4], of: [u64; 4]| core::array::from_fn(|i| sum[i].wrapping_add(of[i]));
    let [live, live_bytes, all, all_bytes] = stacks(profile).map(|(stack, _)| counts(stack)).fold([0; 4], add);
    writeln!(to, "heap profile: {live}: {live_bytes} [{all}: {all_bytes}] @ heap_v2/1")?;
    for (stack, depth) in stacks(profile) {
        let [live, live_bytes, all, all_bytes] = counts(stack);
        write!(to, "  {live}: {live_bytes} [{all}: {all_bytes}] @")?;
        for frame in &stack.frames[..depth] {
            write!(to, " {:#x}", frame.load(Relaxed))?;
        }
        to.write_char('\n')?;
    }
    to.write_str("\nMAPPED_LIBRARIES:\n")
}

fn write_maps(maps: i32, to: &mut Writer) -> Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        match fd::read(maps, &mut buffer)? {
            0 => return Ok(()),
            len => to.put(&buffer[..len])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;
    use std::os::fd::AsRawFd;
    use std::string::String;

    /// The text of an empty profile.
    fn text(open_maps: impl FnOnce() -> Result<i32>) -> String {
        let layout = Layout::new::<Profile>();
        // SAFETY: the type has a size, and a table of atomic words may be zeros. The box has it alone, and frees it.
        let profile = unsafe { Box::from_raw(alloc_zeroed(layout).cast::<Profile>()) };
        let (mut reader, writer) = std::io::pipe().unwrap();
        let reading = std::thread::spawn(move || std::io::read_to_string(&mut reader).unwrap());
        write_with(&profile, open_maps, writer.as_raw_fd()).unwrap();
        drop(writer);
        reading.join().unwrap()
    }

    #[test]
    fn stacks_are_written_also_where_nothing_says_what_is_mapped() {
        let stacks = "heap profile: 0: 0 [0: 0] @ heap_v2/1\n\nMAPPED_LIBRARIES:\n";
        assert_eq!(text(|| Err(Errno::ENOENT)), stacks);
        let whole = text(|| OwnFile::MAPS.open());
        assert!(whole.strip_prefix(stacks).is_some_and(|maps| maps.contains("[stack]\n")), "{whole}");
    }
}
