//! Sizes and times as people write and read them.

use bytesize::ByteSize;
use std::time::Duration;

/// Every program's resident set is larger, bytes: a smaller limit is a wrong unit.
const LEAST_LIMIT: u64 = 1 << 20;
/// Shortest and longest interval between two lines.
const INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(24 * 3600)];

/// Reads a size such as `64M`, by the same rules as the variable `WEIR_LIMIT`, so the units are binary (`bytesize` reads
/// M as a million). A number without a unit is of bytes, as the kernel's files have it. A small one is refused: it lacks its unit.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let without_blanks: String = text.split_whitespace().collect();
    if is_number(text) && text.bytes().all(|b| b == b'0') {
        return Err("0 is no limit: write a size, such as 64M".into());
    }
    if is_number(text) && text.parse().is_ok_and(|bytes: u64| bytes < LEAST_LIMIT) {
        return Err(format!("{text} what? write {text}M (MiB) or {text}G (GiB)"));
    }
    match weir_core::telemetry::tunables::parse_size(text.as_bytes()) {
        Some(size) if size >= LEAST_LIMIT => Ok(size),
        Some(size) => {
            Err(format!("`{text}` is {}, less than any program takes: write K, M or G, such as 64M", bytes(size)))
        }
        None if without_blanks != text
            && weir_core::telemetry::tunables::parse_size(without_blanks.as_bytes()).is_some() =>
        {
            Err(format!("`{text}` has a blank: write {without_blanks}"))
        }
        None if text.split_once('.').is_some_and(|(whole, _)| is_number(whole)) => {
            Err(format!("`{text}` has a fraction: write a whole number of a smaller unit, such as 1536M for 1.5G"))
        }
        None => Err(format!("`{text}` is no size: write a whole number with K, M, G or T, such as 64M")),
    }
}

/// Reads a number of bytes, such as `512K`; without a unit it is of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let size = weir_core::telemetry::tunables::parse_size(text.as_bytes()).filter(|&size| size > 0);
    size.ok_or_else(|| format!("`{text}` is no size: write a whole number with K, M or G, such as 512K"))
}

/// Reads a time such as `500ms`, `2s` or `1m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|e| format!("`{text}` is no time ({e}): write a whole number with ms, s or m, such as 500ms"))
}

/// As [`parse_duration`], for the time between two lines. A number without a unit is refused, and 0 in any.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    if text.bytes().all(|b| b.is_ascii_digit()) && text.bytes().any(|b| b != b'0') {
        return Err(format!("{text} what? write {text}s for seconds, or {text}ms"));
    }
    let time = parse_duration(text)?;
    if (INTERVALS[0]..=INTERVALS[1]).contains(&time) {
        return Ok(time);
    }
    let [least, most] = INTERVALS.map(humantime::format_duration);
    Err(format!("`{text}` is {}: write a time from {least} to {most}", humantime::format_duration(time)))
}

/// Bytes with a binary unit and one decimal.
pub fn bytes(count: u64) -> String {
    ByteSize::b(count).display().iec().to_string()
}

/// Bytes in a unit that loses none of them. Where there is no such unit but bytes, they are told in one that is read at
/// a glance as well.
pub fn exact_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let steps = (count.trailing_zeros() as usize / 10).min(UNITS.len() - 1);
    match count {
        0..1024 => format!("{count} B"),
        _ if steps == 0 => format!("{} ({count} bytes)", bytes(count)),
        _ => format!("{} {}", count >> (10 * steps), UNITS[steps]),
    }
}

/// The clock by which processes tell times, ns.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds in one fitting unit; `humantime` writes all digits, such as `2ms 512us 37ns`.
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(parse_limit("64M"), Ok(64 << 20));
        assert_eq!(parse_limit("2gib"), Ok(2 << 30));
        assert_eq!([parse_limit("1048576B"), parse_limit("1048576")], [Ok(1 << 20), Ok(1 << 20)]);
        assert_eq!([parse_bytes("512K"), parse_bytes("1000")], [Ok(512 << 10), Ok(1000)]);
        assert!(parse_bytes("0").is_err() && parse_bytes("x").is_err());
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_interval("1m 30s"), Ok(Duration::from_secs(90)));
    }

    #[test]
    fn slips_are_refused_and_what_to_write_is_said() {
        for (wrong, say) in [
            ("100", "100 what? write 100M (MiB)"),
            ("1048575", "1048575 what?"),
            ("99999999999999999999", "is no size"),
            ("0", "0 is no limit"),
            ("000", "0 is no limit"),
            ("64K", "less than any program takes"),
            ("64 M", "write 64M"),
            ("1.5G", "1536M"),
            ("64X", "is no size"),
            ("", "is no size"),
            ("-64M", "is no size"),
            ("99999999999999999999M", "is no size"),
        ] {
            let said = parse_limit(wrong).unwrap_err();
            assert!(said.contains(say), "{wrong}: {said}");
        }
        for (wrong, say) in [
            ("5", "5 what? write 5s"),
            ("0", "write a time from 10ms"),
            ("0s", "write a time from 10ms"),
            ("1ms", "write a time from 10ms"),
            ("1M", "1month"),
            ("s", "is no time"),
            ("", "is no time"),
            ("1x", "is no time"),
            ("99999999999999999999s", "is no time"),
            ("18446744073709551615m", "is no time"),
        ] {
            let said = parse_interval(wrong).unwrap_err();
            assert!(said.contains(say), "{wrong}: {said}");
        }
    }

    #[test]
    fn sizes_and_times_are_written() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        let exact = [0, 1000, 1024, 1025, 1536 << 20, 512 << 30, 1 << 60].map(exact_bytes);
        assert_eq!(exact[..4], ["0 B", "1000 B", "1 KiB", "1.0 KiB (1025 bytes)"]);
        assert_eq!(exact[4..], ["1536 MiB", "512 GiB", "1048576 TiB"]);
        assert_eq!([nanoseconds(5), nanoseconds(1_500), nanoseconds(2_500_000)], ["5 ns", "1.5 us", "2.5 ms"]);
        assert_eq!(nanoseconds(1_500_000_000), "1.50 s");
    }
}
