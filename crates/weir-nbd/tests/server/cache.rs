//! The block cache: what it serves, and what it may not lose.

use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{Numbers, engines, pattern};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use tempfile::TempDir;

const SIZE: usize = 4 << 20;
const BLOCK: usize = 4096;

/// A folder with `disk`: noise, of a length that is not a multiple of a block.
fn disk() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = pattern(77, SIZE + 1000);
    std::fs::write(folder.path().join("disk"), &data).expect("a file");
    (folder, data)
}

/// Starts a server of `disk` with a cache and more options.
fn start(folder: TempDir, engine: &str, more: &[&str]) -> Server {
    Server::start_in(folder, &[&["--export", "d=disk", "--io", engine, "--cache", "64M"], more].concat())
}

fn read_file(server: &Server, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(server.path("disk")).and_then(|file| file.read_exact_at(&mut bytes, offset as u64)).expect("the file");
    bytes
}

fn counted(server: &Server, what: &str) -> u64 {
    server.stat()["cache"][what].as_u64().expect("a number")
}

#[test]
fn what_was_read_or_written_is_read_from_the_cache() {
    for engine in engines() {
        let (folder, data) = disk();
        let server = start(folder, engine, &["--limit", "1G"]);
        assert_eq!(server.stat()["limit_bytes"], 1 << 30);
        let mut client = server.structured("d");
        assert!(client.read(0, 0, 64 * BLOCK) == data[..64 * BLOCK]);
        assert_eq!((counted(&server, "misses"), counted(&server, "hits"), counted(&server, "blocks")), (64, 0, 64));
        // Another connection, and parts of blocks.
        assert!(server.extended("d").read(0, 1000, 10_000) == data[1000..11_000]);
        assert_eq!((counted(&server, "misses"), counted(&server, "hits")), (64, 3));
        // A hole in what is here: only that is fetched.
        assert_eq!(client.error(WRITE, 0, 100 * BLOCK as u64, BLOCK as u64, &pattern(1, BLOCK)), 0);
        assert_eq!(client.read(0, 100 * BLOCK as u64, BLOCK), pattern(1, BLOCK));
        assert_eq!((counted(&server, "misses"), counted(&server, "hits")), (64, 4));
        assert!(client.read(0, 62 * BLOCK as u64, 4 * BLOCK) == data[62 * BLOCK..66 * BLOCK]);
        assert_eq!((counted(&server, "misses"), counted(&server, "hits")), (66, 6));
        // In advance.
        assert_eq!(client.error(CACHE, 0, 200 * BLOCK as u64, 10 * BLOCK as u64, b""), 0);
        let misses = counted(&server, "misses");
        assert!(client.read(0, 200 * BLOCK as u64, 10 * BLOCK) == data[200 * BLOCK..210 * BLOCK]);
        assert_eq!(counted(&server, "misses"), misses);
        // Here and missing in turn, with ends inside of blocks.
        for (first, offset, length) in [(300, 0, 6 * BLOCK), (320, 0, 6 * BLOCK + 5), (340, 9, 6 * BLOCK)] {
            let at = first * BLOCK + offset;
            for block in [first + 1, first + 4] {
                client.read(0, (block * BLOCK) as u64, BLOCK);
            }
            assert!(client.read(0, at as u64, length) == data[at..at + length]);
            assert!(client.read(0, at as u64, length) == data[at..at + length], "from the cache");
        }
        // Behind the last whole block.
        assert!(client.read(0, SIZE as u64 - 10, 1010) == data[SIZE - 10..]);
        assert_eq!(client.error(WRITE, 0, SIZE as u64 + 10, 3, b"abc"), 0);
        assert_eq!(client.read(0, SIZE as u64 + 9, 5)[1..4], *b"abc");
        server.stop();
    }
}

#[test]
fn a_file_that_is_exported_twice_has_one_cache() {
    for more in [&["--export", "e=disk"][..], &["--read-only-export", "e=disk", "--write-back"]] {
        for engine in engines() {
            let (folder, data) = disk();
            let server = start(folder, engine, more);
            let (mut one, mut other) = (server.structured("d"), server.structured("e"));
            assert!(other.read(0, 0, BLOCK) == data[..BLOCK]);
            assert_eq!(one.error(WRITE, 0, 10, 3, b"abc"), 0);
            assert_eq!(other.read(0, 10, 3), b"abc");
            assert_eq!(one.error(TRIM, FUA, 0, BLOCK as u64, b""), 0);
            assert_eq!(other.read(0, 0, BLOCK), [0; BLOCK]);
            server.stop();
        }
    }
}

