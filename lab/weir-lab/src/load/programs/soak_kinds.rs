//! What the soak's threads do besides allocating: streams, forks, signals; and the lines that say how far they are.

use crate::base::mem::Random;
use crate::programs::soak_blocks::{FilledBlock, corrupt};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The cycle is over.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Blocks that a forked child allocates.
const CHILDS_BLOCKS: usize = 20;

/// What is counted.
#[derive(Clone, Copy)]
pub enum WorkKind {
    /// Blocks allocated, resized, handed on or freed.
    Blocks,
    /// Steps of buffers that grow.
    Growths,
    /// Streams written and read.
    Streams,
    /// Children that did their work.
    Forks,
    /// Signals that were handled.
    Signals,
}

const NAMES: [&str; 5] = ["blocks", "growths", "streams", "forks", "signals"];
static DONE: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// `n` more were done.
pub fn add(kind: WorkKind, n: u64) {
    DONE[kind as usize].fetch_add(n, Relaxed);
}

/// A line of JSON: what it is for, and all counts. It allocates nothing and takes no lock, so that it comes whatever
/// hangs.
pub fn say(what: &str) {
    let mut line = Cursor::new([0u8; 256]);
    let _ = write!(line, "{{\"line\":\"{what}\"");
    for (name, done) in NAMES.iter().zip(&DONE) {
        let _ = write!(line, ",\"{name}\":{}", done.load(Relaxed));
    }
    let _ = line.write_all(b"}\n");
    let len = line.position() as usize;
    // SAFETY: writes bytes of this array.
    unsafe { libc::write(1, line.get_ref().as_ptr().cast(), len) };
}

/// Writes lines of up to 20,000 bytes to a file of its own, reads them again by `getline`, which allocates each, and now
/// and then flushes all streams of the process.
pub fn stream_once(random: &mut Random) {
    // SAFETY: the stream is open from `tmpfile` to `fclose`; `getline` owns and resizes the line it is given.
    unsafe {
        let stream = libc::tmpfile();
        if stream.is_null() {
            let why = std::io::Error::last_os_error();
            eprintln!("weir-lab-load: no file for a stream: {why}");
            std::process::exit(2);
        }
        let widths: [i32; 8] = std::array::from_fn(|_| random.between(10, 20_000) as i32);
        for width in widths {
            libc::fprintf(stream, c"%-*d\n".as_ptr(), width - 1, width);
        }
        if random.below(4) == 0 {
            libc::fflush(std::ptr::null_mut());
        }
        libc::rewind(stream);
        for width in widths {
            let (mut line, mut room) = (std::ptr::null_mut(), 0);
            let got = libc::getline(&mut line, &mut room, stream);
            if got != width as isize || libc::atoi(line) != width {
                corrupt("a stream does not hold what was written to it");
            }
            libc::free(line.cast());
        }
        libc::fclose(stream);
    }
}

/// Flushes all streams, forks, and has the child allocate, check and free.
pub fn fork_once(random: &mut Random) {
    let mut childs = Random::new(random.next(), 0);
    // SAFETY: the child calls malloc, free and `fflush`, which libc allows after a fork, and ends without destructors.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        let pid = libc::fork();
        if pid == 0 {
            // Should it hang, the parent does for as long, which is longer than it is waited for.
            libc::alarm(300);
            for _ in 0..CHILDS_BLOCKS {
                FilledBlock::new(&mut childs).free();
            }
            libc::_exit(0);
        }
        if pid < 0 {
            // For want of processes or memory: not what is looked for.
            libc::usleep(10_000);
            return;
        }
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) != pid {}
        if status != 0 {
            eprintln!("corrupt: a child ended with status {status:#x}");
            std::process::abort();
        }
    }
}

extern "C" fn on_signal(_number: libc::c_int) {
    add(WorkKind::Signals, 1);
}

/// Has `SIGUSR1` and `SIGPROF` counted.
pub fn handle_signals() -> Result<(), String> {
    for signal in [libc::SIGUSR1, libc::SIGPROF] {
        // SAFETY: plain data, then a handler that only adds to a counter.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut()) != 0
        };
        if failed {
            return Err(format!("signal {signal} cannot be handled: {}", std::io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// Sends a signal to each of the process's threads in turn, and to the process, every few milliseconds.
pub fn signal_threads() {
    // SAFETY: no memory is involved.
    let me = unsafe { libc::getpid() };
    while !STOP.load(Relaxed) {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        for task in tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok()) {
            // A thread of the library's own blocks the program's signals, and one would stay pending.
            if !takes_signals(task) {
                continue;
            }
            // SAFETY: a thread of this process, or none any more.
            unsafe { libc::syscall(libc::SYS_tgkill, me, task, libc::SIGUSR1) };
        }
        // SAFETY: this process, which handles it.
        unsafe { libc::kill(me, libc::SIGPROF) };
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
}

/// Whether the thread lets `SIGUSR1` in.
fn takes_signals(task: libc::pid_t) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask >> (libc::SIGUSR1 - 1) & 1 == 0)
}
