//! Requests and replies, rule by rule, against a real server with each way of I/O.

use crate::support::client::number;
use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{Numbers, engines, pattern};

const SIZE: u64 = 1 << 20;

/// Runs a test with each way of I/O: a server with the memory export `m` and the read-only one `r`.
fn with_each(test: impl Fn(Server)) {
    for engine in engines() {
        let exports = ["--export", "m=memory:1M", "--read-only-export", "r=memory:1M", "--io", engine];
        test(Server::start(&exports));
    }
}

#[test]
fn what_is_written_is_read_with_every_kind_of_reply() {
    with_each(|server| {
        let data = pattern(1, 100_000);
        let (mut simple, mut structured, mut extended) =
            (server.simple("m"), server.structured("m"), server.extended("m"));
        assert_eq!(simple.simple(WRITE, 0, 777, 100_000, &data), 0);
        assert_eq!(simple.read_simple(777, 100_000), data);
        assert_eq!(structured.read(0, 777, 100_000), data);
        assert_eq!(structured.read(DF, 777, 100_000), data);
        assert_eq!(extended.read(0, 777, 100_000), data);
        assert_eq!(structured.error(WRITE, FUA, 0, 4, b"abcd"), 0);
        assert_eq!(extended.error(WRITE, FUA, 4, 4, b"efgh"), 0);
        assert_eq!(simple.read_simple(0, 8), b"abcdefgh");
        server.stop();
    });
}

#[test]
fn requests_outside_the_export_fail_and_the_session_goes_on() {
    with_each(|server| {
        let mut client = server.structured("m");
        for (kind, error) in [(READ, EINVAL), (TRIM, EINVAL), (CACHE, EINVAL), (ZEROES, ENOSPC)] {
            assert_eq!(client.error(kind, 0, SIZE - 511, 512, b""), error);
            assert_eq!(client.error(kind, 0, u64::MAX - 5, 512, b""), error);
            assert_eq!(client.error(kind, 0, SIZE - 512, 512, b""), 0);
        }
        assert_eq!(client.error(WRITE, 0, SIZE - 511, 512, &[0; 512]), ENOSPC);
        assert_eq!(client.error(WRITE, 0, u64::MAX, 512, &[0; 512]), ENOSPC);
        let mut client = server.simple("m");
        assert_eq!(client.simple(READ, 0, SIZE, 1, b""), EINVAL, "no data follows");
        assert_eq!(client.simple(WRITE, 0, SIZE, 3, b"abc"), ENOSPC, "its data is skipped");
        assert_eq!(client.read_simple(0, 1), [0]);
    });
}

#[test]
fn unknown_commands_and_flags_fail_and_the_session_goes_on() {
    with_each(|server| {
        let (mut client, mut extended) = (server.structured("m"), server.extended("m"));
        for kind in [8, 9, 255, 65535] {
            assert_eq!(client.error(kind, 0, 0, 512, b""), EINVAL);
            assert_eq!(extended.error(kind, 0, 0, 512, &[0; 512]), EINVAL, "its payload is skipped");
        }
        for (kind, flag) in [(READ, REQ_ONE), (WRITE, NO_HOLE), (WRITE, PAYLOAD_LEN), (FLUSH, DF), (TRIM, FAST_ZERO)] {
            let payload: &[u8] = if kind == WRITE { &[1; 512] } else { b"" };
            let length = if kind == FLUSH { 0 } else { 512 };
            assert_eq!(client.error(kind, flag, 0, length, payload), EINVAL, "{kind} {flag}");
        }
        assert_eq!(client.error(FLUSH, 0, 1, 0, b""), EINVAL);
        assert_eq!(client.error(FLUSH, 0, 0, 1, b""), EINVAL);
        assert_eq!(client.read(0, 0, 512), [0; 512], "no refused write has happened");
        assert_eq!(server.simple("m").simple(READ, DF, 0, 512, b""), EINVAL, "DF is for structured replies");
        // With extended headers a write has its payload, and nothing else has one.
        assert_eq!(extended.error(WRITE, 0, 0, 512, b""), EINVAL);
        assert_eq!(extended.error(READ, 0, 0, 512, &[0; 512]), EINVAL);
        assert_eq!(extended.read(0, 0, 512), [0; 512]);
    });
}

#[test]
fn fua_goes_with_every_command() {
    with_each(|server| {
        let mut client = server.structured("m");
        assert_eq!(client.error(WRITE, FUA, 0, 512, &[1; 512]), 0);
        assert_eq!(client.error(TRIM, FUA, 0, 512, b""), 0);
        assert_eq!(client.error(ZEROES, FUA, 0, 512, b""), 0);
        assert_eq!(client.error(FLUSH, FUA, 0, 0, b""), 0);
        assert_eq!(client.error(CACHE, FUA, 0, 512, b""), 0);
        assert_eq!(client.read(FUA, 0, 512), [0; 512]);
    });
}

