//! Process A of experiment E8: peaks, lets most of it go from other threads than those that took it, and goes idle
//! without ever calling the allocator again.
//!
//! Protocol: after each phase one line of JSON on standard output, then A waits for one byte on standard input.
//! Phases: `ready` (if told to start), `peak` (all blocks live and written), `freed`, `idle`
//! (nothing happened since). The end of input ends A.

use crate::base::args::{number, read_words};
use crate::base::mem::{Block, Random};
use crate::base::process::resident_in_statm;
use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How block sizes are drawn, from 16 B to 256 KiB.
#[derive(Clone, Copy)]
enum SizeMix {
    /// Every doubling has as many bytes as every other: blocks of 16 B are as much of the peak as blocks of 200 KiB.
    EvenBytes,
    /// Every doubling has as many blocks: nearly all bytes are in large blocks.
    EvenCounts,
}

struct Setting {
    bytes: u64,
    threads: usize,
    /// Blocks that stay, of a thousand.
    keep_permille: usize,
    mix: SizeMix,
    seed: u64,
    /// Begin only when told, after a phase `ready`.
    told: bool,
}

fn read(args: impl Iterator<Item = String>) -> Result<Setting, String> {
    let mut setting =
        Setting { bytes: 1 << 30, threads: 4, keep_permille: 50, mix: SizeMix::EvenCounts, seed: 8, told: false };
    let keys = "bytes, threads, keep, seed, start=told, mix=even-bytes|even-counts";
    read_words(args, keys, |key, value| {
        match (key, value) {
            ("mix", "even-bytes") => setting.mix = SizeMix::EvenBytes,
            ("mix", "even-counts") => setting.mix = SizeMix::EvenCounts,
            ("start", "told") => setting.told = true,
            ("bytes", _) => setting.bytes = number(value)?,
            ("threads", _) => setting.threads = number(value)?.max(2) as usize,
            ("keep", _) => setting.keep_permille = number(value)?.min(1000) as usize,
            ("seed", _) => setting.seed = number(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(setting)
}

/// A block and its size.
type SizedBlock = (Block, u32);

/// Runs A.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let setting = read(args)?;
    if setting.told {
        say(format_args!("{{\"phase\":\"ready\"}}\n"));
        listen();
    }
    // The tables are mappings of the kernel's, so that neither they nor their growth are in what is measured.
    let tables: Vec<Table> = (0..setting.threads).map(|_| Table::new(&setting)).collect::<Result<_, _>>()?;
    let step = Barrier::new(setting.threads + 1);
    let (live, freed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for index in 0..setting.threads {
            let (tables, step, setting, live, freed) = (&tables, &step, &setting, &live, &freed);
            scope.spawn(move || worker(index, tables, step, setting, (live, freed)));
        }
        step.wait();
        let blocks: u64 = tables.iter().map(|table| table.length() as u64).sum();
        say(format_args!("{{\"phase\":\"peak\",\"bytes\":{},\"blocks\":{blocks}}}\n", live.load(Ordering::Relaxed)));
        listen();
        let start = Instant::now();
        step.wait();
        step.wait();
        let ns = start.elapsed().as_nanos();
        step.wait();
        let left = live.load(Ordering::Relaxed) - freed.load(Ordering::Relaxed);
        say(format_args!("{{\"phase\":\"freed\",\"free_ns\":{ns},\"live\":{left}}}\n"));
        listen();
        say(format_args!("{{\"phase\":\"idle\",\"rss\":{}}}\n", resident()));
        listen();
        // Ending is no part of the experiment: no block is freed, no destructor runs.
        // SAFETY: ends the process at once, whatever its threads do.
        unsafe { libc::_exit(0) }
    })
}

fn worker(index: usize, tables: &[Table], step: &Barrier, setting: &Setting, (live, freed): (&AtomicU64, &AtomicU64)) {
    live.fetch_add(fill(&tables[index], index, setting), Ordering::Relaxed);
    step.wait();
    step.wait();
    freed.fetch_add(free_others(index, tables, setting), Ordering::Relaxed);
    step.wait();
    tables[index].forget();
    step.wait();
    // A worker of a server that has nothing to do: alive, asleep, and what it cached still its own.
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}

/// Allocates this thread's share and writes every byte of it; then shuffles the table.
fn fill(table: &Table, index: usize, setting: &Setting) -> u64 {
    let mut random = Random::new(setting.seed, index);
    let share = setting.bytes / setting.threads as u64;
    let (mut bytes, mut count) = (0, 0);
    while bytes < share && count < table.capacity {
        let size = setting.mix.draw(&mut random);
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
    table.finish(count);
    bytes
}

/// Frees what other threads allocated: of each other thread's shuffled table a part, but for those that stay.
fn free_others(index: usize, tables: &[Table], setting: &Setting) -> u64 {
    let mut random = Random::new(setting.seed + 1, index);
    let mut freed = 0;
    for (owner, table) in tables.iter().enumerate() {
        let others = tables.len() - 1;
        // The other threads count 0.. from the owner's successor on.
        let turn = (index + tables.len() - owner) % tables.len();
        if turn == 0 {
            continue;
        }
        for place in (turn - 1..table.length()).step_by(others) {
            if random.below(1000) >= setting.keep_permille {
                let (block, size) = table.get(place);
                block.free();
                freed += u64::from(size);
            }
        }
    }
    freed
}

impl SizeMix {
    fn draw(self, random: &mut Random) -> usize {
        match self {
            SizeMix::EvenCounts => random.doublings(4, 18),
            // Each doubling half as often as the one below: so are a random number's leading zeros.
            SizeMix::EvenBytes => {
                let doubling = 4 + random.next().leading_zeros().min(13);
                random.doublings(doubling, doubling + 1)
            }
        }
    }
}

/// A thread's blocks. This thread fills it, the others read it after a barrier.
struct Table {
    base: *mut SizedBlock,
    capacity: usize,
    length: AtomicU64,
}

// SAFETY: a barrier stands between the owner's writes and the others' reads, which are of plain data.
unsafe impl Sync for Table {}
// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Table {}

impl Table {
    /// Room for the worst draw of sizes; pages never used cost nothing.
    fn new(setting: &Setting) -> Result<Table, String> {
        let capacity = (setting.bytes / setting.threads as u64 / 16 + 1) as usize;
        // SAFETY: a fresh private anonymous mapping, chosen by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                capacity * size_of::<SizedBlock>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(format!("cannot map the table of blocks: {}", std::io::Error::last_os_error()));
        }
        // Huge pages of the table's own would be split when it is forgotten, and be counted as if a report had done it.
        // SAFETY: the fresh mapping, whole. Advice that is not taken does no harm.
        unsafe { libc::madvise(base, capacity * size_of::<SizedBlock>(), libc::MADV_NOHUGEPAGE) };
        Ok(Table { base: base.cast(), capacity, length: AtomicU64::new(0) })
    }

    fn length(&self) -> usize {
        self.length.load(Ordering::Acquire) as usize
    }

    fn finish(&self, length: usize) {
        self.length.store(length as u64, Ordering::Release);
    }

    /// Releases the table's own pages, so that only the allocator's stay resident.
    fn forget(&self) {
        // SAFETY: the whole mapping that `new` made. Entries are copied in and out, so that there are no references into it,
        // and a caller reads none after this.
        unsafe { libc::madvise(self.base.cast(), self.capacity * size_of::<SizedBlock>(), libc::MADV_DONTNEED) };
    }

    fn set(&self, place: usize, held: SizedBlock) {
        debug_assert!(place < self.capacity);
        // SAFETY: place < capacity; only the owner writes, before the barrier.
        unsafe { self.base.add(place).write(held) };
    }

    fn get(&self, place: usize) -> SizedBlock {
        debug_assert!(place < self.capacity);
        // SAFETY: place < length, so it was set before.
        unsafe { self.base.add(place).read() }
    }
}

/// This process's resident bytes by `statm`, read into the stack; 0 without a `/proc`.
pub fn resident() -> u64 {
    let mut text = [0u8; 128];
    // SAFETY: a C string; the read fills at most the buffer.
    let length = unsafe {
        let file = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    resident_in_statm(&text[..length.max(0) as usize]).unwrap_or(0)
}

/// Prints through a buffer on the stack: after the frees nothing may allocate.
pub fn say(line: std::fmt::Arguments) {
    let mut buffer = [0u8; 512];
    let mut rest = &mut buffer[..];
    let _ = rest.write_fmt(line);
    let unused = rest.len();
    let length = buffer.len() - unused;
    // SAFETY: writes `length` bytes of the buffer to standard output.
    unsafe { libc::write(1, buffer.as_ptr().cast(), length) };
}

/// Waits for the harness's byte. The harness being gone is the end.
pub fn listen() {
    let mut byte = 0u8;
    // SAFETY: reads at most one byte into `byte`.
    let got = unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
    if got != 1 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) }
    }
}
