//! A Rust program whose allocator is Weir, with no library preloaded. Fork, idle memory and settings work as under
//! `libweir.so`, with no constructor and nothing to be called.

use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, MutexGuard};
use weir_testing::{skip, wait_until};

#[path = "common/forked.rs"]
mod forked;
use forked::in_forked;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// One test at a time: they look at the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // One burst after the other looks as if memory went too early, and would make the heap wait longer.
    weir::settings::set("refault_percent", "100").unwrap();
    alone
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed) as u8).collect()
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn has_background_thread() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| std::fs::read(task.path().join("comm")).is_ok_and(|name| name == b"weir\n"))
}

/// Fills memory with small objects and frees them: it must come back with no call of the program's.
fn burst_comes_back() {
    const BYTES: usize = 96 << 20;
    let before = resident();
    let objects: Vec<_> = (0..BYTES / 1000).map(|i| vec![i as u8; 1000]).collect();
    assert!(resident() > before + BYTES / 2);
    drop(objects);
    wait_until("idle memory to go", || resident() < before + BYTES / 4);
    assert!(has_background_thread());
}

#[repr(align(64))]
struct Line([u64; 8]);

/// A vector of lines that grows or shrinks within its size class stays where it is.
#[test]
fn a_small_block_of_lines_is_resized_in_place() {
    let _alone = alone();
    for (from, to) in [(61, 64), (64, 61), (201, 208)] {
        let [from, to] = [from, to].map(|lines| Layout::array::<Line>(lines).unwrap());
        // SAFETY: the block is the test's, of the layout that is said, and its resize keeps the alignment.
        unsafe {
            let block = HEAP.alloc(from);
            block.write(7);
            let new = HEAP.realloc(block, from, to.size());
            assert_eq!((new, new.read()), (block, 7), "{} to {} bytes", from.size(), to.size());
            HEAP.dealloc(new, to);
        }
    }
}

/// What is zero already is not touched, whatever its alignment, and what grows is not copied.
#[test]
fn large_blocks_of_lines_cost_no_more_than_others() {
    let _alone = alone();
    const LINES: usize = (256 << 20) / size_of::<Line>();
    let before = resident();
    // SAFETY: 0 is a number.
    let lines = unsafe { Box::<[Line]>::new_zeroed_slice(LINES).assume_init() };
    assert!(resident() < before + (4 << 20), "{} of {before}", resident());
    assert!(lines[LINES - 1].0 == [0; 8] && lines.as_ptr().addr().is_multiple_of(64));
    let mut lines = lines.into_vec();
    lines[0].0[0] = 7;
    lines.reserve_exact(LINES);
    assert!(resident() < before + (4 << 20) && lines[0].0[0] == 7, "{} of {before}", resident());
    assert!(lines.as_ptr().addr().is_multiple_of(64));
    lines.truncate(LINES / 2);
    lines.shrink_to_fit();
    assert!(lines[0].0[0] == 7 && lines.as_ptr().addr().is_multiple_of(64));
    // Those of a size class, and what lies between, are zero as well.
    for len in [1, 10, 100, 1000, 10_000] {
        drop(vec![7_u8; len * 64]);
        // SAFETY: 0 is a number.
        let lines = unsafe { Box::<[Line]>::new_zeroed_slice(len).assume_init() };
        assert!(lines.iter().all(|line| line.0 == [0; 8]) && lines.as_ptr().addr().is_multiple_of(64));
    }
}

