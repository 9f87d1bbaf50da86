//! A server under test, and a client that says exactly what a test wants it to say.

pub mod client;
pub mod server;
pub mod wire;

use std::os::unix::process::CommandExt;
use std::process::Command;
pub use weir_testing::{PATIENCE, wait_until as eventually};

/// The ways of I/O that this machine has.
pub fn engines() -> Vec<&'static str> {
    // Errors other than a refusal are for the tests to find.
    let refused = io_uring::IoUring::new(2).err().and_then(|why| why.raw_os_error());
    match refused {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            weir_testing::skip!("with io_uring: it is refused here");
            vec!["threads"]
        }
        _ => vec!["uring", "threads"],
    }
}

/// Runs a test with each of them at the same time: for tests that mostly wait.
pub fn with_engines_at_once(test: impl Fn(&'static str) + Sync) {
    std::thread::scope(|scope| {
        for engine in engines() {
            let test = &test;
            scope.spawn(move || test(engine));
        }
    });
}

/// Bytes that look random and are the same every time.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..length).map(|_| numbers.next() as u8).collect()
}

/// Numbers that look random (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Is this program installed? If not, says so.
pub fn has(program: &str) -> bool {
    let found =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|at| at.join(program).exists());
    if !found {
        weir_testing::skip!("{program} is not installed");
    }
    found
}

/// Has a system call of a command fail, by seccomp.
pub fn refuse(command: &mut Command, call: libc::c_long, why: i32) {
    // What the filter sees begins with the number of the system call.
    refuse_where(command, &[(0, call as u32)], why);
}

/// Has a system call of a command fail where its second argument is so.
pub fn refuse_second(command: &mut Command, call: libc::c_long, second: i32, why: i32) {
    // The lower half, as on all processors that these tests run on.
    let place = std::mem::offset_of!(libc::seccomp_data, args) as u32 + 8;
    refuse_where(command, &[(0, call as u32), (place, second as u32)], why);
}

/// Has a system call of a command fail where all these words of what the filter sees are so.
fn refuse_where(command: &mut Command, words: &[(u32, u32)], why: i32) {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let filter = |code: u32, jf: usize, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: jf as u8, k };
    let left = |number: usize| 2 * (words.len() - 1 - number) + 1;
    let looks = words.iter().enumerate();
    let mut program: Vec<_> = looks
        .flat_map(|(number, (place, word))| [filter(load, 0, *place), filter(jump, left(number), *word)])
        .collect();
    program.push(filter(end, 0, libc::SECCOMP_RET_ERRNO | why as u32));
    program.push(filter(end, 0, libc::SECCOMP_RET_ALLOW));
    // SAFETY: between fork and exec; both calls act on the child alone, and the filter is copied by the kernel.
    unsafe {
        command.pre_exec(move || {
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            let is_set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0;
            if is_set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}
