//! Names as figures and messages have them.

use core::fmt;

/// Bytes of a name that are kept.
pub const NAME: usize = 32;
/// Those bytes in words.
pub(crate) const NAME_WORDS: usize = NAME / 8;

/// A name of up to 32 bytes, ended by zeros where it is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name(pub [u8; NAME]);

impl Name {
    /// No name.
    pub const EMPTY: Self = Self([0; NAME]);

    /// The first 32 bytes of `text`, cut between two characters.
    pub fn new(text: &[u8]) -> Self {
        Self::cut(text, NAME)
    }

    /// As [`Name::new`], with a zero behind it in any case, as C wants it.
    pub fn ended(text: &[u8]) -> Self {
        Self::cut(text, NAME - 1)
    }

    fn cut(text: &[u8], most: usize) -> Self {
        let mut name = [0; NAME];
        name.iter_mut().zip(&text[..boundary(text, most)]).for_each(|(to, &byte)| *to = byte);
        Self(name)
    }

    /// The name without the zeros behind it.
    pub fn bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The name, as far as it is text.
    pub fn text(&self) -> &str {
        self.bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    /// The name in words.
    pub(crate) fn words(&self) -> [u64; NAME_WORDS] {
        core::array::from_fn(|word| u64::from_le_bytes(core::array::from_fn(|byte| self.0[word * 8 + byte])))
    }

    /// Undoes [`Name::words`].
    pub(crate) fn of_words(words: [u64; NAME_WORDS]) -> Self {
        Self(core::array::from_fn(|byte| words[byte / 8].to_le_bytes()[byte % 8]))
    }
}

/// Adds to the name as much as has room.
impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = self.bytes().len();
        let place = &mut self.0[len..];
        let end = boundary(text.as_bytes(), place.len());
        place[..end].copy_from_slice(&text.as_bytes()[..end]);
        Ok(())
    }
}

/// Where `text` is cut at `most` bytes, or before the character that lies across.
fn boundary(text: &[u8], most: usize) -> usize {
    let most = most.min(text.len());
    let is_within = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    // What is no text is cut at `most`: no character is longer than four bytes.
    (most.saturating_sub(3)..=most).rev().find(|&at| !is_within(at)).unwrap_or(most)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn it_is_cut_between_two_characters() {
        let (short, long) = ("\u{4e00}".repeat(10), "\u{4e00}".repeat(11));
        assert_eq!(Name::new(long.as_bytes()).text(), short);
        assert_eq!(Name::new("é".repeat(20).as_bytes()).text(), "é".repeat(16));
        assert_eq!(Name::ended("é".repeat(20).as_bytes()).text(), "é".repeat(15));
        assert_eq!((Name::new(b"").text(), Name::new(&[0x80; 40]).bytes().len()), ("", NAME));
    }

    #[test]
    fn as_much_is_added_as_has_room() {
        let mut name = Name::new(b"zone ");
        write!(name, "{} {}", 7, "é".repeat(20)).unwrap();
        assert_eq!(name.text(), format!("zone 7 {}", "é".repeat(12)));
        assert_eq!(Name::of_words(name.words()), name);
    }
}