#[test]
fn a_flush_of_a_read_only_export_leaves_the_blocks_of_another_export_to_its_flush() {
    for engine in engines() {
        let (folder, data) = disk();
        let server = start(folder, engine, &["--read-only-export", "e=disk", "--write-back"]);
        let (mut one, mut other) = (server.structured("d"), server.structured("e"));
        // Three times: now and then the server writes the block to the file by itself before the flush comes.
        for round in 0..3 {
            assert_eq!(one.error(WRITE, 0, 0, 3, &[round; 3]), 0);
            assert_eq!(other.error(FLUSH, 0, 0, 0, b""), 0, "nothing of this export is dirty");
            assert_eq!(other.read(0, 0, 4), [round, round, round, data[3]]);
        }
        assert_eq!(one.error(FLUSH, 0, 0, 0, b""), 0);
        assert_eq!(read_file(&server, 0, 4), [2, 2, 2, data[3]]);
        server.stop();
    }
}

#[test]
fn what_is_written_through_is_in_the_file_when_it_is_answered() {
    for engine in engines() {
        let (folder, mut data) = disk();
        let server = start(folder, engine, &[]);
        let mut client = server.structured("d");
        let mut numbers = Numbers(5);
        for _ in 0..100 {
            let (at, length) = (numbers.below(SIZE as u64 - 20_000) as usize, 1 + numbers.below(20_000) as usize);
            let bytes = pattern(numbers.next(), length);
            assert_eq!(client.error(WRITE, 0, at as u64, length as u64, &bytes), 0);
            data[at..at + length].copy_from_slice(&bytes);
            assert!(read_file(&server, at, length) == bytes);
        }
        assert!(client.read(0, 0, SIZE) == data[..SIZE]);
        server.stop();
    }
}

#[test]
fn writes_to_a_block_and_to_a_part_of_it_at_one_time_break_no_flush() {
    for engine in engines() {
        let (folder, _) = disk();
        let server = start(folder, engine, &[]);
        let mut client = server.structured("d");
        for round in 0..100u8 {
            for block in 0..16 {
                client.request(WRITE, 0, block * BLOCK as u64, BLOCK as u64, &[round; BLOCK]);
                client.request(WRITE, 0, block * BLOCK as u64 + 512, 512, &[200; 512]);
            }
            for _ in 0..32 {
                let chunk = client.chunk();
                assert!(chunk.is_last && chunk.error().is_none(), "{chunk:?}");
            }
            assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0, "round {round}");
            for block in 0..16 {
                let found = client.read(0, block * BLOCK as u64, BLOCK);
                assert!(found[..512].iter().chain(&found[1024..]).all(|byte| *byte == round), "round {round}");
            }
        }
        server.stop();
    }
}

#[test]
fn what_was_flushed_survives_a_kill() {
    for engine in engines() {
        for round in 0..5 {
            let (folder, mut data) = disk();
            let mut server = start(folder, engine, &["--write-back"]);
            let mut clients = [server.structured("d"), server.extended("d")];
            let mut numbers = Numbers(round);
            for _ in 0..200 {
                let (at, length) = (numbers.below(SIZE as u64 - 9000) as usize, 1 + numbers.below(9000) as usize);
                let bytes = pattern(numbers.next(), length);
                let who = &mut clients[numbers.below(2) as usize];
                assert_eq!(who.error(WRITE, 0, at as u64, length as u64, &bytes), 0);
                data[at..at + length].copy_from_slice(&bytes);
                assert!(who.read(0, at as u64, length) == bytes);
            }
            // By either connection: a flush is of all of the export's.
            assert_eq!(clients[round as usize % 2].error(FLUSH, 0, 0, 0, b""), 0);
            // Written later: there or not, as a whole block or not at all.
            assert_eq!(clients[0].error(WRITE, 0, 0, BLOCK as u64, &[1; BLOCK]), 0);
            server.signal(libc::SIGKILL);
            server.wait();
            let found = read_file(&server, 0, SIZE);
            assert!(found[BLOCK..] == data[BLOCK..SIZE], "round {round}");
            assert!(found[..BLOCK] == data[..BLOCK] || found[..BLOCK] == [1; BLOCK]);
        }
    }
}

