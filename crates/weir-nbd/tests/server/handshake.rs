//! The handshake, rule by rule, against a real server.

use crate::support::client::{Client, context_request, export_request, number};
use crate::support::server::Server;
use crate::support::wire::*;

fn server() -> Server {
    Server::start(&["--export", "a=memory:1M", "--read-only-export", "r=memory:2M", "--default", "a"])
}

fn greeted(server: &Server) -> Client {
    let mut client = server.connect();
    client.greet();
    client
}

/// Size and transmission flags out of INFO's answer.
fn export_info(replies: &[(u32, Vec<u8>)]) -> (u64, u16) {
    let info = replies.iter().find(|(kind, data)| *kind == REP_INFO && data[..2] == [0, 0]).expect("NBD_INFO_EXPORT");
    assert_eq!(info.1.len(), 12);
    (number(&info.1[2..10]), number(&info.1[10..]) as u16)
}

#[test]
fn export_name_has_zeroes_unless_they_were_declined() {
    let server = server();
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let mut client = server.connect();
        client.greet_as(flags);
        client.send_option(EXPORT_NAME, b"r");
        assert_eq!(client.number(8), 2 << 20);
        assert_eq!(client.number(2) & 0b11, 0b11, "has flags, and is read-only");
        assert_eq!(client.receive(zeroes), vec![0; zeroes]);
        assert_eq!(client.read_simple(0, 512), vec![0; 512]);
    }
}

#[test]
fn export_name_is_all_that_a_client_of_the_old_style_may_say() {
    let server = server();
    let mut client = server.connect();
    client.greet_as(0);
    client.send_option(EXPORT_NAME, b"");
    assert_eq!(client.number(8), 1 << 20);
    client.receive(2 + 124);
    assert_eq!(client.read_simple(0, 512), vec![0; 512]);
    let mut client = server.connect();
    client.greet_as(0);
    client.send_option(LIST, b"");
    assert!(client.ends().is_empty());
}

#[test]
fn what_export_name_cannot_have_ends_the_session() {
    let server = server();
    for name in [&b"nothing"[..], &[0xff], &[b'x'; 5000]] {
        let mut client = greeted(&server);
        client.send_option(EXPORT_NAME, name);
        assert!(client.ends().is_empty());
    }
    let mut client = greeted(&server);
    client.extended();
    client.send_option(EXPORT_NAME, b"a");
    assert!(client.ends().is_empty(), "it cannot be used with extended headers");
}

#[test]
fn unknown_client_flags_end_the_session() {
    let server = server();
    for bit in 2..32 {
        let mut client = server.connect();
        client.greet_as(1 << bit | 3);
        assert!(client.ends().is_empty());
    }
}

#[test]
fn go_tells_the_size_and_flags_and_starts_transmission() {
    let server = server();
    let mut client = greeted(&server);
    let replies = client.option(GO, &export_request("a", &[]));
    assert_eq!(replies.len(), 2, "nothing that was not asked for: {replies:?}");
    let (size, flags) = export_info(&replies);
    // Flush, FUA, trim, zeroes, several connections, cache and fast zeroes; DF only with structured replies.
    assert_eq!((size, flags), (1 << 20, 0b1101_0110_1101));
    assert_eq!(client.read_simple(0, 512), vec![0; 512]);

    let mut client = greeted(&server);
    client.structured();
    assert_eq!(export_info(&client.option(GO, &export_request("a", &[]))).1, 0b1101_1110_1101);
}

#[test]
fn info_tells_the_same_and_starts_nothing() {
    let server = server();
    let mut client = greeted(&server);
    let replies = client.option(INFO, &export_request("r", &[0, 1, 2, 3, 99]));
    let (size, flags) = export_info(&replies);
    assert_eq!((size, flags & 0b10), (2 << 20, 0b10));
    assert!(replies.contains(&(REP_INFO, b"\0\x01r".to_vec())), "its name");
    let sizes = [3u32, 1, 4096, 32 << 20].map(u32::to_be_bytes).concat()[2..].to_vec();
    assert!(replies.contains(&(REP_INFO, sizes)), "its block sizes: {replies:?}");
    // It has no description. Another option may follow.
    assert_eq!(replies.len(), 4);
    client.go("r");
}

#[test]
fn an_empty_name_is_the_default_and_is_told_its_real_one() {
    let server = server();
    let mut client = greeted(&server);
    let replies = client.option(INFO, &export_request("", &[]));
    assert_eq!(export_info(&replies).0, 1 << 20);
    assert!(replies.contains(&(REP_INFO, b"\0\x01a".to_vec())));
}

#[test]
fn what_info_and_go_cannot_have_is_an_error_and_the_session_goes_on() {
    let server = server();
    let mut client = greeted(&server);
    for option in [INFO, GO] {
        assert_eq!(client.outcome(option, &export_request("nothing", &[])), ERR_UNKNOWN);
        assert_eq!(client.outcome(option, b""), ERR_INVALID);
        assert_eq!(client.outcome(option, &export_request("a", &[])[..5]), ERR_INVALID);
        assert_eq!(client.outcome(option, &[export_request("a", &[]), vec![0]].concat()), ERR_INVALID);
        assert_eq!(client.outcome(option, &[&u32::MAX.to_be_bytes()[..], b"a\0\0"].concat()), ERR_INVALID);
        assert_eq!(client.outcome(option, &export_request(&"n".repeat(5000), &[])), ERR_INVALID);
        assert_eq!(client.outcome(option, &[&[0, 0, 0, 1, 0xff][..], &[0, 0]].concat()), ERR_INVALID);
    }
    client.go("a");
}

