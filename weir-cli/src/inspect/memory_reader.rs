//! Reads the memory of other processes, by a child of this one.
//!
//! To read a page, the kernel has it brought in. Of a page that lies in a file system in user space (FUSE), or in a range
//! that a thread of the process answers for (userfaultfd), that takes as long as the process likes: it could have whoever
//! looks at it wait for ever, root too. Such a wait ends with the death of the thread that waits and by nothing else. So
//! this process never reads another one's memory itself. A child does, which lets itself be killed by a timer that it sets
//! before each reading; the next reading has another child.
//!
//! A child is made by `fork` alone, so between its first step and its end it makes system calls and nothing else: another
//! thread may hold any lock. What is asked and answered lies in memory that both share; a message of one byte each way says
//! that it is there. A reading takes some 10 us more than the call itself. A child ends when its parent has ended, as the
//! other end of its socket is closed then: it holds no descriptor but its own.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::Mutex;
use std::time::Duration;

/// How long one reading may take: pages of a process in trouble may have to come from a slow disk first.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Places that one reading is of at most; the kernel takes 1024.
pub const MOST_PLACES: usize = 512;
/// Bytes of one reading at most: a huge page.
pub const MOST_BYTES: usize = 2 << 20;
/// Bytes of the path of a file in `/proc`, with the zero behind it.
const PATH: usize = 64;
/// Looks at a child that was killed, 5 ms apart.
const LOOKS: usize = 20;

/// What both processes share.
#[repr(C)]
struct Desk {
    pid: i32,
    /// Places to read from, as many bytes each; 0: the file is read.
    places: usize,
    /// Bytes wanted.
    wanted: usize,
    /// Bytes read; the number of an error, negative.
    read: isize,
    path: [u8; PATH],
    remote: [libc::iovec; MOST_PLACES],
    bytes: [u8; MOST_BYTES],
}

/// A child.
struct Reader {
    pid: i32,
    socket: OwnedFd,
    desk: *mut Desk,
}

// SAFETY: the desk is this reader's alone, on whichever thread it is; its child works on it between two messages only.
unsafe impl Send for Reader {}

/// Children that have nothing to do.
static IDLE: Mutex<Vec<Reader>> = Mutex::new(Vec::new());

/// Fills `bytes` with equal parts from each of the addresses in a process's memory. An error of kind `TimedOut`: the process
/// does not let it be read in time.
pub fn read_memory(pid: i32, addresses: &[u64], bytes: &mut [u8]) -> io::Result<()> {
    if addresses.is_empty() || addresses.len() > MOST_PLACES || bytes.len() > MOST_BYTES {
        return Err(Errno::INVAL.into());
    }
    let part = bytes.len() / addresses.len();
    with_reader(|reader| {
        let desk = reader.desk;
        // SAFETY: the desk is mapped, and the child waits for a message.
        unsafe {
            (*desk).pid = pid;
            (*desk).places = addresses.len();
            (*desk).wanted = bytes.len();
            let remote = &mut (*desk).remote;
            for (place, &address) in remote.iter_mut().zip(addresses) {
                *place = libc::iovec { iov_base: address as *mut _, iov_len: part };
            }
        }
        // A part that cannot be read, such as one beyond the end of its file, ends the reading before its end.
        let read = reader.ask()?;
        if read != bytes.len() {
            return Err(Errno::FAULT.into());
        }
        reader.copy(bytes);
        Ok(())
    })
}

/// The value of a variable in the environment that a process was started with, which lies in its memory.
pub fn variable(pid: i32, name: &str) -> Option<OsString> {
    let environment = environment(pid).ok()?;
    let value = |entry: &[u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    environment.split(|&byte| byte == 0).find_map(value).map(OsString::from_vec)
}

/// The beginning of a process's environment, [`MOST_BYTES`].
pub fn environment(pid: i32) -> io::Result<Vec<u8>> {
    let path = format!("/proc/{pid}/environ");
    with_reader(|reader| {
        let desk = reader.desk;
        // SAFETY: the desk is mapped, and the child waits for a message.
        unsafe {
            (*desk).places = 0;
            (*desk).wanted = MOST_BYTES;
            (*desk).path = [0; PATH];
            let to = &mut (*desk).path;
            // One byte stays zero.
            to.iter_mut().take(PATH - 1).zip(path.bytes()).for_each(|(to, byte)| *to = byte);
        }
        let mut bytes = vec![0; reader.ask()?.min(MOST_BYTES)];
        reader.copy(&mut bytes);
        Ok(bytes)
    })
}

/// Has a child do something; one that did not answer is not used again.
fn with_reader<T>(work: impl FnOnce(&Reader) -> io::Result<T>) -> io::Result<T> {
    let idle = || IDLE.lock().unwrap_or_else(|panicked| panicked.into_inner());
    let waiting = idle().pop();
    let reader = waiting.map_or_else(Reader::new, Ok)?;
    let done = work(&reader);
    if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        idle().push(reader);
    }
    done
}

