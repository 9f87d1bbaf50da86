//! E3's programs: a file server and its clients. The server's I/O buffers come from object caches, one for each size,
//! from malloc, or straight from the kernel.
//!
//! A connection's requests come in batches. The server takes a buffer for each of a batch, reads the file into all of
//! them, sends them, and gives them back.

use crate::base::prelude::*;
use crate::base::weir_h::{NO_RECLAIM, Source};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};

const CLASSES: usize = 6;
const SMALLEST: usize = 4 << 10;
const BATCH: usize = 64;

type Pool = [Source; CLASSES];

/// `file-server socket=PATH file=PATH from=cache|pinned|map|malloc`; a line of figures for each byte on standard input.
pub fn server(words: &Words) -> Result<()> {
    let mut pool = [Source::Malloc(SMALLEST); CLASSES];
    for (class, source) in pool.iter_mut().enumerate() {
        let (size, name) = (SMALLEST << class, format!("io {}", SMALLEST << class));
        *source = match words.text("from")? {
            "cache" => Source::cache(&name, size, 0)?,
            "pinned" => Source::cache(&name, size, NO_RECLAIM)?,
            "map" => Source::Map(size),
            _ => Source::Malloc(size),
        };
    }
    let file: &'static File = Box::leak(Box::new(File::open(words.text("file")?).context("the file to serve")?));
    let listener = UnixListener::bind(words.text("socket")?)?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection, file, pool));
        }
    });
    loop {
        let stats = pool.each_ref().map(|source| source.stats().unwrap_or_default());
        let (slabs, rss) = (stats.map(|stats| stats.slab_bytes), own_resident());
        let (requests, misses) = (stats.map(|stats| stats.requests), stats.map(|stats| stats.misses));
        phase(format_args!("{{\"rss\":{rss},\"slabs\":{slabs:?},\"requests\":{requests:?},\"misses\":{misses:?}}}"));
    }
}

/// Serves batches of requests: an offset and a class of size, of 8 bytes each.
fn serve(mut connection: UnixStream, file: &File, pool: Pool) {
    let mut requests = [0u8; BATCH * 16];
    while connection.read_exact(&mut requests).is_ok() {
        let mut buffers = [(0, Block::NONE); BATCH];
        for (slot, words) in buffers.iter_mut().zip(requests.as_chunks::<8>().0.chunks(2)) {
            let class = (u64::from_le_bytes(words[1]) as usize).min(CLASSES - 1);
            *slot = (class, pool[class].take());
            if file.read_exact_at(bytes(slot.1, class), u64::from_le_bytes(words[0])).is_err() {
                break;
            }
        }
        let taken = || buffers.iter().filter(|(_, block)| !block.is_none());
        let sent = taken().all(|(class, block)| connection.write_all(bytes(*block, *class)).is_ok());
        taken().for_each(|(class, block)| pool[*class].give(*block));
        if !sent {
            return;
        }
    }
}

fn bytes<'a>(block: Block, class: usize) -> &'a mut [u8] {
    // SAFETY: the block is of this class, and the connection's alone until it is given back.
    unsafe { std::slice::from_raw_parts_mut(block.address(), SMALLEST << class) }
}

/// `file-clients socket=PATH length=N connections=N ms=N sizes=CLASS|all|turns`: what all of them read in that time.
pub fn clients(words: &Words) -> Result<()> {
    let (socket, sizes) = (words.text("socket")?, words.text("sizes")?);
    let (length, connections) = (words.number("length")? as usize, words.number("connections")? as usize);
    let fixed = sizes.parse::<usize>().ok();
    let start = Instant::now();
    let end = start + Duration::from_millis(words.number("ms")?);
    let class = |random: &mut Random| match fixed {
        Some(class) => class,
        None if sizes == "turns" => start.elapsed().as_millis() as usize / 500 % CLASSES,
        None => random.below(CLASSES),
    };
    let read: u64 = std::thread::scope(|scope| {
        let start_one = |index| {
            let class = &class;
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
) -> Result<u64> {
    let mut connection = UnixStream::connect(socket)?;
    let mut answer = vec![0u8; BATCH * (SMALLEST << (CLASSES - 1))];
    let mut read = 0;
    while Instant::now() < end {
        let (mut requests, mut wanted) = (Vec::with_capacity(BATCH * 16), 0);
        for _ in 0..BATCH {
            let class = class(random);
            let size = SMALLEST << class;
            let offset = random.below((length - size) / PAGE) * PAGE;
            requests.extend([offset as u64, class as u64].map(u64::to_le_bytes).concat());
            wanted += size;
        }
        if connection.write_all(&requests).and_then(|()| connection.read_exact(&mut answer[..wanted])).is_err() {
            break; // The server is gone, which the harness sees.
        }
        read += wanted as u64;
    }
    Ok(read)
}
