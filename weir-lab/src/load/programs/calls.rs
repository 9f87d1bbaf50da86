//! The calls of malloc and free that the harness steps through to count their instructions.

use crate::base::mem::Block;
use std::hint::black_box;

/// Of a size, so many calls are made before counting begins.
const WARM_UP: usize = 20_000;
/// So few blocks are live at once that every allocator's cache of the nearest rank has them.
const FEW: usize = 4;
/// Repeated so often.
const TIMES: usize = 10;
/// So many are live at once that every cache has to go down a rank.
const MANY: usize = 400;

/// `calls SIZE few|many`: warms up, says where malloc and free begin, stops, makes its calls, and stops again.
///
/// The harness traces it: it does not run on between the two stops but goes instruction by instruction.
pub fn main(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (size, how) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let size: usize = size.parse().map_err(|_| format!("'{size}' is not a size"))?;
    let (live, times) = match how.as_str() {
        "few" => (FEW, TIMES),
        "many" => (MANY, 1),
        _ => return Err(format!("'{how}' is neither few nor many")),
    };
    let mut blocks = vec![Block::NONE; live];
    let cpu = stay_on_this_cpu();
    for _ in 0..WARM_UP / live {
        once(&mut blocks, size);
    }
    // SAFETY: dlsym with C strings; the answers are only printed.
    let (malloc, free) = unsafe {
        (libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()), libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr()))
    };
    println!("{{\"malloc\":{},\"free\":{},\"cpu\":{cpu}}}", malloc as usize, free as usize);
    // SAFETY: asks the parent to trace this process, and stops it twice; no memory is involved.
    unsafe {
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            return Err("may not be traced".into());
        }
        libc::raise(libc::SIGSTOP);
        for _ in 0..times {
            once(&mut blocks, size);
        }
        libc::raise(libc::SIGSTOP);
        libc::_exit(0)
    }
}

#[inline(never)]
fn once(blocks: &mut [Block], size: usize) {
    for block in blocks.iter_mut() {
        *block = Block::new(black_box(size));
    }
    blocks.iter().for_each(|block| block.free());
}

/// A thread that is moved would find another CPU's caches, cold. Answers which CPU that is.
fn stay_on_this_cpu() -> usize {
    // SAFETY: the set is plain data, of the size that is passed.
    unsafe {
        let cpu = libc::sched_getcpu() as usize;
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        cpu
    }
}
