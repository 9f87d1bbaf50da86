//! What is left of many blocks at random, as merging works on it (`docs/design/merged-pages.md`).
//!
//! A round makes blocks, frees 15 of 16, and asks for what can be released. Then it reads what is left, writes to a part, and
//! reads again. Meanwhile children read and write the same blocks, a part of them under a filter that refuses all advice, and a
//! debugger does. Pages of blocks are locked, and withheld from children; and at times 4,000 threads hold a block each.

use super::child::forked;
use super::debugger;
use super::filled_block::FilledBlock;
use crate::base::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, sleep};

const BLOCKS: usize = 20_000;
const KEPT: usize = 16;
const CHILDS_BLOCKS: usize = 20;
/// Time for the kernel to merge, ms. In it, other threads go on.
const RESTS: Duration = Duration::from_millis(500);
/// Rounds from one crowd to the next.
const CROWDS: u64 = 8;
const CROWD: u64 = 4000;

pub fn once(random: &mut Random, stop: &AtomicBool) {
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let round = ROUND.fetch_add(1, Relaxed);
    let mut left: Vec<FilledBlock> = Vec::new();
    let blocks: Vec<FilledBlock> = (0..BLOCKS).map(|_| small(random)).collect();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % KEPT == 0 { left.push(block) } else { block.free() }
    }
    // Two pages at least, of which one begins inside.
    let locked = FilledBlock::of(random, 2 * PAGE);
    let inside = locked.block.address().map_addr(|addr| addr.next_multiple_of(PAGE)).cast::<libc::c_void>();
    // SAFETY: the page is the block's, which is freed below, and only after both were taken back. A child does not read it.
    unsafe {
        libc::mlock(inside, PAGE);
        libc::madvise(inside, PAGE, libc::MADV_DONTFORK);
    }
    for _ in 0..2 {
        // SAFETY: it may be called at any time.
        unsafe { libc::malloc_trim(0) };
        sleep(RESTS);
        left.iter().for_each(|block| block.check());
        in_a_child(&mut left, round % 2 == 1);
        debugger::looks_at(&mut left);
        left.iter().for_each(|block| block.check());
        left.iter_mut().step_by(10).for_each(|block| block.change(random));
        left.iter().for_each(|block| block.check());
    }
    // SAFETY: as above.
    unsafe {
        libc::madvise(inside, PAGE, libc::MADV_DOFORK);
        libc::munlock(inside, PAGE);
    }
    left.into_iter().chain([locked]).for_each(FilledBlock::free);
    if round.is_multiple_of(CROWDS) {
        crowd(random, stop);
    }
}

/// A block of a size that merging knows.
fn small(random: &mut Random) -> FilledBlock {
    let len = random.between(48, 1024);
    FilledBlock::of(random, len)
}

/// A child that reads all of `blocks`, writes to some, and reads all again; with `refuses`, no advice of it is taken.
fn in_a_child(blocks: &mut [FilledBlock], refuses: bool) {
    forked(|| {
        if refuses {
            refuse_advice();
        }
        let mut random = Random::new(blocks.len() as u64, 0);
        blocks.iter_mut().step_by(7).for_each(|block| block.change(&mut random));
        (0..CHILDS_BLOCKS).for_each(|_| small(&mut random).free());
        blocks.iter().for_each(|block| block.check());
    });
}

/// From now on `madvise` says `EPERM` in this process.
fn refuse_advice() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = [
        line(LOAD, 0, 0), // the call's number
        line(EQUAL, libc::SYS_madvise as u32, 1),
        line(ANSWER, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        line(ANSWER, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is whole, and read in the call. Where none may be set, the child goes on without.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program);
    }
}

/// Many threads, each of which holds a block until the last is there. Where so many cannot be made, fewer.
fn crowd(random: &mut Random, stop: &AtomicBool) {
    let there = AtomicU64::new(0);
    let holds = |seed: u64| {
        let block = small(&mut Random::new(seed, 0));
        there.fetch_add(1, Relaxed);
        while there.load(Relaxed) < CROWD && !stop.load(Relaxed) {
            sleep(Duration::from_millis(50));
        }
        block.free();
    };
    std::thread::scope(|scope| {
        for made in 0..CROWD {
            let (seed, holds) = (random.next(), &holds);
            if Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || holds(seed)).is_err() {
                there.fetch_add(CROWD - made, Relaxed);
                break;
            }
        }
    });
}
