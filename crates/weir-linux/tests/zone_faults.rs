//! Each system call that a zone and its report make fails in turn: nothing in use is lost, and all goes on.
//!
//! One test in a file of its own, since the hook is the whole process's.

use linux_raw_sys::general as sys;
use weir::zone::Zone;
use weir_linux::os::syscall::{Errno, fault};

const MIB: usize = 1 << 20;
const CALLS: [(u32, &str); 6] = [
    (sys::__NR_mmap, "mmap"),
    (sys::__NR_munmap, "munmap"),
    (sys::__NR_madvise, "madvise"),
    (sys::__NR_process_madvise, "process_madvise"),
    (sys::__NR_mlock2, "mlock2"),
    (sys::__NR_fstat, "fstat"),
];

fn memfd(len: usize) -> i32 {
    // SAFETY: the name is a C string; the calls give and size a new descriptor.
    unsafe {
        let fd = weir_linux::os::syscall::syscall2(sys::__NR_memfd_create, c"zone".as_ptr() as usize, 1);
        weir_linux::os::syscall::syscall2(sys::__NR_ftruncate, fd as usize, len);
        fd as i32
    }
}

/// A zone of each kind that can be made, used and reported. Whether the armed call came.
fn one_life(file: i32, lazily: bool) -> bool {
    weir::settings::set_number("report_lazily", lazily.into()).unwrap();
    let makers: [&dyn Fn() -> Result<Zone, weir::zone::ZoneError>; 4] = [
        &|| Zone::anonymous(4 * MIB), // SAFETY: the file is this test's alone, and keeps its length.
        &|| unsafe { Zone::from_memfd(weir::Fd::borrow_raw(file), 4 * MIB) },
        &|| Zone::hugetlb(4 * MIB),
        &|| Zone::locked(2 * MIB),
    ];
    for make in makers {
        let Ok(zone) = make() else { continue };
        for _ in 0..2 {
            let mut runs: Vec<_> = (0..20).filter_map(|_| zone.alloc(64 << 10)).collect();
            runs.iter_mut().enumerate().for_each(|(i, run)| run.fill(i as u8));
            let mut kept: Vec<_> = runs.into_iter().enumerate().filter(|(i, _)| i % 3 == 0).collect();
            weir::heap::trim();
            for (i, run) in &mut kept {
                assert!(run.filled().iter().all(|&b| b == *i as u8), "a run in use lost its contents");
            }
            drop(kept);
            weir::heap::trim();
            let fresh = zone.alloc(64 << 10);
            assert!(fresh.is_none_or(|mut run| {
                if run.was_zero() {
                    // SAFETY: it came as zeros.
                    unsafe { run.advance(run.capacity()) };
                }
                run.filled().iter().all(|&b| b == 0)
            }));
        }
    }
    fault::disarm()
}

#[test]
fn whatever_fails_nothing_in_use_is_lost() {
    let file = memfd(4 * MIB);
    one_life(file, false);
    let mut silent = Vec::new();
    for (nr, name) in CALLS {
        for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EINVAL, Errno::ENOMEM, Errno::EINTR] {
            let mut fired = 0;
            for nth in 1..=60 {
                fault::arm(nr, nth, errno);
                if !one_life(file, nth % 2 == 0) {
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
