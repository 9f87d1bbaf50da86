//! A file of which the pages lie in an evictable cache, with write-back. Pages that were read leave when memory is short anywhere on
//! the machine. A page that was written is pinned by a guard until the file has it, so that no eviction can lose it.
//!
//! ```text
//! cargo run --release -p weir-memory --example page_cache -- --limit 16M
//! ```
//!
//! The program makes a file, which four threads read and write. Meanwhile the cache is evicted, written back, and bounded to
//! less than what is dirty. Then the process gets a limit below what it holds. Each read, and the file at the end, is compared with
//! what was written. `--limit SIZE` sets that limit, which is 8 MiB without it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::{env, process, ptr, thread};

use weir::pressure::{self, Level, Subscription};
use weir::{CallbackThread, EvictableCache, OwnedEntry, settings};

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// Bytes of a page.
const PAGE: u64 = 16 << 10;
/// Dirty pages, 1 MiB, from which on a write waits for the file: they cannot be evicted.
const MOST_DIRTY: usize = 64;

/// A page's bytes. Those of the last one end with zeros that are not in the file.
type Page = RwLock<Box<[u8]>>;

/// A page that was written and is not in the file. The guard pins it.
struct Dirty {
    page: OwnedEntry<u64, Page>,
    /// How often it was written since it became dirty.
    writes: u64,
}

/// A file of a fixed length, read and written by its pages.
struct PagedFile {
    file: File,
    length: u64,
    pages: Arc<EvictableCache<u64, Page>>,
    /// By their numbers, so that the file is written from its beginning to its end. A page in here is what was written last. Of
    /// any other page that is so of the file, and of what the cache has.
    dirty: Mutex<BTreeMap<u64, Dirty>>,
    /// Who holds it writes pages into the file. Of two at a time the older bytes of a page could come last.
    writing: Mutex<()>,
}