#[test]
fn fua_is_in_the_file_when_it_is_answered_and_the_rest_comes_by_itself() {
    for engine in engines() {
        let (folder, _) = disk();
        let mut server = start(folder, engine, &["--write-back"]);
        let mut client = server.structured("d");
        assert_eq!(client.error(WRITE, FUA, 5000, 9000, &pattern(1, 9000)), 0);
        assert!(read_file(&server, 5000, 9000) == pattern(1, 9000));
        assert_eq!(client.error(WRITE, 0, 50_000, 9000, &pattern(2, 9000)), 0);
        crate::support::eventually("it is written below", || read_file(&server, 50_000, 9000) == pattern(2, 9000));
        // And the last of it when the server is stopped.
        assert_eq!(client.error(WRITE, 0, 100_000, 9000, &pattern(3, 9000)), 0);
        assert_eq!(client.read(0, 100_000, 9000), pattern(3, 9000));
        drop(client);
        server.signal(libc::SIGTERM);
        assert!(server.wait().success());
        assert!(read_file(&server, 100_000, 9000) == pattern(3, 9000));
    }
}

/// A server with `cache`, which writes back, of two sparse files of 4 MiB that it cannot write behind their first MiB: `d` and
/// `e`.
fn start_short(engine: &str, cache: &str) -> Server {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["disk", "other"] {
        File::create(folder.path().join(name)).and_then(|file| file.set_len(4 << 20)).expect("a sparse file");
    }
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: between fork and exec, the call only changes the child's limit.
    let low = |command: &mut Command| unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    };
    let exports = ["--export", "d=disk", "--export", "e=other"];
    Server::spawn(folder, &[&exports[..], &["--io", engine, "--cache", cache, "--write-back"]].concat(), low)
}

/// Lets the server write all of it from now on.
fn lengthen(server: &Server) {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: changes a limit of the child, which has not been waited for.
    let raised = unsafe { libc::prlimit(server.pid(), libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    assert_eq!(raised, 0);
}

#[test]
fn what_cannot_be_written_below_is_an_error_and_is_not_lost() {
    for engine in engines() {
        let server = start_short(engine, "64M");
        let mut client = server.structured("d");
        assert_eq!(client.error(WRITE, 0, 2 << 20, BLOCK as u64, &[7; BLOCK]), 0, "it is in the cache");
        assert_eq!(client.error(WRITE, 0, 0, BLOCK as u64, &[8; BLOCK]), 0);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), ENOSPC);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), ENOSPC);
        assert_eq!(read_file(&server, 0, BLOCK), [8; BLOCK], "one block does not keep others from the file");
        assert_eq!(client.read(0, 2 << 20, BLOCK), [7; BLOCK]);
        lengthen(&server);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        assert_eq!(read_file(&server, 2 << 20, BLOCK), [7; BLOCK]);
        assert_eq!(counted(&server, "dirty_bytes"), 0);
        server.stop();
    }
}

#[test]
fn what_was_trimmed_or_zeroed_need_not_be_written_first() {
    for engine in engines() {
        let server = start_short(engine, "64M");
        let mut client = server.structured("d");
        let (far, length) = (2 << 20, 16 * BLOCK as u64);
        for kind in [TRIM, ZEROES] {
            assert_eq!(client.error(WRITE, 0, far, length, &[7; 16 * BLOCK]), 0, "it is in the cache");
            assert_eq!(client.error(FLUSH, 0, 0, 0, b""), ENOSPC);
            assert_eq!(client.error(kind, 0, far, length, b""), 0);
            assert_eq!(client.read(0, far, 16 * BLOCK), [0; 16 * BLOCK]);
            assert_eq!((counted(&server, "dirty_bytes"), client.error(FLUSH, 0, 0, 0, b"")), (0, 0));
        }
        // Of blocks that are covered in part, the rest stays to be written.
        assert_eq!(client.error(WRITE, 0, far, length, &[7; 16 * BLOCK]), 0);
        assert_eq!(client.error(ZEROES, 0, far + 100, 2 * BLOCK as u64, b""), 0);
        assert_eq!(counted(&server, "dirty_bytes"), length - BLOCK as u64);
        let expected = [&[7; 100][..], &[0; 2 * BLOCK], &[7; 14 * BLOCK - 100]].concat();
        assert_eq!(client.read(0, far, 16 * BLOCK), expected);
        lengthen(&server);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        assert_eq!(read_file(&server, far as usize, 16 * BLOCK), expected);
        server.stop();
    }
}