#[test]
fn children_of_many_threads_have_a_whole_heap() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    // A thread that begins or ends holds a lock of Rust's own library, which a thread of the child needs. So none does while
    // others fork (std's `sys/pal/unix/stack_overflow/thread_info.rs`).
    let (begun, forked) = (Barrier::new(9), Barrier::new(3));
    let blocks: Vec<_> = (0..200).map(|i| pattern(i, i * 50)).collect();
    std::thread::scope(|scope| {
        for seed in 0..6_usize {
            let (stop, begun) = (&stop, &begun);
            scope.spawn(move || {
                begun.wait();
                // Mostly on the heap's slow paths, where locks are held.
                let mut held: Vec<Vec<u8>> = Vec::new();
                let mut step = seed;
                while !stop.load(Relaxed) {
                    step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    held.push(Vec::with_capacity((step >> 33) % if step >> 63 == 0 { 300_000 } else { 30_000 }));
                    if held.len() > 50 {
                        held.swap_remove((step >> 40) % 50);
                    }
                }
            });
        }
        let forkers: Vec<_> = (0..3)
            .map(|seed| {
                let (blocks, begun, forked) = (blocks.clone(), &begun, &forked);
                scope.spawn(move || {
                    begun.wait();
                    let ended = catch_unwind(|| {
                        (0..10).for_each(|round| in_forked(|| child_life(&blocks, seed * 100 + round)));
                    });
                    forked.wait();
                    ended
                })
            })
            .collect();
        let ended: Vec<_> = forkers.into_iter().map(|forker| forker.join().and_then(|ended| ended)).collect();
        stop.store(true, Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
}

/// Frees the parent's blocks, allocates, trims, has a thread and a child of its own.
fn child_life(blocks: &[Vec<u8>], seed: usize) {
    // SAFETY: the parent's blocks are the child's too: each side frees its own copy, once.
    let own: Vec<Vec<u8>> = blocks.iter().map(|block| unsafe { std::ptr::read(block) }).collect();
    assert!(own.iter().enumerate().all(|(i, block)| *block == pattern(i, i * 50)));
    drop(own);
    let more: Vec<_> = (0..500).map(|i| pattern(seed + i, i * 7)).collect();
    let moved = std::thread::spawn(move || {
        assert!(more.iter().enumerate().all(|(i, block)| *block == pattern(seed + i, i * 7)));
    });
    moved.join().unwrap();
    weir::heap::trim();
    if seed.is_multiple_of(5) {
        in_forked(|| drop(pattern(seed, 1 << 20)));
    }
}

#[test]
fn idle_memory_comes_back_also_in_forked() {
    let _alone = alone();
    burst_comes_back();
    // The child's background thread is its own.
    in_forked(|| {
        assert!(!has_background_thread());
        burst_comes_back();
    });
    burst_comes_back();
}

#[test]
fn the_background_thread_can_be_sent_away_and_had_back() {
    let _alone = alone();
    burst_comes_back();
    weir::settings::set("background", "0").unwrap();
    wait_until("the thread to end", || !has_background_thread());
    weir::settings::set("background", "1").unwrap();
    burst_comes_back();
}

/// Has the process that [`settings_of`] starts tell its settings.
const IS_ASKED: &str = "WEIR_TEST_SAYS_ITS_SETTINGS";

fn settings_of(program: &std::path::Path, change: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(program);
    command.args(["--exact", "--nocapture", "the_environment_is_read"]).env(IS_ASKED, "1").env("WEIR_IDLE_MS", "777");
    change(&mut command);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn the_environment_is_read() {
    if std::env::var_os(IS_ASKED).is_some() {
        // SAFETY: no arguments.
        let secure = unsafe { libc::getauxval(libc::AT_SECURE) };
        return println!("idle_ms={} secure={secure}", weir::settings::get("idle_ms").unwrap());
    }
    let _alone = alone();
    let said = settings_of(&std::env::current_exe().unwrap(), |_| {});
    assert!(said.contains("idle_ms=777 secure=0"), "{said}");
}

/// A file as `weir run` makes it.
fn statistics_file() -> File {
    use weir_core::telemetry::stats::{FILE_MAGIC, FILE_PAGES, PAGE_BYTES, VERSION};
    // SAFETY: makes a descriptor, which is the file's alone.
    let file = unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
    file.set_len((FILE_PAGES * PAGE_BYTES) as u64).unwrap();
    file.write_all_at(&FILE_MAGIC.to_ne_bytes(), 0).unwrap();
    file.write_all_at(
        &VERSION.to_ne_bytes(),
        std::mem::offset_of!(weir_core::telemetry::stats::Header, version) as u64,
    )
    .unwrap();
    file.write_all_at(&1u64.to_ne_bytes(), std::mem::offset_of!(weir_core::telemetry::stats::Header, next) as u64)
        .unwrap();
    // SAFETY: acts on the file's seals only.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    file
}

/// The environment of a setuid program is its caller's, who could name a file of root's to be written to.
#[test]
fn a_setuid_program_does_not_trust_the_environment() {
    let _alone = alone();
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip!("only root can make a program of root's");
    }
    let dir = std::env::temp_dir().join(format!("weir-setuid-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let file = statistics_file();
    let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let next = || {
        let mut next = [0; 8];
        file.read_exact_at(&mut next, std::mem::offset_of!(weir_core::telemetry::stats::Header, next) as u64).unwrap();
        u64::from_ne_bytes(next)
    };
    let said = settings_of(&program, |command| {
        command.env("WEIR_STATS", &name).uid(65_534).gid(65_534);
    });
    let asked_by_secure = next();
    // The same by root itself, to whom the file is as good: it is the caller that is not trusted.
    settings_of(&std::env::current_exe().unwrap(), |command| {
        command.env("WEIR_STATS", &name);
    });
    assert_eq!(next(), 2, "root takes a page");
    std::fs::remove_dir_all(&dir).unwrap();
    if !said.contains("secure=1") {
        return skip!("setuid has no effect in {}: {said}", dir.display());
    }
    assert!(said.contains("idle_ms=300"), "{said}");
    assert_eq!(asked_by_secure, 1, "the file was written to");
}