impl Reader {
    fn new() -> io::Result<Self> {
        let (socket, end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // The child's timer comes first; this is for one that cannot be killed.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(2 * PATIENCE))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, wherever the kernel likes.
        let desk = unsafe { mmap_anonymous(null_mut(), size_of::<Desk>(), protection, flags)? }.cast::<Desk>();
        // SAFETY: the child does what the next block says and nothing else.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the child makes system calls alone, on its own copies of these two, and never returns.
            unsafe { serve(end.as_raw_fd(), desk) }
        }
        if pid < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: mapped above, and nothing else has it.
            let _ = unsafe { munmap(desk.cast(), size_of::<Desk>()) };
            return Err(error);
        }
        Ok(Self { pid, socket, desk })
    }

    /// Has the child read what is on the desk; how many bytes that were.
    fn ask(&self) -> io::Result<usize> {
        let is_answered = send(&self.socket, &[0], SendFlags::NOSIGNAL).is_ok()
            && loop {
                match recv(&self.socket, &mut [0; 1], RecvFlags::empty()) {
                    Ok((read, _)) => break read == 1,
                    Err(Errno::INTR) => {}
                    Err(_) => break false,
                }
            };
        if !is_answered {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        // SAFETY: the desk is mapped, and the child has finished with it.
        let read = unsafe { addr_of!((*self.desk).read).read() };
        usize::try_from(read).map_err(|_| io::Error::from_raw_os_error(-read as i32))
    }

    /// Copies what was read.
    fn copy(&self, bytes: &mut [u8]) {
        // SAFETY: the desk has so many bytes, and the child has finished with them.
        unsafe { addr_of!((*self.desk).bytes).cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: a child that was not waited for, so that its number is not another's. One that cannot be killed is left
        // to whoever adopts it.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            for _ in 0..LOOKS {
                if libc::waitpid(self.pid, null_mut(), libc::WNOHANG) != 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = munmap(self.desk.cast(), size_of::<Desk>());
        }
    }
}

/// What the child does until its parent has ended.
///
/// # Safety
/// By a child of `fork`, with its end of the socket and the desk, which only it works on between a message and its answer.
unsafe fn serve(socket: i32, desk: *mut Desk) -> ! {
    let byte = 0u8;
    // SAFETY: system calls on this process, on the byte above and on the desk, which is mapped; none of them takes a lock of
    // the C library's.
    unsafe {
        leave_parents(socket);
        loop {
            let got = libc::recv(socket, addr_of!(byte).cast_mut().cast(), 1, 0);
            if got == 1 {
                set_timer(PATIENCE);
                let read = if (*desk).places == 0 { read_file(desk) } else { read_places(desk) };
                (*desk).read = read;
                set_timer(Duration::ZERO);
                libc::send(socket, addr_of!(byte).cast(), 1, libc::MSG_NOSIGNAL);
            } else if got == 0 || *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// Closes what the parent had open, and has the timer's signal alone reach this process: it ends with its parent, and by
/// no key of a terminal before.
///
/// # Safety
/// By the child.
unsafe fn leave_parents(socket: i32) {
    // SAFETY: closes descriptors that no code of the child's uses; the sets are values of their type.
    unsafe {
        let close = |first: i32, last: i32| {
            if first <= last && libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
                // Before Linux 5.9. With more of them than this a socket of the parent's may stay open in it.
                for number in first..last.min(4096) {
                    libc::close(number);
                }
            }
        };
        close(0, socket - 1);
        close(socket + 1, i32::MAX);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let mut blocked = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut blocked);
        libc::sigdelset(&raw mut blocked, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const blocked, null_mut());
    }
}

/// Has this process killed after that time; not, after none.
fn set_timer(after: Duration) {
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let at = libc::timeval { tv_sec: after.as_secs() as i64, tv_usec: after.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: none, it_value: at };
    // SAFETY: reads a value of its type.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut()) };
}

/// # Safety
/// By the child, with the desk.
unsafe fn read_places(desk: *mut Desk) -> isize {
    // SAFETY: the kernel writes only inside the desk's bytes, of which no more are wanted than there are, and reads the lists
    // with the lengths given.
    unsafe {
        let local = libc::iovec { iov_base: addr_of_mut!((*desk).bytes).cast(), iov_len: (*desk).wanted };
        let (remote, places) = (addr_of!((*desk).remote).cast(), (*desk).places as u64);
        let read = libc::process_vm_readv((*desk).pid, &raw const local, 1, remote, places, 0);
        if read < 0 { -(*libc::__errno_location() as isize) } else { read }
    }
}

/// # Safety
/// By the child, with the desk.
unsafe fn read_file(desk: *mut Desk) -> isize {
    // SAFETY: the path ends with a zero; the kernel writes only inside the desk's bytes.
    unsafe {
        let file = libc::open(addr_of!((*desk).path).cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut done = 0;
        while file >= 0 && done < (*desk).wanted {
            let to = addr_of_mut!((*desk).bytes).cast::<u8>().add(done);
            match libc::read(file, to.cast(), (*desk).wanted - done) {
                more @ 1.. => done += more as usize,
                _ => break,
            }
        }
        let error = *libc::__errno_location() as isize;
        if file < 0 {
            return -error;
        }
        libc::close(file);
        done as isize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_processs_memory_are_read_and_what_is_not_mapped_is_an_error() {
        let own = std::process::id() as i32;
        let (first, second) = (*b"abcdefgh", *b"ijklmnop");
        let mut bytes = [0; 16];
        let at = [first.as_ptr() as u64, second.as_ptr() as u64];
        read_memory(own, &at, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcdefghijklmnop");
        let refused = read_memory(own, &[at[0], 8], &mut bytes).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
        assert_eq!(read_memory(0, &at, &mut bytes).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(environment(own).unwrap().split(|&byte| byte == 0).any(|entry| entry.starts_with(b"PATH=")));
        assert_eq!(environment(0).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn threads_read_at_the_same_time() {
        let own = std::process::id() as i32;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..200u64 {
                        let (value, mut bytes) = (thread << 32 | round, [0; 8]);
                        read_memory(own, &[(&raw const value) as u64], &mut bytes).unwrap();
                        assert_eq!(u64::from_ne_bytes(bytes), value);
                    }
                });
            }
        });
    }
}
