//! Each system call of the pressure sources made to fail in turn: waiting must still end, and never spin.
//!
//! One test in a file of its own, since the hook is the whole process's.

use linux_raw_sys::general as sys;
use std::time::{Duration, Instant};
use weir_core::telemetry::tunables::Tunables;
use weir_linux::os::credentials::MainThread;
use weir_linux::os::process::getpid;
use weir_linux::os::syscall::{Errno, fault};
use weir_linux::os::{fd, probe, tasks};
use weir_linux::pressure::cgroup::{GroupDir, Membership};
use weir_linux::pressure::psi::{Kind, Threshold};
use weir_linux::pressure::systemd_watch::Request;
use weir_linux::pressure::wake::Waker;
use weir_linux::pressure::{events::Heat, sources::Sources};
use weir_linux::pressure::{memcg, psi};

/// After it, a wait has no end. Each wait here is of a millisecond; a busy machine makes it longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// All but the clock: a machine without one is none that Linux runs on.
const CALLS: [(u32, &str); 17] = [
    (sys::__NR_openat, "openat"),
    (sys::__NR_read, "read"),
    (sys::__NR_pread64, "pread64"),
    (sys::__NR_write, "write"),
    (sys::__NR_close, "close"),
    (sys::__NR_ppoll, "ppoll"),
    (sys::__NR_eventfd2, "eventfd2"),
    (sys::__NR_stat, "stat"),
    (sys::__NR_futex, "futex"),
    (sys::__NR_getdents64, "getdents64"),
    (sys::__NR_pidfd_open, "pidfd_open"),
    (sys::__NR_close_range, "close_range"),
    (sys::__NR_unshare, "unshare"),
    (sys::__NR_gettid, "gettid"),
    (sys::__NR_kcmp, "kcmp"),
    (sys::__NR_mmap, "mmap"),
    (sys::__NR_membarrier, "membarrier"),
];

/// Opens everything, waits twice, and gives whether the armed call came.
fn one_life() -> bool {
    static WAKER: Waker = Waker::new();
    let life = || {
        let (mut sources, tunables) = (Box::new(Sources::new()), Tunables::new());
        tunables.limit.set(1 << 50);
        sources.open(&WAKER, &Request::Unset, &tunables);
        sources.wait(&tunables, Heat::Warm, Some(1_000_000));
        WAKER.wake();
        sources.wait(&tunables, Heat::Warm, Some(1_000_000));
        let _ = MainThread::note(true).map(|main| main.has_changed());
        let _ = tasks::first_other(&|_| false);
        if let Some(dir) = Membership::find().memory.and_then(|group| GroupDir::open(&group).ok()) {
            memcg::effective_limits(&dir);
            dir.close();
        }
        let stalls = Threshold { kind: Kind::Some, stall_us: 70_000, window_us: 1_000_000 };
        if let Ok(armed) = psi::arm(|| fd::open(c"/proc/pressure/memory", fd::O_RDWR), stalls) {
            let _ = fd::close(armed.fd);
        }
        let _ = (probe::huge_pages(), probe::process_madvise(), probe::membarrier_rseq(), probe::possible_cpus());
        let fired = fault::disarm();
        // Whatever failed, the next waits work.
        let started = Instant::now();
        while !sources.wait(&tunables, Heat::Cold, Some(1_000_000)).timed_out {
            assert!(started.elapsed() < PATIENCE, "waits without end");
        }
        WAKER.forget();
        fired
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(life).unwrap().join().unwrap()
}

#[test]
fn whatever_fails_waiting_ends() {
    assert_ne!(getpid(), 0);
    let mut tried = 0;
    for (nr, name) in CALLS {
        for errno in [Errno::ENOSYS, Errno::EPERM, Errno::ENOMEM, Errno::EBADF] {
            for nth in 1.. {
                fault::arm(nr, nth, errno);
                let started = Instant::now();
                let fired = one_life();
                assert!(started.elapsed() < PATIENCE, "{name} call {nth} with {errno} held it up");
                tried += 1;
                // Each life makes a bounded number of calls; past the last one nothing fires.
                if !fired || nth > 200 {
                    break;
                }
            }
        }
    }
    assert!(tried > CALLS.len() * 4, "only {tried} lives");
    println!("{tried} lives");
}
