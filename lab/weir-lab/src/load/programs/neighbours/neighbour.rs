//! Process A of experiment E8. It peaks, lets most of it go from other threads than those that took it, and goes
//! idle without ever calling the allocator again.
//!
//! Protocol: after each phase one line of JSON on standard output, then A waits for one byte on standard input.
//! Phases: `ready` (with `told=1`), `peak` (all blocks live and written), `freed`. The end of input ends A.

use crate::base::prelude::*;
use memmap2::{MmapMut, MmapRaw, UncheckedAdvice};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

struct Setting {
    bytes: u64,
    threads: usize,
    /// Blocks of a thousand that stay.
    keep: usize,
    /// As many bytes of each doubling of sizes, in place of as many blocks.
    even_bytes: bool,
    seed: u64,
}

type SizedBlock = (Block, u32);

pub fn main(words: &Words) -> Result<()> {
    let setting = Setting {
        bytes: words.number("bytes")?,
        threads: words.number_or("threads", 4)?.max(2) as usize,
        keep: words.number_or("keep", 50)? as usize,
        even_bytes: words.text("mix").is_ok_and(|mix| mix == "even-bytes"),
        seed: words.number_or("seed", 8)?,
    };
    if words.number_or("told", 0)? != 0 {
        phase(format_args!("{{\"phase\":\"ready\"}}"));
    }
    let tables: Vec<Table> = (0..setting.threads).map(|_| Table::new(&setting)).collect::<Result<_>>()?;
    let step = Barrier::new(setting.threads + 1);
    let live = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in 0..setting.threads {
            let (tables, step, setting, live) = (&tables, &step, &setting, &live);
            scope.spawn(move || worker(index, tables, step, setting, live));
        }
        step.wait();
        phase(format_args!("{{\"phase\":\"peak\",\"bytes\":{}}}", live.load(Ordering::Relaxed)));
        let start = Instant::now();
        step.wait();
        step.wait();
        let ns = start.elapsed().as_nanos();
        step.wait();
        let left = live.load(Ordering::Relaxed);
        phase(format_args!("{{\"phase\":\"freed\",\"free_ns\":{ns},\"live\":{left}}}"));
        end()
    })
}

fn worker(index: usize, tables: &[Table], step: &Barrier, setting: &Setting, live: &AtomicU64) {
    live.fetch_add(fill(&tables[index], index, setting), Ordering::Relaxed);
    step.wait();
    step.wait();
    live.fetch_sub(free_others(index, tables, setting), Ordering::Relaxed);
    step.wait();
    tables[index].forget();
    step.wait();
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Takes this thread's share, and shuffles what it took.
fn fill(table: &Table, index: usize, setting: &Setting) -> u64 {
    let mut random = Random::new(setting.seed, index);
    let share = setting.bytes / setting.threads as u64;
    let (mut bytes, mut count) = (0, 0);
    while bytes < share && count < table.capacity {
        let size = draw(setting, &mut random);
        let block = Block::new(size);
        block.fill(size);
        table.set(count, (block, size as u32));
        bytes += size as u64;
        count += 1;
    }
    for last in (1..count).rev() {
        let other = random.below(last + 1);
        let (a, b) = (table.get(last), table.get(other));
        table.set(last, b);
        table.set(other, a);
    }
    table.length.store(count, Ordering::Release);
    bytes
}

/// From 16 B to 256 KiB.
fn draw(setting: &Setting, random: &mut Random) -> usize {
    if !setting.even_bytes {
        return random.doublings(4, 18);
    }
    let doubling = 4 + random.next().leading_zeros().min(13);
    random.doublings(doubling, doubling + 1)
}

/// Frees this thread's part of every other thread's blocks.
fn free_others(index: usize, tables: &[Table], setting: &Setting) -> u64 {
    let mut random = Random::new(setting.seed + 1, index);
    let mut freed = 0;
    for (owner, table) in tables.iter().enumerate().filter(|(owner, _)| *owner != index) {
        let turn = (index + tables.len() - owner) % tables.len();
        for place in (turn - 1..table.length.load(Ordering::Acquire)).step_by(tables.len() - 1) {
            if random.below(1000) >= setting.keep {
                let (block, size) = table.get(place);
                block.free();
                freed += u64::from(size);
            }
        }
    }
    freed
}

/// A thread's blocks, in memory straight from the kernel, which is given back when they are freed.
struct Table {
    memory: MmapRaw,
    capacity: usize,
    length: AtomicUsize,
}

impl Table {
    fn new(setting: &Setting) -> Result<Table> {
        let capacity = (setting.bytes / setting.threads as u64 / 16 + 1) as usize;
        let memory = MmapMut::map_anon(capacity * size_of::<SizedBlock>())?;
        memory.advise(memmap2::Advice::NoHugePage)?;
        Ok(Table { memory: memory.into(), capacity, length: AtomicUsize::new(0) })
    }

    fn forget(&self) {
        // SAFETY: nothing of the table is read any more.
        let _ = unsafe { self.memory.unchecked_advise(UncheckedAdvice::DontNeed) };
    }

    fn place(&self, place: usize) -> *mut SizedBlock {
        assert!(place < self.capacity);
        self.memory.as_mut_ptr().cast::<SizedBlock>().wrapping_add(place)
    }

    fn set(&self, place: usize, held: SizedBlock) {
        // SAFETY: the place is within the mapping, and only the table's own thread writes, before others read.
        unsafe { self.place(place).write(held) };
    }

    fn get(&self, place: usize) -> SizedBlock {
        // SAFETY: the place is within the mapping, and was written before the barrier.
        unsafe { self.place(place).read() }
    }
}