#[test]
fn what_waits_to_be_written_below_has_a_bound() {
    for engine in engines() {
        let server = start_short(engine, "1M");
        let mut client = server.structured("d");
        let (length, mut accepted) = (64 << 10, 0);
        while client.error(WRITE, 0, (1 << 20) + accepted * length, length, &[9; 64 << 10]) == 0 {
            accepted += 1;
            assert!(accepted < 40, "a quarter of the cache is four of these");
        }
        assert_eq!(counted(&server, "dirty_bytes"), accepted * length);
        assert!(client.read(0, 1 << 20, (accepted * length) as usize).iter().all(|byte| *byte == 9));
        lengthen(&server);
        assert_eq!(client.error(WRITE, 0, (1 << 20) + accepted * length, length, &[9; 64 << 10]), 0);
        server.stop();
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_room_for_what_waits_of_others() {
    for engine in engines() {
        let server = start_short(engine, "1M");
        let mut client = server.structured("d");
        let (length, mut accepted) = (64 << 10, 0);
        while client.error(WRITE, 0, (1 << 20) + accepted * length, length, &[9; 64 << 10]) == 0 {
            accepted += 1;
            assert!(accepted < 40);
        }
        let mut other = server.structured("e");
        // Again where the server has written some of it by itself in between, as it does every second.
        crate::support::eventually("four writes wait", || {
            assert_eq!(other.error(FLUSH, 0, 0, 0, b""), 0);
            assert_eq!(counted(&server, "dirty_bytes"), accepted * length);
            for block in 0..4 {
                assert_eq!(other.error(WRITE, 0, block * BLOCK as u64, BLOCK as u64, &[8; BLOCK]), 0);
            }
            counted(&server, "dirty_bytes") == accepted * length + 4 * BLOCK as u64
        });
        lengthen(&server);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        assert_eq!(read_file(&server, 1 << 20, 64 << 10), [9; 64 << 10]);
        server.stop();
    }
}

#[test]
fn one_long_write_keeps_to_the_bound_of_what_waits() {
    for engine in engines() {
        let server = start_short(engine, "1M");
        let mut client = server.structured("d");
        let (at, length) = (1 << 20, 2 << 20);
        assert_eq!(client.error(WRITE, 0, at, length, &pattern(3, 2 << 20)), ENOSPC);
        assert!(counted(&server, "dirty_bytes") <= 512 << 10, "a quarter of the cache, and as much between two looks");
        lengthen(&server);
        assert_eq!(client.error(WRITE, 0, at, length, &pattern(4, 2 << 20)), 0);
        assert!(counted(&server, "dirty_bytes") <= 512 << 10);
        assert!(client.read(0, at, 2 << 20) == pattern(4, 2 << 20));
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        assert!(read_file(&server, 1 << 20, 2 << 20) == pattern(4, 2 << 20));
        server.stop();
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_only_where_it_is_missing() {
    for engine in engines() {
        let (folder, data) = disk();
        let server = start(folder, engine, &[]);
        let mut client = server.structured("d");
        File::options().write(true).open(server.path("disk")).and_then(|file| file.set_len(10_000)).expect("shorter");
        assert!(client.read(0, 8192, 1000) == data[8192..9192], "the rest of its block is missing");
        assert_eq!(client.error(READ, 0, 8192, 4096, b""), EIO);
        assert_eq!(client.error(READ, 0, 1 << 20, 4096, b""), EIO);
        assert_eq!(client.error(CACHE, 0, 0, SIZE as u64, b""), 0);
        server.stop();
    }
}

#[test]
fn where_blocks_are_is_told_of_what_is_not_yet_in_the_file() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        File::create(folder.path().join("disk")).and_then(|file| file.set_len(4 << 20)).expect("a sparse file");
        let server = start(folder, engine, &["--write-back"]);
        let mut client = server.extended("d");
        assert_eq!(client.error(WRITE, 0, 1 << 20, 1 << 20, &pattern(5, 1 << 20)), 0);
        assert!(client.read(0, 0, 4 << 20)[1 << 20..2 << 20] == pattern(5, 1 << 20), "no hole");
        assert_eq!(client.status(0, 0, 4 << 20), [(1 << 20, 3), (1 << 20, 0), (2 << 20, 3)]);
        server.stop();
    }
}

#[test]
fn a_client_has_no_more_read_ahead_than_the_limit_has_room_for() {
    const SIZE: u64 = 512 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::File::create(folder.path().join("disk")).expect("a file").set_len(SIZE).expect("a size");
    let server = Server::start_in(folder, &["--export", "d=disk", "--cache", "auto", "--limit", "64M"]);
    let mut client = server.extended("d");
    assert_eq!(client.error(CACHE, 0, 0, SIZE, b""), 0);
    let read = counted(&server, "misses") * BLOCK as u64;
    assert!(read <= 64 << 20, "{read} bytes were read");
}
