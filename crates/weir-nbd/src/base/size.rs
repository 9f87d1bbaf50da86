//! Sizes as people write them.

use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// Bytes; written as a number with an optional unit K, M, G or T, powers of 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The size of a cache: bytes at most, or `auto`, as many as memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize(pub Option<Size>);

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(None)),
            _ => text.parse().map(|size| Self(Some(size))).map_err(|why: String| format!("{why}; or 'auto'")),
        }
    }
}

impl<'de> Deserialize<'de> for CacheSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Written::deserialize(from)?.0.parse().map_err(de::Error::custom)
    }
}

/// A number, or text.
struct Written(String);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AsWritten).map(Self)
    }
}

/// Takes either as it is written.
struct AsWritten;

impl de::Visitor<'_> for AsWritten {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or text such as '64M'")
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<String, E> {
        Ok(bytes.to_string())
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<String, E> {
        Ok(bytes.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }
}

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no size: write a number of bytes, or one with K, M, G or T");
        let (digits, shift) = match UNITS.iter().find(|(unit, _)| text.ends_with(*unit)) {
            Some((_, shift)) => (&text[..text.len() - 1], *shift),
            None => (text, 0),
        };
        // A file's length is a signed number for the kernel.
        let too_large = || format!("'{text}' is too large: a file has less than 8388608T");
        let number: u64 = digits.parse().map_err(|why: ParseIntError| match why.kind() {
            IntErrorKind::PosOverflow => too_large(),
            _ => wrong(),
        })?;
        let bytes = number.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok());
        bytes.map(Self).ok_or_else(too_large)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, shift)| self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Written::deserialize(from)?.0.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("0", 0), ("512", 512), ("4K", 4096), ("3G", 3 << 30), ("1T", 1 << 40)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!("8388607T".parse(), Ok(Size(i64::MAX as u64 >> 40 << 40)));
        let refusal = |text: &str| text.parse::<Size>().expect_err(text);
        for text in ["", "K", "-1", "1.5G", "4KiB"] {
            assert!(refusal(text).contains("is no size"), "{text}");
        }
        // The last has more than 64 bits by itself.
        for text in ["8388608T", "16777215T", "16777216T", "9223372036854775808", "18446744073709551616"] {
            assert!(refusal(text).contains("is too large"), "{text}");
        }
        assert_eq!("auto".parse(), Ok(CacheSize(None)));
        assert_eq!("3M".parse(), Ok(CacheSize(Some(Size(3 << 20)))));
        assert!("much".parse::<CacheSize>().expect_err("no size").contains("or 'auto'"));
    }
}
