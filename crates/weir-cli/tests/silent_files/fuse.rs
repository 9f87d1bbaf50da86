//! A file system of one program, which this process serves and may leave unanswered.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread::JoinHandle;

/// The server reads no request: who waits for it can be killed.
pub const STANDS: u8 = 1;
/// It reads requests and answers none: nothing ends who waits for it.
pub const SWALLOWS: u8 = 2;
/// As [`SWALLOWS`], of reads alone: files are found and opened.
pub const SWALLOWS_READS: u8 = 3;
const ANSWERS: u8 = 0;
const ENDS: u8 = 4;

/// The name of the program.
pub const NAME: &str = "program";
/// Its number; that of the directory is the kernel's.
const PROGRAM: u64 = 2;
const ROOT: u64 = 1;

/// Bytes of the headers of a request and of an answer (`fuse_in_header` and `fuse_out_header` in linux/fuse.h).
const REQUEST: usize = 40;
const ANSWER: usize = 16;
/// Operations (`fuse_opcode`).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// A file system that is mounted; what waits for it is told of an error when this is dropped.
pub struct Server {
    at: CString,
    way: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Mounts it there, for this thread and what it starts alone.
    pub fn mount(at: &Path, program: Vec<u8>) -> io::Result<Self> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
        let (at, data) = (CString::new(at.as_os_str().as_bytes())?, CString::new(data)?);
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: system calls, which read texts that end with a zero.
        let is_mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
                && libc::mount(c"weir".as_ptr(), at.as_ptr(), c"fuse".as_ptr(), 0, data.as_ptr().cast()) == 0
        };
        if !is_mounted {
            return Err(io::Error::last_os_error());
        }
        let way = Arc::new(AtomicU8::new(ANSWERS));
        let seen = way.clone();
        let thread = std::thread::spawn(move || serve(fuse, &program, &seen));
        Ok(Self { at, way, thread: Some(thread) })
    }

    /// From now on it is silent in this way.
    pub fn falls_silent(&self, way: u8) {
        self.way.store(way, SeqCst);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.way.store(ENDS, SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
        // SAFETY: a system call, which reads a text that ends with a zero.
        unsafe { libc::umount2(self.at.as_ptr(), libc::MNT_DETACH) };
    }
}

fn serve(mut fuse: File, program: &[u8], way: &AtomicU8) {
    let mut request = vec![0; 1 << 20];
    loop {
        let a_moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let is_there = poll(&mut [PollFd::new(&fuse, PollFlags::IN)], Some(&a_moment));
        match way.load(SeqCst) {
            ENDS => return,
            STANDS => std::thread::sleep(std::time::Duration::from_millis(10)),
            way if is_there.is_ok_and(|count| count > 0) => {
                let Ok(length) = fuse.read(&mut request) else { return };
                if let Some(answer) = answer(&request[..length], program, way) {
                    let _ = fuse.write(&answer);
                }
            }
            _ => {}
        }
    }
}

/// The answer to a request; none: it gets none.
fn answer(request: &[u8], program: &[u8], way: u8) -> Option<Vec<u8>> {
    let number =
        |at: usize, bytes: usize| request[at..at + bytes].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let (operation, node) = (number(4, 4) as u32, number(16, 8));
    let is_silent = way == SWALLOWS || way == SWALLOWS_READS && operation == READ;
    if is_silent || [FORGET, BATCH_FORGET, INTERRUPT].contains(&operation) {
        return None;
    }
    let named = || request[REQUEST..].strip_suffix(&[0]) == Some(NAME.as_bytes());
    let told = match operation {
        // Version 7.31, and nothing that the server may choose.
        INIT => Ok([words32(&[7, 31, 0, 0, 0, 1 << 17]), vec![0; 40]].concat()),
        // Nothing is kept by the kernel: each look is asked for anew.
        LOOKUP if named() => Ok([words(&[PROGRAM, 0, 0, 0, 0]), attributes(PROGRAM, program)].concat()),
        LOOKUP => Err(libc::ENOENT),
        GETATTR => Ok([words(&[0, 0]), attributes(node, program)].concat()),
        OPEN => Ok(words(&[0, 0])),
        READ => {
            let begin = (number(REQUEST + 8, 8) as usize).min(program.len());
            Ok(program[begin..program.len().min(begin + number(REQUEST + 16, 4) as usize)].to_vec())
        }
        RELEASE => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    };
    let (error, told) = told.map_or_else(|error| (-error, Vec::new()), |told| (0, told));
    let header = [words32(&[(ANSWER + told.len()) as u32, error as u32]), request[8..16].to_vec()].concat();
    Some([header, told].concat())
}

/// A `fuse_attr`: an executable file, or the directory.
fn attributes(node: u64, program: &[u8]) -> Vec<u8> {
    let (mode, length) =
        if node == ROOT { (libc::S_IFDIR | 0o755, 0) } else { (libc::S_IFREG | 0o755, program.len() as u64) };
    let sizes = words(&[node, length, length.div_ceil(512), 0, 0, 0]);
    [sizes, words32(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words32(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