/// Takes a lock; what it guards is whole after a panic, too.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PagedFile {
    /// The file of a path. What was not flushed as this is dropped is lost.
    fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let file = File::options().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        let pages = EvictableCache::builder().name("pages").weigher(|_, _: &Page| PAGE as usize + 64).build()?;
        Ok(Self { file, length, pages: Arc::new(pages), dirty: Mutex::default(), writing: Mutex::default() })
    }

    /// The pages of a range of the file, and which bytes of each.
    fn pieces(&self, at: u64, length: usize) -> io::Result<impl Iterator<Item = (u64, Range<usize>)> + use<>> {
        let end = at.checked_add(length as u64).filter(|&end| end <= self.length);
        let end = end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the file"))?;
        Ok((at / PAGE..end.div_ceil(PAGE)).map(move |number| {
            let start = number * PAGE;
            (number, (at.max(start) - start) as usize..(end - start).min(PAGE) as usize)
        }))
    }

    /// Bytes of a page that are in the file.
    fn length_of(&self, number: u64) -> usize {
        PAGE.min(self.length - number * PAGE) as usize
    }

    /// A page that is not dirty, from the cache or the file. Of several threads that want one at a time one reads it.
    fn clean(&self, number: u64) -> io::Result<OwnedEntry<u64, Page>> {
        let load = || {
            let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
            self.file.read_exact_at(&mut bytes[..self.length_of(number)], number * PAGE)?;
            Ok::<_, io::Error>(RwLock::new(bytes))
        };
        Ok(self.pages.try_get_or_insert_with(number, load)?.into_owned(&self.pages))
    }

    /// Reads a range of the file.
    fn read(&self, at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        for (number, part) in self.pieces(at, bytes.len())? {
            let dirty = lock(&self.dirty).get(&number).map(|dirty| dirty.page.clone());
            let page = dirty.map_or_else(|| self.clean(number), Ok)?;
            let (these, others) = bytes.split_at_mut(part.len());
            these.copy_from_slice(&page.read().unwrap_or_else(PoisonError::into_inner)[part]);
            bytes = others;
        }
        Ok(())
    }

    /// Writes a range of the file: into the cache, unless too much is dirty. After an error some of it
    /// may be written, as into a file.
    fn write(&self, at: u64, mut bytes: &[u8]) -> io::Result<()> {
        for (number, part) in self.pieces(at, bytes.len())? {
            let (these, others) = bytes.split_at(part.len());
            while !self.write_page(number, part.clone(), these)? {
                self.write_back()?;
            }
            bytes = others;
        }
        Ok(())
    }

    /// Writes a part of a page into the cache; `false`: too much is dirty for one page more.
    fn write_page(&self, number: u64, part: Range<usize>, bytes: &[u8]) -> io::Result<bool> {
        // Held while a page is read: two that write it must have the same.
        let mut dirty = lock(&self.dirty);
        let has_room = dirty.len() < MOST_DIRTY;
        let now = match dirty.entry(number) {
            Entry::Occupied(now) => now.into_mut(),
            Entry::Vacant(_) if !has_room => return Ok(false),
            Entry::Vacant(place) => place.insert(Dirty { page: self.clean(number)?, writes: 0 }),
        };
        now.page.write().unwrap_or_else(PoisonError::into_inner)[part].copy_from_slice(bytes);
        now.writes += 1;
        Ok(true)
    }

    /// Writes the pages that are dirty into the file, and has them be evicted again; how many they were. A page stays dirty that
    /// was written meanwhile, or that the file did not take: then the first error is told when all others are written.
    fn write_back(&self) -> io::Result<usize> {
        let _turn = lock(&self.writing);
        // Until then the cache does not grow, and reclaim waits a little before it takes what is clean.
        self.pages.set_congested(true);
        let (mut next, mut count, mut failed) = (0, 0, None);
        loop {
            let first =
                lock(&self.dirty).range(next..).next().map(|(&at, dirty)| (at, dirty.page.clone(), dirty.writes));
            let Some((number, page, writes)) = first else { break };
            let bytes = page.read().unwrap_or_else(PoisonError::into_inner);
            let written = self.file.write_all_at(&bytes[..self.length_of(number)], number * PAGE);
            drop(bytes);
            next = number + 1;
            if let Err(why) = written {
                failed = failed.or(Some(why));
                continue;
            }
            count += 1;
            let mut dirty = lock(&self.dirty);
            if dirty.get(&number).is_some_and(|now| now.writes == writes) {
                self.forget_others(number, &page);
                dirty.remove(&number);
            }
        }
        self.pages.set_congested(false);
        failed.map_or(Ok(count), Err)
    }

    /// Of a page that is about to be clean, has no other copy stay. A full cache does not keep what it loads. Then the page is in its
    /// guards alone, and another thread may have read an older one from the file.
    fn forget_others(&self, number: u64, page: &Page) {
        if !self.pages.get(&number).is_some_and(|kept| ptr::eq(&*kept, page)) {
            // A load that is under way is not kept either.
            self.pages.remove(&number);
        }
    }

    /// Writes all that was written before into the file, and waits until its disk has it.
    fn flush(&self) -> io::Result<()> {
        self.write_back()?;
        self.file.sync_data()
    }

    /// Has dirty pages written back when memory is short, on a thread of its own, as it waits for the file.
    fn write_back_under_pressure(self: &Arc<Self>) -> Result<Subscription, Box<dyn Error>> {
        let file = self.clone();
        Ok(pressure::subscribe_on(CallbackThread::Own, "write-back", Level::Some, move |event| {
            if event.level > Level::None
                && let Err(why) = file.write_back()
            {
                eprintln!("pages stay dirty: {why}");
            }
        })?)
    }
}

// ---- the demonstration ---------------------------------------------------------------------------------------------

/// Bytes of the file, of which the last page has a part.
const LENGTH: usize = 400 * PAGE as usize + 1000;
/// Threads, and bytes of what one of them reads and writes alone: each page is of two threads or three.
const THREADS: usize = 4;
const STRIPE: usize = 10_000;
/// Reads and writes of each thread, in each of three rounds.
const CALLS: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = env::args().skip(1).collect();
    let limit = match &args[..] {
        [] => "8M",
        [option, limit] if option == "--limit" => limit.as_str(),
        _ => return Err("[--limit SIZE]".into()),
    };
    let path = env::temp_dir().join(format!("weir-pages-{}", process::id()));
    let done =
        File::create_new(&path)?.set_len(LENGTH as u64).map_err(Box::from).and_then(|()| demonstrate(&path, limit));
    fs::remove_file(&path)?;
    done
}

