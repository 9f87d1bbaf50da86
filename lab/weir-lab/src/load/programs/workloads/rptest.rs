//! rpmalloc's benchmark, from its description. Threads allocate random sizes in loops, free most themselves, and hand
//! a share on to another thread, which frees it when it next looks.

use crate::base::prelude::*;
use std::sync::Mutex;

const BLOCKS: usize = 1_000;
const LOOPS: u64 = 2_000;
/// One block in this many is freed by another thread.
const HANDED_ON: usize = 4;
/// Blocks that wait for a thread at most. Without a bound, a thread that the machine lets wait has the others' blocks
/// pile up, and time and peak tell of the scheduler alone.
const MAIL: usize = 2 * BLOCKS;

/// Counts blocks allocated.
pub fn work(run: &Run) -> u64 {
    let mail: Vec<Mutex<Vec<Block>>> = (0..run.threads).map(|_| Mutex::new(Vec::new())).collect();
    let loops = run.scaled(LOOPS);
    let done = run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut own = vec![Block::NONE; BLOCKS];
        for _ in 0..loops {
            one_loop(&mut own, &mut random, &mail[(index + 1) % mail.len()]);
            let received = std::mem::take(&mut *mail[index].lock().unwrap());
            received.into_iter().for_each(Block::free);
        }
        own.into_iter().for_each(Block::free);
        loops * BLOCKS as u64
    });
    for left in mail {
        left.into_inner().unwrap().into_iter().for_each(Block::free);
    }
    done
}

fn one_loop(own: &mut [Block], random: &mut Random, next: &Mutex<Vec<Block>>) {
    let mut handed = Vec::with_capacity(own.len() / HANDED_ON * 2);
    for place in own {
        let size = random.between(16, 16_000);
        let old = std::mem::replace(place, Block::new(size));
        if old.is_none() {
            continue;
        }
        if random.below(HANDED_ON) == 0 { handed.push(old) } else { old.free() }
    }
    let mut mail = next.lock().unwrap();
    let kept = handed.split_off(MAIL.saturating_sub(mail.len()).min(handed.len()));
    mail.append(&mut handed);
    drop(mail);
    kept.into_iter().for_each(Block::free);
}
