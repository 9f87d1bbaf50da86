//! What the child of [`super::memory_reader`] does, and the memory that it shares with its parent.
//!
//! A child is made by `fork` alone, so between its first step and its end it makes system calls and nothing else: another
//! thread may hold any lock. It ends when its parent has ended, as the other end of its socket is closed then: it holds no
//! descriptor but its own.

use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::time::Duration;

/// How long one reading may take: pages of a process in trouble may have to come from a slow disk first.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Places that one reading is of at most; the kernel takes 1024.
pub const MOST_PLACES: usize = 512;
/// Bytes of one reading at most: a huge page.
pub const MOST_BYTES: usize = 2 << 20;
/// Processes that one message asks of at most.
pub const MOST_PROCESSES: usize = 32;
/// Bytes of the path of a file in `/proc`, with the zero behind it.
pub const PATH: usize = 64;

/// What both processes share.
#[repr(C)]
pub struct Desk {
    pub pid: i32,
    /// Places to read from, as many bytes each; 0: the file is read.
    pub places: usize,
    /// Processes to read from, one place each; 0: `pid` alone.
    pub processes: usize,
    /// Bytes wanted, from each process.
    pub wanted: usize,
    /// Bytes read; the number of an error, negative. Of several processes: how many were done.
    pub read: isize,
    pub path: [u8; PATH],
    pub remote: [libc::iovec; MOST_PLACES],
    /// Of several processes: their numbers, and what was read of each, as above.
    pub pids: [i32; MOST_PROCESSES],
    pub reads: [isize; MOST_PROCESSES],
    pub bytes: [u8; MOST_BYTES],
}

/// What the child does until its parent has ended.
///
/// # Safety
/// By a child of `fork`, with its end of the socket and the desk, which only it works on between a message and its answer.
pub unsafe fn serve(socket: i32, desk: *mut Desk) -> ! {
    let byte = 0u8;
    // SAFETY: system calls on this process, on the byte above and on the desk, which is mapped; none of them takes a lock of
    // the C library's.
    unsafe {
        leave_parents(socket);
        loop {
            let got = libc::recv(socket, addr_of!(byte).cast_mut().cast(), 1, 0);
            if got == 1 {
                set_timer(PATIENCE);
                match ((*desk).processes, (*desk).places) {
                    (0, 0) => (*desk).read = read_file(desk),
                    (0, _) => (*desk).read = read_places(desk),
                    _ => read_processes(desk),
                }
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

/// A process is counted once its bytes are there.
///
/// # Safety
/// By the child, with the desk.
unsafe fn read_processes(desk: *mut Desk) {
    // SAFETY: the kernel writes only inside the desk's bytes, which have room for what is wanted of each process, and reads
    // one entry of the list.
    unsafe {
        let wanted = (*desk).wanted;
        for place in 0..(*desk).processes {
            let to = addr_of_mut!((*desk).bytes).cast::<u8>().add(place * wanted);
            let local = libc::iovec { iov_base: to.cast(), iov_len: wanted };
            let remote = addr_of!((*desk).remote[place]);
            let read = libc::process_vm_readv((*desk).pids[place], &raw const local, 1, remote, 1, 0);
            (*desk).reads[place] = if read < 0 { -(*libc::__errno_location() as isize) } else { read };
            addr_of_mut!((*desk).read).write_volatile(place as isize + 1);
        }
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
