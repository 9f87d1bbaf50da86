//! Reads the memory of other processes, by a child of this one.
//!
//! To read a page, the kernel has it brought in. Some pages lie in a file system in user space (FUSE), or in a range that a
//! thread of the process answers for (userfaultfd). To bring such a page in takes as long as the process likes: it
//! could make any reader wait for ever, root's too. Such a wait ends with the death of the thread that waits and by
//! nothing else. So this process never reads another one's memory itself. A child does, which lets itself be killed by a
//! timer that it sets before each reading; the next reading has another child.
//!
//! Questions and answers lie in memory that both share; a message of one byte each way says that it is there. A reading takes
//! some 10 us more than the call itself, and more where the child has to be woken on another CPU. So many places are read by
//! one message.
//!
//! A child is made by `fork` alone, and another thread may hold any lock then. So between its first step and its end the
//! child makes system calls and nothing else. It ends when its parent has ended, as the other end of its socket is closed
//! then. It holds no descriptor but its own.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long one message may take: pages of a process in trouble may have to come from a slow disk first.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Places that one message is of at most.
pub const MOST_PLACES: usize = 512;
/// Bytes of one message at most: a huge page.
const MOST_BYTES: usize = 2 << 20;
/// Bytes of the path of a file in `/proc`, with the zero behind it.
const PATH: usize = 64;
/// Looks at a child that was killed, 5 ms apart.
const LOOKS: usize = 20;

/// The memory that both processes share.
#[repr(C)]
struct Desk {
    /// Places to read from; 0: the file at `path` is read.
    places: usize,
    /// Bytes wanted of each place, or of the file.
    length: usize,
    /// How many places the child is finished with.
    finished: usize,
    /// The process of each place, where it begins there, and how many bytes were read; the number of an error, negative.
    pids: [i32; MOST_PLACES],
    addresses: [u64; MOST_PLACES],
    reads: [isize; MOST_PLACES],
    path: [u8; PATH],
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
    let length = bytes.len() / addresses.len().max(1);
    let from: Vec<(i32, u64)> = addresses.iter().map(|&address| (pid, address)).collect();
    // Of no place, or of more bytes than a message has.
    let mut done = Err(Errno::INVAL.into());
    read_each(&from, length, |place, read| {
        done = read.map(|read| bytes[place * length..][..length].copy_from_slice(read));
        done.is_ok()
    });
    done
}