#[test]
fn a_read_only_export_is_read_and_not_written() {
    with_each(|server| {
        let mut client = server.structured("r");
        assert_eq!(client.error(WRITE, 0, 0, 512, &[1; 512]), EPERM);
        assert_eq!(client.error(TRIM, 0, 0, 512, b""), EPERM);
        assert_eq!(client.error(ZEROES, 0, 0, 512, b""), EPERM);
        assert_eq!(client.error(FLUSH, 0, 0, 0, b""), 0);
        assert_eq!(client.read(0, 0, 512), [0; 512]);
    });
}

#[test]
fn requests_of_no_bytes_succeed() {
    with_each(|server| {
        let mut client = server.structured("m");
        assert_eq!(client.chunks(READ, 0, 5, 0, b"")[0].kind, 0);
        for kind in [WRITE, TRIM, ZEROES, CACHE] {
            assert_eq!(client.error(kind, 0, 5, 0, b""), 0);
        }
        assert_eq!(server.simple("m").simple(READ, 0, 0, 0, b""), 0);
    });
}

#[test]
fn an_error_says_what_is_wrong() {
    with_each(|server| {
        let mut client = server.structured("m");
        let chunks = client.chunks(READ, 0, SIZE, 512, b"");
        assert_eq!((chunks.len(), chunks[0].kind, chunks[0].is_last), (1, ERROR, true));
        let payload = &chunks[0].payload;
        assert_eq!(number(&payload[4..6]) as usize, payload.len() - 6);
        assert_eq!(&payload[6..], b"the range ends beyond the export's end");
        let log = server.log();
        let refused = log.lines().find(|line| line.contains("is refused")).expect("a line about it");
        let expected = ["DEBUG", "export 'm'", "offset: 1048576", "length: 512", "the range ends beyond"];
        assert!(expected.iter().all(|part| refused.contains(part)), "{refused}");
    });
}

#[test]
fn requests_longer_than_the_longest_fail_and_are_skipped() {
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:8M", "--max-request", "1M", "--io", engine]);
        let long = (1 << 20) + 1;
        let mut client = server.structured("m");
        assert_eq!(client.error(READ, 0, 0, long, b""), EOVERFLOW);
        assert_eq!(client.error(WRITE, 0, 0, long, &vec![1; long as usize]), EINVAL);
        assert_eq!(client.error(ZEROES, 0, 0, 8 << 20, b""), 0);
        assert_eq!(client.error(TRIM, 0, 0, 8 << 20, b""), 0);
        assert_eq!(client.read(0, 0, 1 << 20), vec![0; 1 << 20]);
        assert_eq!(server.simple("m").simple(READ, 0, 0, long, b""), EINVAL);
        // A payload of 4 GiB is not waited for.
        client.request(WRITE, 0, 0, u32::MAX.into(), b"");
        assert!(client.ends().is_empty());
        let mut client = server.extended("m");
        client.request(WRITE, PAYLOAD_LEN, 0, 1 << 60, b"");
        assert!(client.ends().is_empty());
        server.stop();
    }
}

#[test]
fn status_says_where_holes_are() {
    with_each(|server| {
        let (mut client, mut extended) = (server.connect(), server.extended("m"));
        client.greet();
        client.structured();
        client.set_allocation("m");
        client.go("m");
        assert_eq!(client.status(0, 0, SIZE), [(SIZE, 3)]);
        assert_eq!(client.error(WRITE, 0, 65536, 8192, &[1; 8192]), 0);
        let expected = [(65536, 3), (8192, 0), (SIZE - 65536 - 8192, 3)];
        assert_eq!(client.status(0, 0, SIZE), expected);
        assert_eq!(extended.status(0, 0, SIZE), expected);
        assert_eq!(client.status(REQ_ONE, 0, SIZE), expected[..1]);
        assert_eq!(client.status(REQ_ONE, 65536, 100), [(100, 0)], "one extent ends with the request");
        assert_eq!(client.error(TRIM, 0, 65536, 8192, b""), 0);
        assert_eq!(client.status(0, 0, SIZE), [(SIZE, 3)]);
        assert_eq!(client.error(STATUS, 0, SIZE - 1, 2, b""), EINVAL);
        assert_eq!(client.error(STATUS, 0, 0, 0, b""), EINVAL);
        assert_eq!(server.structured("m").error(STATUS, 0, 0, 512, b""), EINVAL, "no context was chosen");
    });
}

#[test]
fn long_reads_skip_holes_unless_they_may_not_be_split() {
    with_each(|server| {
        let mut client = server.structured("m");
        assert_eq!(client.error(WRITE, 0, 131_072, 4096, &[7; 4096]), 0);
        assert_eq!(client.error(TRIM, 0, 0, 4096, b""), 0);
        let kinds: Vec<_> = client.chunks(READ, 0, 0, SIZE, b"").iter().map(|chunk| chunk.kind).collect();
        assert_eq!(kinds, [HOLE, DATA, HOLE]);
        let whole = client.chunks(READ, DF, 0, SIZE, b"");
        assert_eq!((whole.len(), whole[0].kind, whole[0].payload.len() as u64), (1, DATA, SIZE + 8));
        assert_eq!(client.read(0, 0, SIZE as usize), whole[0].payload[8..]);
        assert_eq!(server.simple("m").read_simple(0, SIZE as usize), whole[0].payload[8..]);
    });
}