#[test]
fn list_names_every_export() {
    let server = server();
    let mut client = greeted(&server);
    let replies = client.option(LIST, b"");
    let names: Vec<_> = replies.iter().filter(|reply| reply.0 == REP_SERVER).map(|reply| reply.1.clone()).collect();
    assert_eq!(names, [b"\0\0\0\x01a".to_vec(), b"\0\0\0\x01r".to_vec()]);
    assert_eq!(client.outcome(LIST, b"x"), ERR_INVALID);
}

#[test]
fn abort_is_acknowledged_even_with_data() {
    let server = server();
    for data in [&b""[..], b"why not"] {
        let mut client = greeted(&server);
        assert_eq!(client.outcome(ABORT, data), ACK);
        assert!(client.ends().is_empty());
    }
}

#[test]
fn unknown_options_are_answered_and_skipped() {
    let server = server();
    let mut client = greeted(&server);
    for option in [0, 4, 12, 4711, u32::MAX] {
        assert_eq!(client.outcome(option, b"some data"), ERR_UNSUP);
    }
    assert_eq!(client.outcome(STARTTLS, b""), ERR_POLICY, "this server has no certificate");
    client.go("a");
}

#[test]
fn options_have_a_longest_length() {
    let server = server();
    let mut client = greeted(&server);
    assert_eq!(client.outcome(GO, &vec![0; 65 << 10]), ERR_TOO_BIG);
    client.go("a");
    // One that is far too long is not waited for.
    let mut client = greeted(&server);
    client.send(&[&IHAVEOPT.to_be_bytes()[..], &LIST.to_be_bytes(), &u32::MAX.to_be_bytes()].concat());
    assert!(client.ends().is_empty());
}

#[test]
fn structured_replies_and_extended_headers_have_no_data() {
    let server = server();
    let mut client = greeted(&server);
    for option in [STRUCTURED, EXTENDED] {
        assert_eq!(client.outcome(option, b"x"), ERR_INVALID);
    }
    client.structured();
    client.structured();
    client.extended();
    assert_eq!(client.outcome(STRUCTURED, b""), ERR_EXT_HEADER_REQD);
    client.go("a");
    assert_eq!(client.read(0, 0, 512), vec![0; 512]);
}

#[test]
fn contexts_are_listed_by_name_or_namespace() {
    let server = server();
    let mut client = greeted(&server);
    assert_eq!(client.outcome(LIST_META, &context_request("a", &[])), ERR_INVALID, "structured replies come first");
    client.structured();
    let one = vec![(REP_META, b"\0\0\0\0base:allocation".to_vec()), (ACK, vec![])];
    let none = vec![(ACK, vec![])];
    for (queries, expected) in [
        (&[][..], &one),
        (&["base:"], &one),
        (&["base:allocation"], &one),
        (&["x-other:", "base:"], &one),
        (&["base:unknown"], &none),
        (&["qemu:dirty-bitmap"], &none),
    ] {
        assert_eq!(&client.option(LIST_META, &context_request("a", queries)), expected, "{queries:?}");
    }
    assert_eq!(client.outcome(LIST_META, &context_request("nothing", &[])), ERR_UNKNOWN);
    assert_eq!(client.outcome(LIST_META, &context_request("a", &["nocolon"])), ERR_INVALID);
    assert_eq!(client.outcome(LIST_META, b"\0\0\0\x09a"), ERR_INVALID);
}

#[test]
fn a_context_is_set_by_its_whole_name_and_for_one_export() {
    let server = server();
    let mut client = greeted(&server);
    assert_eq!(client.outcome(SET_META, &context_request("a", &["base:allocation"])), ERR_INVALID);
    client.structured();
    assert_eq!(client.option(SET_META, &context_request("a", &["base:"])), [(ACK, vec![])]);
    assert_eq!(client.option(SET_META, &context_request("a", &["base:allocation", "x-a:b"])).len(), 2);
    client.go("a");
    assert_eq!(client.status(0, 0, 1 << 20), [(1 << 20, 3)]);

    // Chosen for another export; given up again; and lost by a choice that failed.
    let after = |change: &dyn Fn(&mut Client)| {
        let mut client = greeted(&server);
        client.structured();
        client.set_allocation("a");
        change(&mut client);
        client
    };
    let mut other = after(&|_| {});
    other.go("r");
    let mut given_up = after(&|client| drop(client.option(SET_META, &context_request("a", &[]))));
    given_up.go("a");
    let mut failed =
        after(&|client| assert_eq!(client.outcome(SET_META, &context_request("nothing", &[])), ERR_UNKNOWN));
    failed.go("a");
    for client in [&mut other, &mut given_up, &mut failed] {
        assert_eq!(client.error(STATUS, 0, 0, 512, b""), EINVAL);
    }
}

#[test]
fn a_handshake_has_a_most_of_options() {
    let server = server();
    let mut client = greeted(&server);
    for _ in 0..1024 {
        assert_eq!(client.outcome(99, b""), ERR_UNSUP);
    }
    assert!(client.ends().is_empty());
    server.stop();
}

#[test]
fn too_many_queries_are_refused() {
    let server = server();
    let mut client = greeted(&server);
    client.structured();
    assert_eq!(client.outcome(SET_META, &context_request("a", &["a:b"; 1025])), ERR_TOO_BIG);
    client.go("a");
}

#[test]
fn garbage_ends_the_session_and_only_that_one() {
    let server = server();
    let mut client = greeted(&server);
    client.send(b"GET / HTTP/1.1\r\nHost: disk\r\n\r\n");
    assert!(client.ends().is_empty());
    greeted(&server).go("a");
    server.stop();
}