/// Reads `length` bytes from each of some places in processes' memory, by one message to the child for many. To wake the
/// child costs as much as what it does.
///
/// `take` has the place in the list, and the bytes or the error, and says whether to go on. An error of kind `TimedOut` says
/// that the patience, which all of a message share, ended there: the process is to be read alone.
pub fn read_each(from: &[(i32, u64)], length: usize, mut take: impl FnMut(usize, io::Result<&[u8]>) -> bool) {
    let at_once = MOST_PLACES.min(MOST_BYTES / length.max(1));
    let (mut begin, mut goes_on) = (0, at_once > 0);
    while goes_on && begin < from.len() {
        let some = &from[begin..from.len().min(begin + at_once)];
        let mut finished = 0;
        let asked = with_reader(|reader| {
            let answer = reader.ask_places(some, length);
            finished = reader.finished().min(some.len());
            goes_on = (0..finished).all(|place| take(begin + place, reader.of_place(place, length)));
            answer
        });
        begin += finished;
        // The one that it came to is passed over.
        if let (true, Err(error)) = (goes_on, asked) {
            goes_on = take(begin, Err(error));
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
    with_reader(|reader| {
        let desk = reader.desk;
        // SAFETY: the desk is mapped, and the child waits for a message.
        let path = unsafe {
            ((*desk).places, (*desk).length, (*desk).path) = (0, MOST_BYTES, [0; PATH]);
            &mut (*desk).path
        };
        // One byte stays zero.
        path.iter_mut().take(PATH - 1).zip(format!("/proc/{pid}/environ").bytes()).for_each(|(to, byte)| *to = byte);
        reader.ask()?;
        // SAFETY: the desk is mapped, and the child has finished with it.
        let read = unsafe { (*desk).reads[0] };
        let read = usize::try_from(read).map_err(|_| io::Error::from_raw_os_error(-read as i32))?;
        Ok(reader.bytes(0, read.min(MOST_BYTES)).to_vec())
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

    /// Has the child read so many bytes from each place.
    fn ask_places(&self, from: &[(i32, u64)], length: usize) -> io::Result<()> {
        let desk = self.desk;
        // SAFETY: the desk is mapped, and the child waits for a message.
        let (pids, addresses) = unsafe {
            ((*desk).places, (*desk).length, (*desk).finished) = (from.len(), length, 0);
            (&mut (*desk).pids, &mut (*desk).addresses)
        };
        for ((pid, address), &place) in pids.iter_mut().zip(addresses).zip(from) {
            (*pid, *address) = place;
        }
        self.ask()
    }

    /// How many places the child has read from, also if it was killed at the next.
    fn finished(&self) -> usize {
        // SAFETY: the desk is mapped; a child that still runs writes this word whole.
        unsafe { addr_of!((*self.desk).finished).read_volatile() }
    }

    /// The bytes read of a place that is finished.
    fn of_place(&self, place: usize, length: usize) -> io::Result<&[u8]> {
        // SAFETY: the desk is mapped, and the child is finished with this place.
        let read = unsafe { addr_of!((*self.desk).reads[place]).read() };
        match usize::try_from(read) {
            Ok(read) if read == length => Ok(self.bytes(place * length, length)),
            // A part that cannot be read, such as one beyond the end of its file, ends the reading before its end.
            Ok(_) => Err(Errno::FAULT.into()),
            Err(_) => Err(io::Error::from_raw_os_error(-read as i32)),
        }
    }

    fn bytes(&self, begin: usize, length: usize) -> &[u8] {
        assert!(begin.checked_add(length).is_some_and(|end| end <= MOST_BYTES));
        // SAFETY: the desk has so many bytes, and the child is finished with these.
        unsafe { std::slice::from_raw_parts(addr_of!((*self.desk).bytes).cast::<u8>().add(begin), length) }
    }

    /// Has the child read what is on the desk.
    fn ask(&self) -> io::Result<()> {
        let begun = Instant::now();
        let is_answered = send(&self.socket, &[0], SendFlags::NOSIGNAL).is_ok()
            && loop {
                match recv(&self.socket, &mut [0; 1], RecvFlags::empty()) {
                    Ok((read, _)) => break read == 1,
                    // Each interruption (a stop, a freeze of the group) begins the socket's time anew. One that comes to the
                    // child as well keeps its timer from killing it.
                    Err(Errno::INTR) if begun.elapsed() < 2 * PATIENCE => {}
                    Err(_) => break false,
                }
            };
        if is_answered { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
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

/// The child's loop, until its parent has ended.
///
/// # Safety
/// By a child of `fork`, with its end of the socket and the desk. Only the child works on the desk between a message and its
/// answer.
unsafe fn serve(socket: i32, desk: *mut Desk) -> ! {
    let byte = 0u8;
    // SAFETY: system calls on this process, on the byte above and on the desk, which is mapped. None of them takes a lock of
    // the C library's.
    unsafe {
        leave_parents(socket);
        loop {
            let got = libc::recv(socket, addr_of!(byte).cast_mut().cast(), 1, 0);
            if got == 1 {
                set_timer(PATIENCE);
                match (*desk).places {
                    0 => (*desk).reads[0] = read_file(desk),
                    _ => read_places(desk),
                }
                set_timer(Duration::ZERO);
                libc::send(socket, addr_of!(byte).cast(), 1, libc::MSG_NOSIGNAL);
            } else if got == 0 || *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// Closes what the parent had open, and has the timer's signal alone reach this process. So the process ends with its parent,
/// and by no key of a terminal before.
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

/// A place is counted once its bytes are there.
///
/// # Safety
/// By the child, with the desk.
unsafe fn read_places(desk: *mut Desk) {
    // SAFETY: the kernel writes only inside the desk's bytes, which have room for what is wanted of each place.
    unsafe {
        let length = (*desk).length;
        for place in 0..(*desk).places {
            let to = addr_of_mut!((*desk).bytes).cast::<u8>().add(place * length);
            let local = libc::iovec { iov_base: to.cast(), iov_len: length };
            let remote = libc::iovec { iov_base: (*desk).addresses[place] as *mut _, iov_len: length };
            let read = libc::process_vm_readv((*desk).pids[place], &raw const local, 1, &raw const remote, 1, 0);
            (*desk).reads[place] = if read < 0 { -(*libc::__errno_location() as isize) } else { read };
            addr_of_mut!((*desk).finished).write_volatile(place + 1);
        }
    }
}

/// # Safety
/// By the child, with the desk.
unsafe fn read_file(desk: *mut Desk) -> isize {
    // SAFETY: the path ends with a zero; the kernel writes only inside the desk's bytes.
    unsafe {
        let file = libc::open(addr_of!((*desk).path).cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return -(*libc::__errno_location() as isize);
        }
        let mut done = 0;
        while done < (*desk).length {
            let to = addr_of_mut!((*desk).bytes).cast::<u8>().add(done);
            match libc::read(file, to.cast(), (*desk).length - done) {
                more @ 1.. => done += more as usize,
                _ => break,
            }
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
    fn many_processes_are_read_by_a_few_messages_and_each_has_its_own_error() {
        let own = std::process::id() as i32;
        let words: Vec<u64> = (0..100).collect();
        let mut from: Vec<(i32, u64)> = words.iter().map(|word| (own, (word as *const u64) as u64)).collect();
        from[40] = (0, from[40].1);
        from[99] = (own, 8);
        let mut seen = Vec::new();
        read_each(&from, 8, |place, bytes| {
            assert!(bytes.as_ref().map_or(true, |bytes| *bytes == words[place].to_ne_bytes()));
            seen.push((place, bytes.err().and_then(|error| error.raw_os_error())));
            true
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
