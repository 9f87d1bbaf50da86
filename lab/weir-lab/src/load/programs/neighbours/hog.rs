//! A process that needs memory, straight from the kernel, so that no allocator is in its time: B of E8, the scanner of E1 and E7,
//! and what has the machine hold memory before `huge-pages`.
//!
//! `hog bytes=N times=N [huge=1]` writes to each page twice and lets all go, so many times. `hog bytes=N pause_us=N` goes
//! through the pages for ever, with a pause after each MiB.

use crate::base::prelude::*;
use memmap2::{Advice, MmapMut};

const CHUNK: usize = 1 << 20;

pub fn main(words: &Words) -> Result<()> {
    let bytes = words.number("bytes")? as usize;
    if let Ok(pause) = words.number("pause_us") {
        return scan(bytes, Duration::from_micros(pause));
    }
    let mut turns = Vec::new();
    for _ in 0..words.number("times")? {
        let start = Instant::now();
        let mut memory = MmapMut::map_anon(bytes)?;
        if words.number_or("huge", 0)? != 0 {
            memory.advise(Advice::HugePage)?;
        }
        (0..2).for_each(|_| touch(&mut memory));
        drop(memory);
        turns.push(start.elapsed().as_nanos() as u64);
    }
    println!("{{\"turns_ns\":{turns:?}}}");
    Ok(())
}

fn touch(memory: &mut [u8]) {
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = std::hint::black_box(byte.wrapping_add(1)));
}

fn scan(bytes: usize, pause: Duration) -> Result<()> {
    let mut memory = MmapMut::map_anon(bytes)?;
    for round in 0u64.. {
        for chunk in memory.chunks_mut(CHUNK) {
            touch(chunk);
            std::thread::sleep(pause);
        }
        if round == 0 {
            say(format_args!("{{\"phase\":\"once\"}}"));
        }
    }
    Ok(())
}
