//! A process whose pages a thread of its own answers for, and never does: who reads its memory would wait for ever.
//! Apart from the command's other tests: they look at all processes, and would wait for this one.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::ptr::null_mut;
use weir_testing::skip;

const LEN: usize = 1 << 20;
/// From linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Has reads of the pages of `file`, which lies in memory, wait for an answer of this process; why it cannot be done.
fn have_reads_wait(file: &File) -> Result<(), String> {
    let failed = |call: &str| Err(format!("{call}: {}", std::io::Error::last_os_error()));
    // SAFETY: a descriptor and a mapping of this test's, which are left as they are to the end. The kernel reads and
    // writes arrays as long as it says.
    unsafe {
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        if faults < 0 {
            return failed("userfaultfd");
        }
        let mut api = [UFFD_API, 0, 0];
        if libc::ioctl(faults, UFFDIO_API, api.as_mut_ptr()) != 0 {
            return failed("UFFDIO_API");
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(null_mut(), LEN, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        let mut range = [at as u64, LEN as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        if libc::ioctl(faults, UFFDIO_REGISTER, range.as_mut_ptr()) != 0 {
            return failed("UFFDIO_REGISTER");
        }
    }
    Ok(())
}

/// Runs `weir`, for so many seconds at most: then its status is 124.
fn weir_within(seconds: &str, args: &[&str]) -> Output {
    // It may wait in the kernel, where only this ends it.
    let command = ["--signal=KILL", seconds, env!("CARGO_BIN_EXE_weir")];
    let mut output = Command::new("timeout").args(command).args(args).output().unwrap();
    // `timeout` ends by the same signal.
    if output.status.signal() == Some(libc::SIGKILL) || output.status.code() == Some(128 + libc::SIGKILL) {
        output.status = ExitStatusExt::from_raw(124 << 8);
    }
    output
}

#[test]
fn it_is_named_and_nobody_waits_for_it() {
    let Ok(dir) = tempfile::Builder::new().prefix("weir-test-").tempdir_in("/dev/shm") else {
        return skip!("there is no /dev/shm");
    };
    let file = File::create_new(dir.path().join("libweir.so")).unwrap();
    file.set_len(LEN as u64).unwrap();
    let file = File::options().read(true).write(true).open(dir.path().join("libweir.so")).unwrap();
    if let Err(why) = have_reads_wait(&file) {
        return skip!("no page may be made to wait here: {why}");
    }
    let own = std::process::id().to_string();
    let commands = [&["stat", &own][..], &["why", &own], &["doctor", &own], &["stat"], &["top", "--once", "--all"]];
    // Each gives up after a second, and is ended after minutes.
    let run = |args: &[&str]| {
        let output = weir_within("300", args);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_ne!(output.status.code(), Some(124), "weir {args:?} waits");
        assert!(args[0] == "top" || said.contains("was not there after 1 s"), "weir {args:?}: {said}");
        if args == ["stat"] {
            assert!(said.lines().any(|line| line.trim_start().starts_with(&own)), "{said}");
        }
    };
    std::thread::scope(|scope| commands.into_iter().for_each(|args| drop(scope.spawn(move || run(args)))));
}
