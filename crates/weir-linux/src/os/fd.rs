//! File descriptors: open, read, write, poll, eventfd.

use crate::arch::system_call;
use crate::os::syscall::{Errno, Result, check, retry, syscall1, syscall2, syscall3, syscall4, syscall5};
use core::ffi::CStr;
use linux_raw_sys::general as sys;

pub use linux_raw_sys::general::{
    O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};

/// Data may be read.
pub const POLLIN: i16 = sys::POLLIN as i16;
/// A file's contents changed (PSI, cgroup events).
pub const POLLPRI: i16 = sys::POLLPRI as i16;
/// The file is in error, or what it watches is gone.
pub const POLLERR: i16 = sys::POLLERR as i16;
/// The other end hung up.
pub const POLLHUP: i16 = sys::POLLHUP as i16;
/// The descriptor is not open.
pub const POLLNVAL: i16 = sys::POLLNVAL as i16;

/// One entry of `ppoll`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PollFd {
    /// The descriptor; negative ones are ignored.
    pub fd: i32,
    /// The events to wait for.
    pub events: i16,
    /// The events that happened.
    pub revents: i16,
}

/// Opens a file close-on-exec.
pub fn open(path: &CStr, flags: u32) -> Result<i32> {
    openat(sys::AT_FDCWD, path, flags, 0)
}

/// [`open`] with the permissions that a file gets if this call makes it.
pub fn create(path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    openat(sys::AT_FDCWD, path, flags, mode)
}

/// `openat(2)`, always close-on-exec.
pub fn openat(dir: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    let flags = (flags | O_CLOEXEC) as usize;
    retry(|| {
        let path = path.as_ptr() as usize;
        // SAFETY: the path is a C string; opening touches no memory of ours.
        check(unsafe { syscall4(sys::__NR_openat, dir as isize as usize, path, flags, mode as usize) })
    })
    .map(|fd| fd as i32)
}

/// Takes a name from what has it. A link is not followed, and a directory keeps its name.
pub fn unlink(path: &CStr) -> Result<()> {
    // SAFETY: the path is a C string; no memory of ours changes.
    check(unsafe { syscall3(sys::__NR_unlinkat, sys::AT_FDCWD as isize as usize, path.as_ptr() as usize, 0) }).map(drop)
}

/// Reads into a buffer; gives the bytes read.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes only inside `buf`.
    retry(|| check(unsafe { syscall3(sys::__NR_read, fd as usize, buf.as_mut_ptr() as usize, buf.len()) }))
}

/// Reads at an offset, without moving the file's position.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    retry(|| {
        let (at, len) = (buf.as_mut_ptr() as usize, buf.len());
        // SAFETY: the kernel writes only inside `buf`.
        check(unsafe { syscall4(sys::__NR_pread64, fd as usize, at, len, offset as usize) })
    })
}

/// Writes a buffer; gives the bytes written.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: the kernel only reads `buf`.
    retry(|| check(unsafe { syscall3(sys::__NR_write, fd as usize, buf.as_ptr() as usize, buf.len()) }))
}

/// `close(2)`. Never repeated: Linux has closed the descriptor even where it says `EINTR`.
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: closing touches no memory of ours.
    check(unsafe { syscall1(sys::__NR_close, fd as usize) }).map(drop)
}

/// Waits for events, at most `timeout_ns` (for ever without one). Gives the number of entries with events;
/// a signal counts as "none".
pub fn ppoll(fds: &mut [PollFd], timeout_ns: Option<u64>) -> Result<usize> {
    let spec = timeout_ns.map(crate::os::clock::timespec);
    let spec_at = spec.as_ref().map_or(0, |s| core::ptr::from_ref(s) as usize);
    // SAFETY: both the array and the time are valid for the call; no signal mask is given.
    let ret = unsafe { syscall5(sys::__NR_ppoll, fds.as_mut_ptr() as usize, fds.len(), spec_at, 0, 8) };
    match check(ret) {
        Err(Errno::EINTR) => {
            // The kernel leaves the results of an interrupted call undefined.
            fds.iter_mut().for_each(|f| f.revents = 0);
            Ok(0)
        }
        other => other,
    }
}