#[test]
fn zeroes_are_zeroes_with_every_flag() {
    with_each(|server| {
        let mut client = server.structured("m");
        for flags in [0, NO_HOLE, FAST_ZERO, FUA, NO_HOLE | FUA] {
            assert_eq!(client.error(WRITE, 0, 0, 20_000, &[9; 20_000]), 0);
            assert_eq!(client.error(ZEROES, flags, 100, 10_000, b""), 0, "{flags}");
            let expected = [&[9; 100][..], &[0; 10_000], &[9; 9_900]].concat();
            assert_eq!(client.read(0, 0, 20_000), expected, "{flags}");
        }
        // Memory that stays has to be written: not fast, and then nothing changes.
        assert_eq!(client.error(ZEROES, NO_HOLE | FAST_ZERO, 0, 50, b""), ENOTSUP);
        assert_eq!(client.read(0, 0, 50), [9; 50]);
        assert!(!server.log().lines().any(|line| line.contains("WARN") && line.contains("WriteZeroes")));
    });
}

#[test]
fn many_requests_are_in_flight_and_each_reply_is_its_own() {
    with_each(|server| {
        let mut client = server.structured("m");
        assert_eq!(client.error(WRITE, 0, 0, SIZE, &pattern(3, SIZE as usize)), 0);
        let data = pattern(3, SIZE as usize);
        for number in 0..500u64 {
            client.request_as(number, READ, DF, number * 2000, 1000, b"");
        }
        let mut seen = vec![false; 500];
        for _ in 0..500 {
            let chunk = client.chunk();
            let at = chunk.cookie as usize * 2000;
            assert_eq!((chunk.kind, number(&chunk.payload[..8])), (DATA, at as u64));
            assert_eq!(chunk.payload[8..], data[at..at + 1000]);
            assert!(!std::mem::replace(&mut seen[chunk.cookie as usize], true));
        }
    });
}

#[test]
fn disconnect_waits_for_what_is_in_flight() {
    with_each(|server| {
        let mut client = server.simple("m");
        for offset in 0..50 {
            client.request(WRITE, FUA, offset * 512, 512, &[offset as u8; 512]);
        }
        client.request(DISC, 0, 0, 0, b"");
        let replies = client.ends();
        assert_eq!(replies.len(), 50 * 16, "every write is answered");
        assert!(replies.chunks(16).all(|reply| reply[4..8] == [0; 4]));
    });
}

#[test]
fn what_is_no_request_ends_the_session_and_only_that_one() {
    with_each(|server| {
        let (mut bad, mut good) = (server.simple("m"), server.simple("m"));
        bad.send(&[0x55; 28]);
        assert!(bad.ends().is_empty());
        let mut compact = server.extended("m");
        compact.send(&REQUEST.to_be_bytes());
        compact.send(&[0; 28]);
        assert!(compact.ends().is_empty(), "extended headers are not mixed with others");
        assert_eq!(good.read_simple(0, 512), [0; 512]);
        server.stop();
    });
}

/// Writes of all of `data` from `at` on, small ones and some that are received without a copy; how many they are.
fn as_writes(data: &[u8], at: u64, numbers: &mut Numbers) -> (Vec<u8>, usize) {
    let (mut requests, mut done, mut count) = (Vec::new(), 0, 0);
    while done < data.len() {
        let most = if numbers.below(8) == 0 { 100_000 } else { 9000 };
        let end = (done + 1 + numbers.below(most) as usize).min(data.len());
        requests.extend([&REQUEST.to_be_bytes()[..], &[0; 2], &WRITE.to_be_bytes(), &[0; 8]].concat());
        requests.extend((at + done as u64).to_be_bytes());
        requests.extend(((end - done) as u32).to_be_bytes());
        requests.extend(&data[done..end]);
        (done, count) = (end, count + 1);
    }
    (requests, count)
}

#[test]
fn writes_that_come_in_any_pieces_are_whole() {
    // More clients than a worker has wide buffers, and each is in the midst of a request while the others go on.
    const CLIENTS: u64 = 40;
    const PART: u64 = 300_000;
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:16M", "--io", engine, "--workers", "1"]);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.simple("m")).collect();
        let all: Vec<_> = (0..CLIENTS).map(|number| pattern(number, PART as usize)).collect();
        let mut numbers = Numbers(7);
        let mut writes: Vec<_> =
            (0..).zip(&all).map(|(number, data)| as_writes(data, number * PART, &mut numbers)).collect();
        while writes.iter().any(|(requests, _)| !requests.is_empty()) {
            for (client, (requests, _)) in clients.iter_mut().zip(&mut writes) {
                let length = requests.len().min(1 + numbers.below(40_000) as usize);
                client.send(&requests.drain(..length).collect::<Vec<_>>());
            }
        }
        for (number, (client, (_, count))) in (0..).zip(clients.iter_mut().zip(&writes)) {
            (0..*count).for_each(|_| assert_eq!(client.simple_reply(), (0, 0)));
            assert!(client.read_simple(number * PART, PART as usize) == all[number as usize], "client {number}");
        }
        server.stop();
    }
}
