//! The connections' page pools: what they keep between requests, what a reload, quiet and memory pressure change.

use crate::support::server::Server;
use crate::support::wire::*;
use crate::support::{engines, eventually, with_engines_at_once};

const MIB: usize = 1 << 20;

/// A figure of all connections' pools together.
fn figure(server: &Server, name: &str) -> u64 {
    server.stat()["pools"][name].as_u64().expect("a number")
}

#[test]
fn requests_use_the_same_pages_in_turn() {
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:64M", "--workers", "1", "--io", engine]);
        let mut client = server.simple("m");
        assert_eq!((figure(&server, "gets"), figure(&server, "idle_pages")), (0, 0), "a pool starts from zero");
        for round in 0..20 {
            let data = vec![(round % 250) as u8 + 1; MIB];
            assert_eq!(client.simple(WRITE, 0, round * MIB as u64, MIB as u64, &data), 0);
            assert!(client.read_simple(round * MIB as u64, MIB) == data);
        }
        eventually("the last reply has gone", || figure(&server, "in_flight_pages") == 0);
        assert!(figure(&server, "gets") >= 40, "both writes and reads");
        // A write's pages may still wait for its reply while the next request is read.
        assert!(figure(&server, "misses") <= 4, "the first ones alone took new pages");
        assert!((256..=1024).contains(&figure(&server, "idle_pages")));
        let output = Server::run(&["stat", "--control", server.path("c").to_str().expect("UTF-8")]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 page pools: "));
        server.stop();
    }
}

#[test]
fn long_reads_of_memory_are_copied_as_they_are_sent() {
    for engine in engines() {
        let server = Server::start(&["--export", "m=memory:16M", "--workers", "1", "--io", engine]);
        let mut client = server.simple("m");
        for at in 0..16 {
            assert_eq!(client.simple(WRITE, 0, at * MIB as u64, MIB as u64, &vec![at as u8 + 1; MIB]), 0);
        }
        eventually("the writes' pages are back", || figure(&server, "in_flight_pages") == 0);
        for at in 0..16 {
            client.request(READ, 0, at * MIB as u64, MIB as u64, b"");
        }
        // The socket holds one or two of them.
        eventually("one waits to be sent", || figure(&server, "in_flight_pages") == 256);
        for _ in 0..50 {
            assert!(figure(&server, "in_flight_pages") <= 256, "the others have no pages yet");
        }
        let mut seen: Vec<u8> = (0..16)
            .map(|_| {
                assert_eq!(client.simple_reply().0, 0);
                let data = client.receive(MIB);
                assert!(data.iter().all(|byte| *byte == data[0]));
                data[0]
            })
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..=16));
        server.stop();
    }
}

#[test]
fn each_connection_has_a_pool_until_it_has_been_quiet() {
    with_engines_at_once(|engine| {
        let server = Server::start(&["--export", "m=memory:64M", "--workers", "1", "--io", engine]);
        let mut clients = [server.simple("m"), server.simple("m"), server.simple("m")];
        assert_eq!(figure(&server, "count"), 0, "no request yet: no pool");
        clients[..2].iter_mut().for_each(|client| drop(client.read_simple(0, MIB)));
        // Some replies have gone before their pages are put back.
        eventually("both keep what they had", || figure(&server, "idle_pages") >= 512);
        assert_eq!((figure(&server, "count"), figure(&server, "gets")), (2, 2), "a pool each, for those that read");
        eventually("quiet clients keep nothing", || {
            (figure(&server, "count"), figure(&server, "idle_pages")) == (0, 0)
        });
        assert_eq!(figure(&server, "gets"), 2, "totals stay");
        assert_eq!(clients[0].read_simple(0, MIB).len(), MIB);
        assert_eq!((figure(&server, "count"), figure(&server, "gets")), (1, 3));
        drop(clients);
        eventually("a client that left keeps nothing", || figure(&server, "count") == 0);
        server.stop();
    });
}

#[test]
fn max_idle_pages_is_an_option_and_a_reload_sets_it() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config");
        let export = "[[export]]\nname = 'm'\nmemory = '64M'\n";
        let options = ["--config", "config", "--workers", "1", "--io", engine];
        std::fs::write(&config, format!("max-idle-pages = 0\n{export}")).expect("a file");
        let server = Server::start_in(folder, &options);
        let mut client = server.simple("m");
        let mut done = || {
            client.read_simple(0, 4 * MIB);
            eventually("the reply has gone", || figure(&server, "in_flight_pages") == 0);
            figure(&server, "idle_pages")
        };
        assert_eq!(done(), 0, "each request takes its pages anew");
        let reload = |text: &str, times: usize| {
            std::fs::write(&config, format!("{text}\n{export}")).expect("a file");
            server.signal(libc::SIGHUP);
            eventually("it is read again", || server.log().matches("read again").count() == times);
        };
        reload("squeeze-ms = 100", 1);
        assert_eq!(done(), 1024, "not set any more: as it was at the start");
        reload("max-idle-pages = 0", 2);
        assert_eq!(done(), 0);
        server.stop();
    }
}

#[test]
fn memory_pressure_squeezes_the_pools_and_no_request_is_hurt() {
    for engine in engines() {
        // Far below what the export itself has in use: pressure does not end.
        let options = ["--export", "m=memory:32M", "--workers", "1", "--limit", "4M", "--io", engine];
        let server = Server::start(&options);
        let mut client = server.simple("m");
        let mut round = 0;
        eventually("the pool is squeezed", || {
            let data = vec![(round % 250) as u8 + 1; MIB];
            let at = round % 32 * MIB as u64;
            assert_eq!(client.simple(WRITE, 0, at, MIB as u64, &data), 0);
            assert!(client.read_simple(at, MIB) == data);
            round += 1;
            round > 32 && figure(&server, "squeezes") > 0 && figure(&server, "misses_after_squeeze") > 0
        });
        eventually("nothing is kept", || figure(&server, "idle_pages") == 0);
        assert!(figure(&server, "squeezed_pages") >= 256);
        server.stop();
    }
}

#[test]
fn pools_that_are_not_squeezed_keep_their_pages() {
    let options = ["--export", "m=memory:32M", "--workers", "1", "--limit", "4M", "--squeeze-ms", "0"];
    let server = Server::start(&options);
    let mut client = server.simple("m");
    for at in 0..32 {
        assert_eq!(client.simple(WRITE, 0, at * MIB as u64, MIB as u64, &vec![at as u8 + 1; MIB]), 0);
    }
    // Time for several readings of the limit, which is exceeded all the while.
    for _ in 0..50 {
        client.read_simple(0, MIB);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!((figure(&server, "squeezes"), figure(&server, "squeezed_pages")), (0, 0));
    assert!(figure(&server, "idle_pages") >= 256);
    server.stop();
}
