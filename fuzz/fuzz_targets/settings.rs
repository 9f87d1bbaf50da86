//! Texts of settings, as the environment and `weir ctl` give them. A value is what an independent reading says. What was set
//! is read back, written out and read again unchanged. A refused text changes nothing and is named in one line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_core::telemetry::tunables::{SettingErrorKind, TABLE, Tunables, Unit, parse_size};

fuzz_target!(|data: &[u8]| {
    let tunables = Tunables::new();
    // As the environment has them: an entry after another.
    for entry in data.split(|&byte| byte == b'\n').take(64) {
        assert_eq!(parse_size(entry), read_size(entry), "{}", entry.escape_ascii());
        let Some(equals) = entry.iter().position(|&byte| byte == b'=') else { continue };
        // The first byte may choose one of the table: few inputs hit upon a name.
        let (mut name, value) = (entry[..equals].to_ascii_lowercase(), &entry[equals + 1..]);
        if let [byte] = name[..] {
            name = TABLE[usize::from(byte) % TABLE.len()].name.into();
        }
        set(&tunables, &name, value);
    }
    let again = Tunables::new();
    for (setting, value) in TABLE.iter().zip(tunables.values()) {
        let text = value.get().to_string();
        assert_eq!(setting.parse(text.as_bytes()), Some(value.get()));
        again.set(setting.name, &text).unwrap_or_else(|error| panic!("what was set is refused: {error}"));
    }
    assert!(again.values().iter().zip(tunables.values()).all(|(a, b)| a.get() == b.get()));
});

fn set(tunables: &Tunables, name: &[u8], value: &[u8]) {
    let before = tunables.values().map(|value| value.get());
    let known = TABLE.iter().position(|setting| setting.name.as_bytes() == name);
    match tunables.set(name, value) {
        Ok(setting) => {
            let nth = known.expect("an unknown name is refused");
            let now = tunables.values().map(|value| value.get());
            assert_eq!(setting.name.as_bytes(), name);
            assert_eq!(read_size(value), Some(now[nth]), "{}", value.escape_ascii());
            assert!((setting.min..=setting.max).contains(&now[nth]));
            assert!(setting.unit == Unit::Bytes || value.iter().all(u8::is_ascii_digit));
            assert!(now.iter().zip(before).enumerate().all(|(i, (&now, before))| i == nth || now == before));
            assert_eq!(tunables.get(setting.name), Ok(now[nth]));
        }
        Err(error) => {
            assert_eq!(before, tunables.values().map(|value| value.get()), "a refused value changed something");
            let in_unit = |nth: usize| {
                let digits = value.iter().all(u8::is_ascii_digit);
                read_size(value).filter(|_| digits || TABLE[nth].unit == Unit::Bytes)
            };
            let expected = match known {
                None => SettingErrorKind::Unknown,
                Some(nth) if in_unit(nth).is_none() => SettingErrorKind::NotANumber,
                Some(_) => SettingErrorKind::OutOfRange,
            };
            assert_eq!(error.kind(), expected);
            assert_eq!(error.setting().map(|setting| setting.name.as_bytes()), known.map(|_| name));
            let text = error.to_string();
            assert!(text.len() < 400 && !error.reason().to_string().contains('\n'), "{text:?}");
        }
    }
}

/// A number of bytes, read in another way than the product does.
fn read_size(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_uppercase();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - digits.len()];
    let power = match digits {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 1,
        "M" | "MB" | "MIB" => 2,
        "G" | "GB" | "GIB" => 3,
        "T" | "TB" | "TIB" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024u64.pow(power))
}
