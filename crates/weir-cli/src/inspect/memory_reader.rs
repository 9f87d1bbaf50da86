//! Reads the memory of other processes, by a child of this one.
//!
//! To read a page, the kernel has it brought in. Of a page that lies in a file system in user space (FUSE), or in a range
//! that a thread of the process answers for (userfaultfd), that takes as long as the process likes: it could have whoever
//! looks at it wait for ever, root too. Such a wait ends with the death of the thread that waits and by nothing else. So
//! this process never reads another one's memory itself. A child does, which lets itself be killed by a timer that it sets
//! before each reading; the next reading has another child.
//!
//! What is asked and answered lies in memory that both share; a message of one byte each way says that it is there. A reading
//! takes some 10 us more than the call itself, and more where the child has to be woken on another CPU, so many processes
//! are read by one message.

use super::reading_child::{Desk, MOST_PROCESSES, PATH, serve};
pub use super::reading_child::{MOST_BYTES, MOST_PLACES, PATIENCE};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr::{addr_of, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Looks at a child that was killed, 5 ms apart.
const LOOKS: usize = 20;

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
            (*desk).processes = 0;
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

/// Reads `length` bytes of each of some processes, from an address of each, by one message to the child for many: to wake
/// it costs as much as what it does. `take` has the place in the list, and the bytes or the error. One of kind `TimedOut` says
/// that the patience, which all of a message share, ended there: the process is to be read alone.
pub fn read_each(from: &[(i32, u64)], length: usize, mut take: impl FnMut(usize, io::Result<&[u8]>)) {
    let at_once = MOST_PROCESSES.min(MOST_BYTES / length);
    let mut begin = 0;
    while begin < from.len() {
        let some = &from[begin..from.len().min(begin + at_once)];
        let mut finished = 0;
        let asked = with_reader(|reader| {
            let answer = reader.ask_each(some, length);
            finished = reader.finished().min(some.len());
            (0..finished).for_each(|place| take(begin + place, reader.of_process(place, length)));
            answer
        });
        begin += finished;
        // The one that it came to is passed over.
        if let Err(error) = asked {
            take(begin, Err(error));
            begin += 1;
        }
    }
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
            (*desk).processes = 0;
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

    /// Has the child read from each of some processes, as [`read_each`] says.
    fn ask_each(&self, from: &[(i32, u64)], length: usize) -> io::Result<()> {
        let desk = self.desk;
        // SAFETY: the desk is mapped, and the child waits for a message.
        let (pids, remote) = unsafe {
            (*desk).processes = from.len();
            (*desk).wanted = length;
            (*desk).read = 0;
            (&mut (*desk).pids, &mut (*desk).remote)
        };
        for (((pid, place), &(of, address)), _) in pids.iter_mut().zip(remote).zip(from).zip(0..MOST_PROCESSES) {
            *pid = of;
            *place = libc::iovec { iov_base: address as *mut _, iov_len: length };
        }
        self.ask().map(drop)
    }

    /// How many processes the child has read from, also if it was killed at the next.
    fn finished(&self) -> usize {
        // SAFETY: the desk is mapped; a child that still runs writes this word whole.
        unsafe { addr_of!((*self.desk).read).read_volatile() as usize }
    }

    /// What was read of one of several processes, of those that are finished.
    fn of_process(&self, place: usize, length: usize) -> io::Result<&[u8]> {
        // SAFETY: the desk has so many processes and bytes, and the child is finished with those of this place.
        let (read, bytes) = unsafe {
            let bytes = addr_of!((*self.desk).bytes).cast::<u8>().add(place * length);
            (addr_of!((*self.desk).reads[place]).read(), std::slice::from_raw_parts(bytes, length))
        };
        match usize::try_from(read) {
            Ok(read) if read == length => Ok(bytes),
            Ok(_) => Err(Errno::FAULT.into()),
            Err(_) => Err(io::Error::from_raw_os_error(-read as i32)),
        }
    }

    /// Has the child read what is on the desk; how many bytes that were.
    fn ask(&self) -> io::Result<usize> {
        let begun = Instant::now();
        let is_answered = send(&self.socket, &[0], SendFlags::NOSIGNAL).is_ok()
            && loop {
                match recv(&self.socket, &mut [0; 1], RecvFlags::empty()) {
                    Ok((read, _)) => break read == 1,
                    // Each interruption (a stop, a freeze of the group) begins the socket's time anew, and one that comes to
                    // the child as well keeps its timer from killing it.
                    Err(Errno::INTR) if begun.elapsed() < 2 * PATIENCE => {}
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
    fn many_processes_are_read_by_a_few_messages_and_each_has_its_own_error() {
        let own = std::process::id() as i32;
        let words: Vec<u64> = (0..100).collect();
        let mut from: Vec<(i32, u64)> = words.iter().map(|word| (own, (word as *const u64) as u64)).collect();
        from[40] = (0, from[40].1);
        from[99] = (own, 8);
        let mut seen = Vec::new();
        read_each(&from, 8, |place, bytes| match bytes {
            Ok(bytes) => {
                assert_eq!(bytes, words[place].to_ne_bytes());
                seen.push((place, None));
            }
            Err(error) => seen.push((place, error.raw_os_error())),
        });
        let error = |place| match place {
            40 => Some(libc::ESRCH),
            99 => Some(libc::EFAULT),
            _ => None,
        };
        assert_eq!(seen, (0..100).map(|place| (place, error(place))).collect::<Vec<_>>());
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
