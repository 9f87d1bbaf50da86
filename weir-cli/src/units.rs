//! Sizes and times as people write and read them.

use std::time::Duration;

/// A size such as `64M`; binary units.
pub fn parse_size(text: &str) -> Result<u64, String> {
    weir::tunables::parse_size(text.as_bytes())
        .filter(|&size| size > 0)
        .ok_or_else(|| format!("`{text}` is no size: write a number above 0 with K, M, G or T, such as 64M"))
}

/// A time such as `500ms`, `2s`, `1m` or `2` (seconds).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write a number with ms, s or m, such as 500ms");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let ms = match &text[digits..] {
        "ms" => Some(number),
        "s" | "" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    ms.filter(|&ms| ms > 0).map(Duration::from_millis).ok_or_else(wrong)
}

/// Bytes with a binary unit and three digits or so.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Nanoseconds with a fitting unit.
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
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert!(parse_size("0").is_err() && parse_size("x").is_err());
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "s", "0s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_times_are_written() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!([nanoseconds(5), nanoseconds(1_500), nanoseconds(2_500_000)], ["5 ns", "1.5 us", "2.5 ms"]);
        assert_eq!(nanoseconds(1_500_000_000), "1.50 s");
    }
}
