//! The settings of the workload on the command line: words of the form `name=number`.

use core::fmt;

use weir_core::telemetry::tunables::parse_size;

/// The workload's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// MiB that are allocated, touched and freed in each round.
    pub touch: u64,
    /// MiB that stay in use, with contents that are checked.
    pub keep: u64,
    /// 1: wait for a byte on the console at each phase, so that somebody can measure in between.
    pub step: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { touch: 384, keep: 24, step: 0 }
    }
}

/// A word of the command line that means nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadWord<'a>(pub &'a [u8]);

impl fmt::Display for BadWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = core::str::from_utf8(self.0).unwrap_or("?");
        write!(f, "`{word}` on the command line: write touch=MIB, keep=MIB or step=0|1")
    }
}

impl Settings {
    /// Reads a command line. A loader may put a path in front: a word without `=` is passed over.
    pub fn parse(line: &[u8]) -> Result<Self, BadWord<'_>> {
        let mut settings = Self::default();
        for word in line.split(u8::is_ascii_whitespace) {
            let Some(at) = word.iter().position(|&b| b == b'=') else { continue };
            let value = parse_size(&word[at + 1..]).ok_or(BadWord(word))?;
            match &word[..at] {
                b"touch" => settings.touch = value,
                b"keep" => settings.keep = value,
                b"step" => settings.step = value,
                _ => return Err(BadWord(word)),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        assert_eq!(Settings::parse(b""), Ok(Settings::default()));
        let parsed = Settings::parse(b"/boot/image  touch=100 step=1 keep=8").unwrap();
        assert_eq!(parsed, Settings { touch: 100, keep: 8, step: 1 });
        assert_eq!(Settings::parse(b"touch=x"), Err(BadWord(b"touch=x")));
        let wrong = Settings::parse(b"tuch=1").unwrap_err();
        assert!(wrong.to_string().starts_with("`tuch=1` on the command line"));
    }
}