/// `eventfd2(2)`: non-blocking and close-on-exec.
pub fn eventfd() -> Result<i32> {
    // SAFETY: makes a new descriptor only.
    let fd = check(unsafe { syscall2(sys::__NR_eventfd2, 0, (sys::EFD_CLOEXEC | sys::EFD_NONBLOCK) as usize) })?;
    Ok(fd as i32)
}

/// Adds 1 to an eventfd, which wakes its poller. A full counter (`EAGAIN`) means it is awake already.
pub fn eventfd_signal(fd: i32) -> Result<()> {
    match write(fd, &1u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::EAGAIN) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Takes the count of a non-blocking eventfd, 0 if none.
pub fn eventfd_take(fd: i32) -> Result<u64> {
    let mut count = [0u8; 8];
    match read(fd, &mut count) {
        Ok(8) => Ok(u64::from_ne_bytes(count)),
        Ok(_) => Err(Errno::EINVAL),
        Err(Errno::EAGAIN) => Ok(0),
        Err(e) => Err(e),
    }
}

/// The kind of a file, as its mode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file, or one of a pseudo file system.
    Regular,
    /// A FIFO or pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// Anything else.
    Other,
}

/// A file's account of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The file's kind.
    pub kind: FileKind,
    /// Device and number: no other file has both while this one is there.
    pub id: (u64, u64),
    /// The user that owns it.
    pub owner: u32,
    /// Permission bits.
    pub mode: u32,
    /// Names that it has in file systems.
    pub links: u64,
    /// Length, bytes.
    pub size: u64,
    /// Of a device file: the kind of device, and which one of its kind.
    device: (u64, u64),
}

impl Stat {
    /// What a call that fills a `struct stat` says.
    fn by(call: impl FnOnce(*mut sys::stat) -> isize) -> Result<Self> {
        let mut stat = core::mem::MaybeUninit::<sys::stat>::zeroed();
        check(call(stat.as_mut_ptr()))?;
        // SAFETY: zero is a value of every field, and the kernel filled them.
        let stat = unsafe { stat.assume_init() };
        let device = stat.st_rdev;
        Ok(Self {
            kind: match stat.st_mode & sys::S_IFMT {
                sys::S_IFREG => FileKind::Regular,
                sys::S_IFIFO => FileKind::Fifo,
                sys::S_IFSOCK => FileKind::Socket,
                sys::S_IFCHR => FileKind::CharDevice,
                _ => FileKind::Other,
            },
            id: (stat.st_dev, stat.st_ino),
            owner: stat.st_uid,
            mode: stat.st_mode & 0o7777,
            #[allow(clippy::useless_conversion, reason = "arm64 has 32 bits")]
            links: u64::from(stat.st_nlink),
            size: stat.st_size as u64,
            device: (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & !0xff),
        })
    }

    /// Whether it is a terminal that people look at. A serial line may have anything at its other end.
    pub fn is_screen(&self) -> bool {
        /// Kinds of devices (the kernel's `devices.txt`): consoles and serial lines, the controlling terminal, pseudo-terminals.
        const CONSOLES: u64 = 4;
        const FIRST_SERIAL: u64 = 64;
        const CONTROLLING: u64 = 5;
        const PSEUDO: core::ops::RangeInclusive<u64> = 136..=143;
        let is_terminal = match self.device {
            (CONSOLES, minor) => minor < FIRST_SERIAL,
            (kind, _) => kind == CONTROLLING || PSEUDO.contains(&kind),
        };
        self.kind == FileKind::CharDevice && is_terminal
    }
}

/// The account of an open file, also of one that was opened with `O_PATH`.
pub fn fstat(fd: i32) -> Result<Stat> {
    // SAFETY: the kernel fills one `struct stat`.
    Stat::by(|stat| unsafe { syscall2(sys::__NR_fstat, fd as usize, stat as usize) })
}

/// The account of the file at a path (links followed), without opening it.
pub fn stat(path: &CStr) -> Result<Stat> {
    Stat::by(|stat| {
        let (nr, [a, b, c, d]) = system_call::stat(path.as_ptr() as usize, stat as usize);
        // SAFETY: the path is a C string and the kernel fills one `struct stat`.
        unsafe { syscall4(nr, a, b, c, d) }
    })
}

