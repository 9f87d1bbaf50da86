//! Each system call of the heap is made to fail in turn, from its very first. An allocation may be refused, but what
//! was handed out stays whole, and nothing hangs or crashes.
//!
//! Each case is a forked child with a heap that nobody has used yet. One test in a file of its own, since the hook is
//! the whole process's.

use linux_raw_sys::general as sys;
use weir::heap;
use weir_linux::os::syscall::{Errno, fault};

const CALLS: [(u32, &str); 12] = [
    (sys::__NR_mmap, "mmap"),
    (sys::__NR_munmap, "munmap"),
    (sys::__NR_mremap, "mremap"),
    (sys::__NR_mprotect, "mprotect"),
    (sys::__NR_madvise, "madvise"),
    (sys::__NR_process_madvise, "process_madvise"),
    (sys::__NR_mincore, "mincore"),
    (sys::__NR_membarrier, "membarrier"),
    (sys::__NR_getrandom, "getrandom"),
    (sys::__NR_sched_getaffinity, "sched_getaffinity"),
    (sys::__NR_openat, "openat"),
    (sys::__NR_rt_sigprocmask, "rt_sigprocmask"),
];

/// A block and what it is filled with.
#[derive(Clone, Copy)]
struct Held {
    block: *mut u8,
    len: usize,
    byte: u8,
}

const NONE: Held = Held { block: core::ptr::null_mut(), len: 0, byte: 0 };

impl Held {
    fn take(block: *mut u8, len: usize, byte: u8) -> Self {
        if block.is_null() {
            return NONE;
        }
        // SAFETY: a fresh block of that length.
        unsafe { block.write_bytes(byte, len) };
        Self { block, len, byte }
    }

    fn check(&self, len: usize) {
        // SAFETY: the block is held, and filled so far.
        let is_whole = |i: usize| unsafe { self.block.add(i).read() } == self.byte;
        // The ends of each page are enough, and quick.
        assert!(self.block.is_null() || (0..len).step_by(509).all(is_whole) && (len == 0 || is_whole(len - 1)));
    }

    fn free(&mut self) {
        self.check(self.len);
        // SAFETY: held until now.
        unsafe { heap::free(self.block) };
        *self = NONE;
    }

    fn resize(&mut self, len: usize) {
        if self.block.is_null() {
            return;
        }
        // SAFETY: held.
        let moved = unsafe { heap::realloc(self.block, len) };
        if moved.is_null() {
            return self.check(self.len);
        }
        let old = core::mem::replace(self, Held { block: moved, ..*self });
        self.check(old.len.min(len));
        *self = Self::take(moved, len, old.byte);
    }
}

/// Calls that the heap makes as it starts its thread, and at no other time.
const STARTING: [u32; 2] = [sys::__NR_mprotect, sys::__NR_rt_sigprocmask];

/// All kinds of blocks, all ways to give memory back; besides the background thread, if wanted.
fn one_life(has_thread: bool) {
    let _reader = has_thread.then(weir::pressure::events);
    const SIZES: [usize; 12] = [1, 64, 100, 700, 3000, 30_000, 33_000, 200_000, 3 << 20, 5 << 20, 9 << 20, 16];
    let mut held = [NONE; 300];
    for round in 0..3 {
        for (i, slot) in held.iter_mut().enumerate() {
            let size = SIZES[(i * 7 + round) % if i % 35 == 0 { 12 } else { 7 }];
            let block = match i % 5 {
                0 => heap::alloc_zeroed(size),
                1 => heap::alloc_aligned(4096, size),
                _ => heap::alloc(size),
            };
            *slot = Held::take(block, size, (i + round) as u8);
        }
        held.iter_mut().step_by(9).for_each(|held| held.resize(held.len * 2 + 1));
        held.iter_mut().step_by(11).for_each(|held| held.resize(held.len / 3 + 1));
        held.iter_mut().skip(round).step_by(2).for_each(Held::free);
        heap::trim();
        held.iter_mut().for_each(Held::free);
    }
    heap::trim();
    heap::usage();
}

/// Status of a child that runs a life in which the `nth` call of `nr` fails: 0 it failed, 1 it never came.
fn status_of(nr: u32, nth: usize, errno: Errno) -> i32 {
    // SAFETY: the child calls the heap and ends; the parent's threads are the test harness's.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::alarm(weir_testing::PATIENCE.as_secs() as u32);
            fault::arm(nr, nth, errno);
            one_life(STARTING.contains(&nr));
            let fired = fault::disarm();
            // Whatever failed, there is memory now.
            assert!(!heap::alloc(100).is_null() && !heap::alloc(6 << 20).is_null());
            libc::_exit(i32::from(!fired));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }
}

#[test]
fn whatever_fails_what_was_handed_out_stays_whole() {
    let mut silent = Vec::new();
    for (nr, name) in CALLS {
        for errno in [Errno::ENOMEM, Errno::EPERM, Errno::EINVAL] {
            let mut fired = 0;
            // Each in turn at first, then ever fewer of them: a life makes a few hundred.
            let mut nth = 1;
            loop {
                let status = status_of(nr, nth, errno);
                assert!((0..=1).contains(&status), "{name} call {nth} with {errno}: status {status}");
                if status == 1 {
                    break;
                }
                fired += 1;
                nth += 1 + nth / 12;
            }
            println!("{name} with {errno}: {fired} lives");
            if fired == 0 {
                silent.push((name, errno));
            }
        }
    }
    assert!(silent.is_empty(), "calls that no life makes, so that nothing was tested: {silent:?}");
}
