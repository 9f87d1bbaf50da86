//! Each system call of the pressure sources made to fail in turn: waiting must still end, and never spin.
//!
//! One test in a file of its own, since the hook is the whole process's.

use linux_raw_sys::general as sys;
use std::time::Instant;
use weir_core::telemetry::tunables::Tunables;
use weir_linux::os::process::getpid;
use weir_linux::os::rights::credentials::MainThread;
use weir_linux::os::syscall::{Errno, fault};
use weir_linux::os::{fd, tasks};
use weir_linux::platform::machine;
use weir_linux::pressure::group::cgroup::{GroupDir, Membership};
use weir_linux::pressure::group::memcg;
use weir_linux::pressure::psi;
use weir_linux::pressure::psi::{Kind, Threshold};
use weir_linux::pressure::systemd_watch::Request;
use weir_linux::pressure::wake::Waker;
use weir_linux::pressure::{events::Heat, sources::Sources};
use weir_testing::PATIENCE;

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

/// Has the kernel refuse `close_range` to the calling thread, so that the table is unshared the long way round.
fn refuse_close_range() {
    let line = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, sys::__NR_close_range, 1),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: the kernel copies the program; only this thread is bound by it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// Opens everything, waits twice, and gives whether the armed call came.
fn one_life(nr: u32) -> bool {
    static WAKER: Waker = Waker::new();
    let life = move || {
        if nr == sys::__NR_unshare {
            refuse_close_range();
        }
        let (mut sources, tunables) = (Box::new(Sources::new()), Tunables::new());
        tunables.limit.set(1 << 50);
        sources.open(&WAKER, &Request::Unset, &tunables);
        sources.wait(&tunables, Heat::Warm, Some(1_000_000));
        WAKER.wake();
        sources.wait(&tunables, Heat::Warm, Some(1_000_000));
        let _ = weir_linux::os::process::thread_descriptor(getpid()).map(fd::close);
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
        let _ =
            (machine::huge_pages(), machine::process_madvise(), machine::membarrier_rseq(), machine::possible_cpus());
        let fired = fault::disarm();
        // Whatever failed, the next waits work. Each is of a millisecond, and only one without an end comes to the bound.
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
    let mut silent = Vec::new();
    for (nr, name) in CALLS {
        for errno in [Errno::ENOSYS, Errno::EPERM, Errno::ENOMEM, Errno::EBADF] {
            let mut fired = 0;
            // Each life makes a bounded number of calls; past the last one nothing fires.
            for nth in 1..=200 {
                fault::arm(nr, nth, errno);
                let started = Instant::now();
                let has_fired = one_life(nr);
                assert!(started.elapsed() < PATIENCE, "{name} call {nth} with {errno} held it up");
                if !has_fired {
                    break;
                }
                fired += 1;
            }
            println!("{name} with {errno}: {fired} lives");
            if fired == 0 {
                silent.push((name, errno));
            }
        }
    }
    assert!(silent.is_empty(), "calls that no life makes, so that nothing was tested: {silent:?}");
}
