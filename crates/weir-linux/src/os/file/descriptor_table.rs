//! A thread's own table of descriptors.

use crate::os::fd;
use crate::os::process::{RLIMIT_NOFILE, getrlimit};
use crate::os::syscall::{Errno, Result, check, syscall1, syscall3};
use linux_raw_sys::general as sys;

/// Gives the calling thread an empty descriptor table of its own. The program's descriptors stay as they are in
/// all other threads; this thread neither sees them nor keeps their files open.
///
/// To be called first thing on a thread that was started with the program's table. Without `close_range` (before Linux
/// 5.9, or refused by a sandbox) it goes the long way round. Where `unshare` is refused too, it fails and changes
/// nothing.
pub fn private_table() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    // SAFETY: the table is unshared first, so that only this thread's copies are closed.
    if check(unsafe { syscall3(sys::__NR_close_range, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE) }).is_ok() {
        return Ok(());
    }
    // SAFETY: unsharing the table touches no memory.
    check(unsafe { syscall1(sys::__NR_unshare, sys::CLONE_FILES as usize) })?;
    let (open_max, _) = getrlimit(RLIMIT_NOFILE).unwrap_or((1024, 1024));
    for fd in 0..open_max.min(1 << 20) as i32 {
        if let Err(Errno::ENOSYS | Errno::EPERM) = fd::close(fd) {
            break;
        }
    }
    Ok(())
}

/// Descriptors of a table of Weir's own below which files may stay open (choice): some forty are in use, and a program that may
/// open 64 files leaves room for others. The limit itself is not asked for: a filter of the program's may kill for the call.
const KEPT_BELOW: i32 = 48;

/// Of these, descriptors that are left to what comes later by files that are open only to be there (choice).
const LEFT_TO_OTHERS: i32 = 8;

/// Whether the calling thread's own table, in which `file` was opened last, has room for more that stay open.
pub fn has_room(file: i32) -> bool {
    file < KEPT_BELOW
}

/// [`has_room`] for a file that nothing is read from.
pub fn has_room_for_pin(file: i32) -> bool {
    file < KEPT_BELOW - LEFT_TO_OTHERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fd::{eventfd, fstat};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_private_table_leaves_the_programs_files_alone() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let (in_fd, out_fd) = (reader.as_raw_fd(), writer.as_raw_fd());
        let (to_main, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            private_table().unwrap();
            assert_eq!(fstat(in_fd), Err(Errno::EBADF));
            // Numbers given out here mean nothing to the others.
            assert_eq!(eventfd(), Ok(0));
            to_main.send(()).unwrap();
            // Still here, with its table, while the other side looks at the pipe.
            let _ = from_main.recv();
            assert_eq!(fstat(out_fd), Err(Errno::EBADF));
        });
        from_thread.recv().unwrap();
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut all = std::vec::Vec::new();
        // The pipe ends: the thread keeps no copy of the writing end.
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x");
        drop(to_thread);
        thread.join().unwrap();
    }
}