/// The flags with which an open file was opened, as far as they hold for what is done with it (`O_APPEND`).
pub fn flags(fd: i32) -> Result<u32> {
    // SAFETY: touches no memory of ours.
    check(unsafe { syscall3(sys::__NR_fcntl, fd as usize, sys::F_GETFL as usize, 0) }).map(|flags| flags as u32)
}

/// Bytes of the huge pages that an open file lives in, if it is one of hugetlbfs (`MFD_HUGETLB` makes such a memfd).
pub fn huge_page(fd: i32) -> Result<Option<u64>> {
    let mut statfs = core::mem::MaybeUninit::<sys::statfs>::zeroed();
    // SAFETY: the kernel fills one `struct statfs`.
    retry(|| check(unsafe { syscall2(sys::__NR_fstatfs, fd as usize, statfs.as_mut_ptr() as usize) }))?;
    // SAFETY: zero is a value of every field, and the kernel filled them.
    let statfs = unsafe { statfs.assume_init() };
    Ok((statfs.f_type as u32 == sys::HUGETLBFS_MAGIC).then_some(statfs.f_bsize as u64))
}

/// The seals of a memfd (`F_SEAL_*`). A file that cannot be sealed fails with `EINVAL`.
pub fn seals(fd: i32) -> Result<u32> {
    // SAFETY: touches no memory of ours.
    check(unsafe { syscall3(sys::__NR_fcntl, fd as usize, sys::F_GET_SEALS as usize, 0) }).map(|seals| seals as u32)
}

/// Reads a small file whole into `buf` and gives what was read; a longer file is cut.
pub fn read_file<'a>(path: &CStr, buf: &'a mut [u8]) -> Result<&'a [u8]> {
    let fd = open(path, O_RDONLY)?;
    let result = read_all(fd, buf);
    let _ = close(fd);
    result.map(|len| &buf[..len])
}

/// Reads until the end of the file or of the buffer.
pub fn read_all(fd: i32, buf: &mut [u8]) -> Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match read(fd, &mut buf[len..])? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_wakes_its_poller() {
        let fd = eventfd().unwrap();
        let mut fds = [PollFd { fd, events: POLLIN, revents: 0 }];
        assert_eq!(ppoll(&mut fds, Some(0)), Ok(0));
        eventfd_signal(fd).unwrap();
        eventfd_signal(fd).unwrap();
        assert_eq!(ppoll(&mut fds, None), Ok(1));
        assert_eq!(fds[0].revents, POLLIN);
        assert_eq!(eventfd_take(fd), Ok(2));
        assert_eq!(eventfd_take(fd), Ok(0));
        close(fd).unwrap();
        // Its number may be another test's by now; this one is nobody's.
        fds[0].fd = i32::MAX;
        assert_eq!(ppoll(&mut fds, Some(0)), Ok(1));
        assert_eq!(fds[0].revents, POLLNVAL);
    }

    #[test]
    fn only_terminals_that_show_text_are_screens() {
        let null = stat(c"/dev/null").unwrap();
        assert!(!null.is_screen());
        assert!(!stat(c"/proc/version").unwrap().is_screen());
        let of = |kind, major, minor| Stat { kind, device: (major, minor), ..null }.is_screen();
        assert!(of(FileKind::CharDevice, 136, 7) && of(FileKind::CharDevice, 4, 1) && of(FileKind::CharDevice, 5, 1));
        assert!(!of(FileKind::CharDevice, 4, 64) && !of(FileKind::CharDevice, 1, 3) && !of(FileKind::Other, 136, 7));
    }

    #[test]
    fn files_are_read_and_told_apart() {
        let mut buf = [0u8; 512];
        let text = read_file(c"/proc/version", &mut buf).unwrap();
        assert!(text.ends_with(b"\n"));
        assert_eq!(read_file(c"/no/such/file", &mut buf), Err(Errno::ENOENT));
        assert_eq!(stat(c"/dev/null").unwrap().kind, FileKind::CharDevice);
        let fd = open(c"/proc/version", O_RDONLY).unwrap();
        assert_eq!(fstat(fd).unwrap(), stat(c"/proc/version").unwrap());
        let mut one = [0u8; 1];
        assert_eq!(pread(fd, &mut one, 0), Ok(1));
        assert_eq!(one[0], b'L');
        close(fd).unwrap();
    }
}
