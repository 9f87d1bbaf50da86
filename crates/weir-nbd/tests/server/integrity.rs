//! Random reads, writes, trims and zeroes over several connections at a time, against a model of the disk.

use crate::support::client::{Client, number};
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{Numbers, engines, pattern};
use std::collections::HashMap;

const SIZE: usize = 8 << 20;
/// Ranges of one round lie in slots of their own, so that it does not matter in which order they are served.
const SLOT: usize = 128 << 10;
const ROUNDS: usize = 30;
/// With a cache: parts of blocks go through the kernel's page cache, and have to leave it again, which takes its time.
const CACHED_ROUNDS: usize = 8;

/// One request of a round.
struct Asked {
    kind: u16,
    offset: usize,
    length: usize,
    data: Vec<u8>,
}

/// Sends a random request inside `slot`.
fn ask(client: &mut Client, numbers: &mut Numbers, slot: usize) -> (u64, Asked) {
    let offset = slot * SLOT + numbers.below(SLOT as u64 / 2) as usize;
    // Whole blocks as often as not: file systems treat them differently.
    let offset = if numbers.below(2) == 0 { offset / 4096 * 4096 } else { offset };
    let length = 1 + numbers.below((SLOT / 2 - 1) as u64) as usize;
    let fua = if numbers.below(32) == 0 { FUA } else { 0 };
    let (kind, flags) = match numbers.below(10) {
        0..=3 => (WRITE, fua),
        4 => (TRIM, fua),
        5 => (ZEROES, fua),
        6 => (ZEROES, fua | NO_HOLE),
        7 => (READ, DF),
        _ => (READ, 0),
    };
    let data = if kind == WRITE { pattern(numbers.next(), length) } else { Vec::new() };
    let cookie = client.request(kind, flags, offset as u64, length as u64, &data);
    (cookie, Asked { kind, offset, length, data })
}

/// Takes the replies to all that was asked, and compares what was read with the model: each byte comes once.
fn answer(client: &mut Client, asked: &HashMap<u64, Asked>, model: &[u8]) {
    let (mut left, mut come) = (asked.len(), HashMap::<u64, Vec<(usize, usize)>>::new());
    while left > 0 {
        let chunk = client.chunk();
        let Asked { kind, offset, length, .. } = &asked[&chunk.cookie];
        assert_eq!(chunk.error(), None, "{chunk:?}");
        let come = come.entry(chunk.cookie).or_default();
        if chunk.kind == DATA || chunk.kind == HOLE {
            let at = number(&chunk.payload[..8]) as usize;
            let bytes = match chunk.kind {
                DATA => chunk.payload[8..].to_vec(),
                _ => vec![0; number(&chunk.payload[8..]) as usize],
            };
            assert!(*kind == READ && !bytes.is_empty(), "{chunk:?}");
            assert!(bytes == model[at..at + bytes.len()], "{at} and {} bytes on differ", bytes.len());
            come.push((at, at + bytes.len()));
        }
        if chunk.is_last && *kind == READ {
            come.sort_unstable();
            let end = come.iter().fold(*offset, |end, (from, to)| if *from == end { *to } else { usize::MAX });
            assert_eq!(end, offset + length, "of {offset} and {length} bytes on came {come:?}");
        }
        left -= usize::from(chunk.is_last);
    }
}

fn run(server: &Server, seed: u64, rounds: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut model = vec![0; SIZE];
    let mut clients: Vec<Client> = (0..2).flat_map(|_| [server.structured("d"), server.extended("d")]).collect();
    for round in 0..rounds {
        let mut asked: Vec<HashMap<u64, Asked>> = clients.iter().map(|_| HashMap::new()).collect();
        for slot in 0..SIZE / SLOT {
            let who = numbers.below(clients.len() as u64) as usize;
            let (cookie, request) = ask(&mut clients[who], &mut numbers, slot);
            asked[who].insert(cookie, request);
        }
        for (client, asked) in clients.iter_mut().zip(&asked) {
            answer(client, asked, &model);
        }
        for Asked { kind, offset, length, data } in asked.into_iter().flat_map(HashMap::into_values) {
            match kind {
                WRITE => model[offset..offset + length].copy_from_slice(&data),
                TRIM | ZEROES => model[offset..offset + length].fill(0),
                _ => {}
            }
        }
        // Another client sees it all.
        let reader = round % clients.len();
        if round % 10 == 9 || round + 1 == rounds {
            assert!(clients[reader].read(0, 0, SIZE) == model, "after round {round}");
        }
    }
    assert_eq!(clients[0].error(FLUSH, 0, 0, 0, b""), 0);
    model
}

#[test]
fn a_file_is_what_its_clients_made_it() {
    file(&[]);
}

#[test]
fn a_file_behind_a_cache_is_what_its_clients_made_it() {
    file(&["--cache", "64M"]);
    // Most of it is evicted again and again.
    file(&["--cache", "1M"]);
}

#[test]
fn a_file_that_is_written_later_is_what_its_clients_made_it() {
    file(&["--cache", "64M", "--write-back"]);
    file(&["--cache", "1M", "--write-back"]);
}

fn file(cache: &[&str]) {
    for (seed, engine) in engines().into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = std::fs::File::create(folder.path().join("disk")).expect("a file");
        disk.set_len(SIZE as u64).expect("a length");
        let options = ["--export", "d=disk", "--workers", "3", "--io", engine];
        let server = Server::start_in(folder, &[&options, cache].concat());
        let rounds = if cache.is_empty() { ROUNDS } else { CACHED_ROUNDS };
        let model = run(&server, seed as u64, rounds);
        let found = std::fs::read(server.path("disk")).expect("the file");
        assert!(found == model);
        server.stop();
    }
}

#[test]
fn memory_is_what_its_clients_made_it() {
    for (seed, engine) in engines().into_iter().enumerate() {
        let server = Server::start(&["--export", "d=memory:8M", "--workers", "3", "--io", engine]);
        run(&server, 100 + seed as u64, ROUNDS);
        server.stop();
    }
}
