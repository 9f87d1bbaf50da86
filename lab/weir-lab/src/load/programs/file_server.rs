//! E3's programs: a file server whose I/O buffers come from object caches, one for each size, from malloc, or straight
//! from the kernel; and its clients.
//!
//! A connection's requests come in batches; the server takes a buffer for each of a batch, reads the file into all of
//! them, sends them, and gives them back.

use crate::base::mem::{Block, PAGE, Random};
use crate::base::weir_caches::{NO_RECLAIM, Source};
use crate::programs::neighbour::{listen, resident, say};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Buffers' sizes: 4 KiB to 128 KiB.
const CLASSES: usize = 6;
const SMALLEST: usize = 4 << 10;
/// Requests of a batch, and bytes of one: where to read, and the class of its size.
const BATCH: usize = 64;
const REQUEST: usize = 16;

/// Where a server's buffers come from, by class.
type Pool = [Source; CLASSES];

/// `file-server SOCKET FILE cache|pinned|malloc|map`: says its figures whenever it is told to.
pub fn server(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let mut word = || args.next().ok_or("file-server SOCKET FILE cache|pinned|malloc|map");
    let (socket, path, from) = (word()?, word()?, word()?);
    let cache = |class: usize, flags| Source::cache(&format!("io {}", SMALLEST << class), SMALLEST << class, flags);
    let mut sources = [Source::Malloc(SMALLEST); CLASSES];
    for (class, source) in sources.iter_mut().enumerate() {
        *source = match from.as_str() {
            "cache" => cache(class, 0)?,
            "pinned" => cache(class, NO_RECLAIM)?,
            "map" => Source::Map(SMALLEST << class),
            _ => Source::Malloc(SMALLEST << class),
        };
    }
    let pool = sources;
    let file: &'static File = Box::leak(Box::new(File::open(&path).map_err(|why| format!("{path}: {why}"))?));
    let listener = UnixListener::bind(&socket).map_err(|why| format!("{socket}: {why}"))?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection, file, pool));
        }
    });
    loop {
        tell(&pool);
        listen();
    }
}

/// Until the client hangs up.
fn serve(mut connection: UnixStream, file: &File, pool: Pool) {
    let mut requests = [0u8; BATCH * REQUEST];
    while connection.read_exact(&mut requests).is_ok() {
        let mut buffers = [(0, Block::NONE); BATCH];
        for (slot, request) in buffers.iter_mut().zip(requests.as_chunks::<REQUEST>().0) {
            let [offset, class] = [&request[..8], &request[8..]]
                .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
            let class = (class as usize).min(CLASSES - 1);
            let block = pool[class].take();
            *slot = (class, block);
            if file.read_exact_at(bytes(block, class), offset).is_err() {
                break;
            }
        }
        let sent =
            buffers.iter().all(|(class, block)| block.is_none() || connection.write_all(bytes(*block, *class)).is_ok());
        buffers.iter().filter(|(_, block)| !block.is_none()).for_each(|(class, block)| pool[*class].give(*block));
        if !sent {
            return;
        }
    }
}

fn bytes<'a>(block: Block, class: usize) -> &'a mut [u8] {
    // SAFETY: a block of this class, held by one connection's thread alone until it is given back; the kernel fills it
    // before anybody reads it.
    unsafe { std::slice::from_raw_parts_mut(block.address(), SMALLEST << class) }
}

/// Resident bytes, and of each class: bytes of slabs, allocations, allocations that no bucket served.
fn tell(pool: &Pool) {
    let mut figures = [[0usize; 3]; CLASSES];
    for (figure, stats) in figures.iter_mut().zip(pool.iter().map(Source::stats)) {
        *figure = stats.map_or([0; 3], |stats| [stats.slab_bytes, stats.requests, stats.misses]);
    }
    let [slabs, requests, misses] = [0, 1, 2].map(|part| figures.map(|figure| figure[part]));
    say(format_args!(
        "{{\"rss\":{},\"slabs\":{slabs:?},\"requests\":{requests:?},\"misses\":{misses:?}}}\n",
        resident()
    ));
}

/// `file-clients SOCKET FILE-BYTES CONNECTIONS MS CLASS|all|turns`: reads at random places, of one size, of all, or of one
/// after another in turns of half a second; prints requests, bytes and time.
pub fn clients(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let usage = "file-clients SOCKET FILE-BYTES CONNECTIONS MS CLASS|all|turns";
    let mut word = || args.next().ok_or(usage);
    let (socket, length, connections, ms, sizes) = (word()?, word()?, word()?, word()?, word()?);
    let number = |text: &str| text.parse::<usize>().map_err(|_| usage.to_string());
    let (length, connections, ms) = (number(&length)?, number(&connections)?, number(&ms)?);
    let fixed = if sizes == "all" || sizes == "turns" { None } else { Some(number(&sizes)?) };
    let start = Instant::now();
    let end = start + Duration::from_millis(ms as u64);
    let class = move |random: &mut Random| match fixed {
        Some(class) => class,
        None if sizes == "turns" => start.elapsed().as_millis() as usize / 500 % CLASSES,
        None => random.below(CLASSES),
    };
    let read: u64 = std::thread::scope(|scope| {
        let start_one = |index| {
            let (socket, class) = (&socket, &class);
            scope.spawn(move || client(socket, length, end, &mut Random::new(0xf11e, index), class).unwrap_or(0))
        };
        let all: Vec<_> = (0..connections).map(start_one).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    println!("{{\"bytes\":{read},\"seconds\":{}}}", start.elapsed().as_secs_f64());
    Ok(())
}

fn client(
    socket: &str,
    length: usize,
    end: Instant,
    random: &mut Random,
    class: &impl Fn(&mut Random) -> usize,
) -> std::io::Result<u64> {
    let mut connection = UnixStream::connect(socket)?;
    let mut answer = vec![0u8; SMALLEST << (CLASSES - 1)];
    let mut read = 0;
    while Instant::now() < end {
        let mut requests = [0u8; BATCH * REQUEST];
        let mut wanted = 0;
        for request in requests.as_chunks_mut::<REQUEST>().0 {
            let class = class(random);
            let size = SMALLEST << class;
            let offset = random.below((length - size) / PAGE) * PAGE;
            request[..8].copy_from_slice(&(offset as u64).to_le_bytes());
            request[8..].copy_from_slice(&(class as u64).to_le_bytes());
            wanted += size;
        }
        connection.write_all(&requests)?;
        while wanted > 0 {
            let room = wanted.min(answer.len());
            let got = connection.read(&mut answer[..room])?;
            if got == 0 {
                return Ok(read);
            }
            wanted -= got;
            read += got as u64;
        }
    }
    Ok(read)
}
