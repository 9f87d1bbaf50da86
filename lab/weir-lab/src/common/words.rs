//! The settings of a measured program, as `key=value` words of its command line. No clap: it would be in what is measured.

use anyhow::{Context, Result};

/// The words of a command line.
pub struct Words(Vec<(String, String)>);

impl Words {
    /// Reads the words behind the program's name.
    pub fn read(words: impl Iterator<Item = String>) -> Result<Words> {
        let split = |word: String| {
            let (key, value) =
                word.split_once('=').with_context(|| format!("'{word}' is not of the form key=value"))?;
            Ok((key.to_string(), value.to_string()))
        };
        words.map(split).collect::<Result<_>>().map(Words)
    }

    /// A setting that has to be there.
    pub fn text(&self, key: &str) -> Result<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).with_context(|| format!("{key}= is missing"))
    }

    /// A number that has to be there.
    pub fn number(&self, key: &str) -> Result<u64> {
        self.text(key)?.parse().with_context(|| format!("{key}= is no whole number"))
    }

    /// A number, or `default` where it is not given.
    pub fn number_or(&self, key: &str, default: u64) -> Result<u64> {
        if self.0.iter().any(|(name, _)| name == key) { self.number(key) } else { Ok(default) }
    }
}
