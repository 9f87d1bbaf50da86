//! Why a setting could not be set or read: an error that names the setting, the value and the range.

use core::fmt;

use super::setting::{Setting, Unit};

/// Bytes that are kept of a name and of a value.
const KEPT: usize = 40;

/// A setting was not set or read; nothing has changed. Its text is one line: `limit=12X: not a size (such as 64M); 0 or
/// more bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingError {
    kind: SettingErrorKind,
    setting: Option<&'static Setting>,
    name: Kept,
    value: Kept,
}

/// The kinds of [`SettingError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingErrorKind {
    /// No setting has that name.
    Unknown,
    /// The value is not a number in the setting's unit.
    NotANumber,
    /// The value is outside the setting's range.
    OutOfRange,
}

impl SettingError {
    pub(crate) fn unknown(name: &[u8]) -> Self {
        Self { kind: SettingErrorKind::Unknown, setting: None, name: Kept::new(name), value: Kept::new(b"") }
    }

    pub(crate) fn not_a_number(setting: &'static Setting, value: &[u8]) -> Self {
        Self { kind: SettingErrorKind::NotANumber, ..Self::out_of_range(setting, value) }
    }

    pub(crate) fn out_of_range(setting: &'static Setting, value: &[u8]) -> Self {
        let (name, value) = (Kept::new(setting.name.as_bytes()), Kept::new(value));
        Self { kind: SettingErrorKind::OutOfRange, setting: Some(setting), name, value }
    }

    pub(crate) fn number_out_of_range(setting: &'static Setting, value: u64) -> Self {
        let mut digits = Kept::new(b"");
        // 20 digits at most: they fit.
        let _ = fmt::Write::write_fmt(&mut digits, format_args!("{value}"));
        Self { value: digits, ..Self::out_of_range(setting, b"") }
    }

    /// Kind of the error.
    pub fn kind(&self) -> SettingErrorKind {
        self.kind
    }

    /// The setting that was meant; `None` where no setting has that name.
    pub fn setting(&self) -> Option<&'static Setting> {
        self.setting
    }

    /// Says what is wrong without the name and the value: for a message that shows them in a form of its own.
    pub fn reason(&self) -> impl fmt::Display {
        Reason(*self)
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SettingErrorKind::Unknown => write!(f, "{}: {}", self.name, self.reason()),
            _ => write!(f, "{}={}: {}", self.name, self.value, self.reason()),
        }
    }
}

impl core::error::Error for SettingError {}

struct Reason(SettingError);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(setting) = self.0.setting else {
            return f.write_str("no such setting (see `weir settings`)");
        };
        match (self.0.kind, setting.unit) {
            (SettingErrorKind::NotANumber, Unit::Bytes) => f.write_str("not a size (such as 64M); ")?,
            (SettingErrorKind::NotANumber, _) => write!(f, "not a number (such as {}); ", setting.default)?,
            _ => f.write_str("out of range; ")?,
        }
        match setting.max {
            u64::MAX => write!(f, "{} or more", setting.min)?,
            max => write!(f, "{} to {max}", setting.min)?,
        }
        match setting.unit {
            Unit::Switch | Unit::Mode | Unit::Count => Ok(()),
            unit => write!(f, " {unit}"),
        }
    }
}

/// The beginning of a text, in the error itself: errors of an allocator do not allocate.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kept {
    text: [u8; KEPT],
    len: u8,
}

impl Kept {
    fn new(text: &[u8]) -> Self {
        let mut kept = Self { text: [0; KEPT], len: 0 };
        kept.push(text);
        kept
    }

    fn push(&mut self, text: &[u8]) {
        let at = usize::from(self.len);
        let n = text.len().min(KEPT - at);
        self.text[at..at + n].copy_from_slice(&text[..n]);
        self.len += n as u8;
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.len.into()]
    }
}

impl fmt::Write for Kept {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            f.write_str(if chunk.invalid().is_empty() { "" } else { "\u{fffd}" })
        })
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::tunables::Tunables;
    use std::string::{String, ToString};

    fn said(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> String {
        Tunables::new().set(name, value).unwrap_err().to_string()
    }

    #[test]
    fn setting_value_and_range_are_named() {
        assert_eq!(said("limit", "12X"), "limit=12X: not a size (such as 64M); 0 or more bytes");
        assert_eq!(said("idle_ms", "1K"), "idle_ms=1K: not a number (such as 300); 10 to 3600000 ms");
        assert_eq!(said("report", "2"), "report=2: out of range; 0 to 1");
        assert_eq!(said("limti", "1G"), "limti: no such setting (see `weir settings`)");
        let error = Tunables::new().set_number("report_batch", u64::MAX).unwrap_err();
        assert_eq!(error.to_string(), "report_batch=18446744073709551615: out of range; 1 to 16 pageblocks");
        assert_eq!(error.setting().unwrap().max, 16);
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_no_text_is_shown_as_such() {
        assert!(said("limit", "9".repeat(1000)).contains(": not a size"));
        assert_eq!(said([b'x'; 100], ""), format!("{}: no such setting (see `weir settings`)", "x".repeat(40)));
        assert!(said("limit", b"\xff\xfe").starts_with("limit=\u{fffd}"));
    }

    #[test]
    fn it_is_an_error_that_programs_can_pass_on() {
        let result: Result<(), Box<dyn std::error::Error + Send + Sync>> =
            Tunables::new().set("report", "x").map(drop).map_err(Into::into);
        assert_eq!(result.unwrap_err().to_string(), "report=x: not a number (such as 1); 0 to 1");
    }
}