fn demonstrate(path: &Path, limit: &str) -> Result<(), Box<dyn Error>> {
    let file = Arc::new(PagedFile::open(path)?);
    let _subscription = file.write_back_under_pressure()?;
    let mut written = vec![0; LENGTH];
    overtake(&file, &mut written)?;
    for (round, what) in ["without a bound", "bounded to 32 pages", "under a limit"].into_iter().enumerate() {
        match round {
            0 => {}
            1 => file.pages.set_max_bytes(32 * (PAGE as usize + 64)),
            _ => {
                file.pages.set_max_bytes(usize::MAX);
                settings::set("limit", limit)?;
            }
        }
        work(&file, &mut written, round as u64)?;
        let (dirty, pinned) = (lock(&file.dirty).len(), file.pages.stats().pinned);
        println!("{what}: {} pages, {pinned} pinned, {dirty} dirty", file.pages.len());
        file.flush()?;
        if !lock(&file.dirty).is_empty() || fs::read(path)? != written {
            return Err(format!("{what} the file is not what was written").into());
        }
    }
    let stats = file.pages.stats();
    println!("{} hits, {} misses, {} evicted for pressure", stats.hits, stats.misses, stats.evicted_for_pressure);
    if stats.evicted_for_pressure == 0 || stats.pinned > 0 {
        return Err("nothing was evicted, or a page stays pinned".into());
    }
    Ok(())
}

/// A page that a full cache does not keep is written. A reader who looked for it before that comes to load the older one.
fn overtake(file: &PagedFile, written: &mut [u8]) -> io::Result<()> {
    file.pages.set_max_bytes(PAGE as usize + 64);
    let first = file.clean(0)?;
    file.write(PAGE, b"newer")?;
    drop(first);
    drop(file.clean(1)?);
    file.write_back()?;
    written[PAGE as usize..][..5].copy_from_slice(b"newer");
    let mut read = [0; 5];
    file.read(PAGE, &mut read)?;
    file.pages.set_max_bytes(usize::MAX);
    if &read == b"newer" { Ok(()) } else { Err(io::Error::other("an older copy of a page was kept")) }
}

/// Reads and writes by four threads, while another evicts half of the cache and writes back, again and again.
fn work(file: &PagedFile, written: &mut [u8], round: u64) -> Result<(), Box<dyn Error>> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let squeeze = scope.spawn(|| {
            for turn in 0.. {
                if is_done.load(Relaxed) {
                    break;
                }
                file.pages.evict(file.pages.bytes() / 2);
                file.pages.relieved();
                if turn % 8 == 0 {
                    file.write_back()?;
                }
                thread::yield_now();
            }
            io::Result::Ok(())
        });
        let mut parts = [const { Vec::new() }; THREADS];
        for (number, stripe) in written.chunks_mut(STRIPE).enumerate() {
            parts[number % THREADS].push((number * STRIPE, stripe));
        }
        let start = |(part, stripes)| scope.spawn(move || read_and_write(file, stripes, 1 + part as u64 + 8 * round));
        let threads: Vec<_> = parts.into_iter().enumerate().map(start).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Relaxed);
        squeeze.join().expect("it ends")?;
        ended.into_iter().try_for_each(|end| end.expect("a part ends"))
    })?;
    Ok(())
}

/// Random calls on the stripes of one thread, each with its place in the file and what was written there: on those at the beginning
/// more often than on others.
fn read_and_write(file: &PagedFile, mut stripes: Vec<(usize, &mut [u8])>, seed: u64) -> io::Result<()> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = |end: usize| {
        // Xorshift, of which the upper bits are the better ones.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize % end
    };
    let mut buffer = [0; STRIPE];
    for call in 0..CALLS {
        let end = 1 + random(stripes.len());
        let number = random(end);
        let (place, written) = &mut stripes[number];
        let at = random(written.len());
        let length = 1 + random(written.len() - at);
        let written = &mut written[at..at + length];
        let place = (*place + at) as u64;
        if random(2) == 0 {
            written.fill(call as u8);
            file.write(place, written)?;
        } else {
            let read = &mut buffer[..written.len()];
            file.read(place, read)?;
            if read != written {
                return Err(io::Error::other(format!("{} bytes at {place} are not what was written", read.len())));
            }
        }
    }
    Ok(())
}
