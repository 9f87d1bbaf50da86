//! Contents of an entry of the table of settings, and how the text of a value is read.

/// Unit of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes; text may end in K, M, G or T (binary), each with an optional `B` or `iB`.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Hundredths.
    Percent,
    /// A number of events or windows, as the description says.
    Count,
    /// Pages of 4 KiB.
    Pages,
    /// Blocks of 2 MiB.
    Pageblocks,
    /// One of the numbers that the description lists.
    Mode,
    /// 1: on. 0: off.
    Switch,
}

impl Unit {
    /// Short name, as the document of settings has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Percent => "percent",
            Self::Count => "count",
            Self::Pages => "pages",
            Self::Pageblocks => "pageblocks",
            Self::Mode => "mode",
            Self::Switch => "bool",
        }
    }
}

impl core::fmt::Display for Unit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// Effect on the platform after a setting was stored. For values that the environment sets, only [`Effect::HugeHeap`],
/// [`Effect::Profile`], [`Effect::Guard`] and [`Effect::Check`] are done. Such values are stored before anything else
/// has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The background thread, if it sleeps, is woken: its next decision uses the value.
    Wake,
    /// The engine's switch is set (`set_reporting`): switching off waits for the batch in flight.
    Reporting,
    /// The mapped part of the heap asks for huge pages, or asks no more (`follow_huge_heap`).
    HugeHeap,
    /// The background thread is replaced by another, which arms all notifications anew.
    Rearm,
    /// Sampling for the heap profile is switched on, off, or to another mean.
    Profile,
    /// Guarding of allocations is switched on, off, or to another rate.
    Guard,
    /// CPUs' buckets are emptied, and are no more, or are again.
    Check,
    /// Nothing: the value counts as the process starts, and not after that.
    AtStart,
}

/// One setting, as the documents and the command line show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Name; also the environment variable `WEIR_` + the name in capitals.
    pub name: &'static str,
    /// Value at start.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Unit of the value.
    pub unit: Unit,
    /// Description: what the setting does.
    pub what: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
    pub(super) effect: Effect,
}

impl Setting {
    /// The value that `text` stands for, if it is one in the setting's unit. The range is not looked at.
    pub fn parse(&self, text: &[u8]) -> Option<u64> {
        match self.unit {
            Unit::Bytes => parse_size(text),
            _ => parse_size(text).filter(|_| text.iter().all(u8::is_ascii_digit)),
        }
    }
}

/// The effect of a change, for the platform, which brings it about. No method: programs that have a setting would have it too.
pub fn effect(setting: &Setting) -> Effect {
    setting.effect
}

/// A number with an optional binary suffix K, M, G or T (either case, an `iB` or `B` after it allowed).
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut value: u64 = 0;
    for &b in &text[..digits] {
        value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
    }
    let (shift, end) = match &text[digits..] {
        [b'k' | b'K', end @ ..] => (10, end),
        [b'm' | b'M', end @ ..] => (20, end),
        [b'g' | b'G', end @ ..] => (30, end),
        [b't' | b'T', end @ ..] => (40, end),
        [] | [b'b' | b'B'] => return Some(value),
        _ => return None,
    };
    let is_end = [&b""[..], b"b", b"ib"].iter().any(|known| end.eq_ignore_ascii_case(known));
    if is_end { value.checked_mul(1 << shift) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"16"), Some(16));
        assert_eq!(parse_size(b"16k"), Some(16 << 10));
        assert_eq!(parse_size(b"1GiB"), Some(1 << 30));
        assert_eq!(parse_size(b"2mb"), Some(2 << 20));
        assert_eq!(parse_size(b""), None);
        assert_eq!(parse_size(b"G"), None);
        assert_eq!(parse_size(b"1Gx"), None);
        assert_eq!((parse_size(b"1\0"), parse_size(b"1K\0"), parse_size(b"1K\0B")), (None, None, None));
        assert_eq!(parse_size(b"99999999999999999999"), None);
        assert_eq!(parse_size(b"99999999999T"), None);
    }
}
