//! `weir profile` of a Rust program that has Weir as its global allocator, as this test has.

use std::process::Command;
use weir_testing::wait_until;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

fn weir(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_is_said_at_once_that_nothing_is_sampled() {
    // Weir's thread starts as the heap grows and something is freed.
    let all: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 20_000]).collect();
    drop(all);
    let pid = std::process::id().to_string();
    wait_until("the page", || weir(&["stat", &pid]).0 == Some(0));
    let (status, said) = weir(&["profile", &pid]);
    assert_eq!((status, said.lines().count()), (Some(5), 1), "{said}");
    assert!(said.contains("Weir is built into the program") && said.contains("weir run --profile"), "{said}");
}
