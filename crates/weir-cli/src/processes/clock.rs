//! The monotonic clock of a process in another time namespace.

use std::fs;
use std::path::Path;

/// By how much the monotonic clock of a process is ahead of this one's, ns. 0 also where the kernel does not tell.
pub fn ahead(pid: i32) -> i64 {
    let name = |pid: &str| fs::read_link(Path::new("/proc").join(pid).join("ns/time")).ok();
    let offset = |pid: &str| parse(&fs::read_to_string(Path::new("/proc").join(pid).join("timens_offsets")).ok()?);
    let pid = pid.to_string();
    match (name(&pid), name("self")) {
        (Some(its), Some(own)) if its != own => {
            offset(&pid).zip(offset("self")).map_or(0, |(its, own)| its.saturating_sub(own))
        }
        _ => 0,
    }
}

/// The offset of the monotonic clock in a `timens_offsets` file, ns: a line of seconds, and of nanoseconds to be added.
fn parse(offsets: &str) -> Option<i64> {
    let mut words = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?.split_whitespace();
    let mut next = || words.next()?.parse::<i64>().ok();
    Some(next()?.saturating_mul(1_000_000_000).saturating_add(next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_offset_of_the_monotonic_clock() {
        let offsets = "monotonic     864000         5\nboottime      9         0\n";
        assert_eq!(parse(offsets), Some(864_000_000_000_005));
        assert_eq!(parse("monotonic  -1  999999999\n"), Some(-1));
        assert_eq!([parse(""), parse("monotonic x 0"), parse("boottime 1 1")], [None; 3]);
        assert_eq!(ahead(std::process::id() as i32), 0);
    }

    #[test]
    fn a_clock_in_another_time_namespace_is_ahead() {
        let mut command = Command::new("unshare");
        command.args(["-T", "--monotonic", "1000", "--fork", "sh", "-c", "echo $$; read line"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if let Ok(pid) = line.trim().parse() {
            assert_eq!(ahead(pid), 1_000_000_000_000);
        } else {
            weir_testing::skip!("no time namespace can be made here");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
