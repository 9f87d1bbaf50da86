//! The settings of a program.

use crate::caches::{self, Cache};

/// The settings of a program, as `key=value` words of its command line.
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Reads them.
    pub fn read(words: impl Iterator<Item = String>) -> Result<Settings, String> {
        let split = |word: String| match word.split_once('=') {
            Some((key, value)) => Ok((key.to_string(), value.to_string())),
            None => Err(format!("'{word}' is not of the form key=value")),
        };
        words.map(split).collect::<Result<_, _>>().map(Settings)
    }

    /// A setting's text.
    pub fn text(&self, key: &str) -> Result<&str, String> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| format!("{key}= is missing"))
    }

    /// A setting that is a whole number.
    pub fn number(&self, key: &str) -> Result<u64, String> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("{key}={text} is no whole number"))
    }

    /// The cache that `cache=KIND` and `bytes=N` name.
    pub fn cache(&self) -> Result<Box<dyn Cache>, String> {
        caches::make(self.text("cache")?, self.number("bytes")?)
    }
}
