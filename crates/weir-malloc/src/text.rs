//! Text without allocating or formatting: what diagnostics are made of.

use weir_linux::os::fd;

/// A line or a small document in a buffer of `N` bytes. What does not fit is left out.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Text { bytes: [0; N], length: 0 }
    }

    /// Appends a piece; one byte is always kept for the terminating zero of [`Text::as_c_str`].
    pub fn str(&mut self, piece: &str) -> &mut Self {
        for &byte in piece.as_bytes() {
            if self.length + 1 < N {
                self.bytes[self.length] = byte;
                self.length += 1;
            }
        }
        self
    }

    /// Appends a number in decimal.
    pub fn number(&mut self, number: usize) -> &mut Self {
        if number >= 10 {
            self.number(number / 10);
        }
        let digit = [b'0' + (number % 10) as u8];
        self.str(core::str::from_utf8(&digit).unwrap_or_default())
    }

    /// Appends a piece that ends at the column `width` further on, or at once if it is longer, after a space.
    pub fn right(&mut self, piece: &str, width: usize) -> &mut Self {
        self.str(" ");
        (piece.len() + 1..width).for_each(|_| _ = self.str(" "));
        self.str(piece)
    }

    /// Appends a piece and spaces up to `width`.
    pub fn column(&mut self, piece: &str, width: usize) -> &mut Self {
        self.str(piece);
        (piece.len()..width).for_each(|_| _ = self.str(" "));
        self
    }

    /// Appends a piece as the value of an XML attribute.
    pub fn attribute(&mut self, piece: &str) -> &mut Self {
        for character in piece.chars() {
            match character {
                '<' => self.str("&lt;"),
                '&' => self.str("&amp;"),
                '"' => self.str("&quot;"),
                character => self.str(character.encode_utf8(&mut [0; 4])),
            };
        }
        self
    }

    /// The text as text: what `str` and `number` appended, cut nowhere but at its end.
    pub fn as_str(&self) -> &str {
        self.bytes[..self.length].utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    /// The text as a C string.
    pub fn as_c_str(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Writes the text to standard error, as it is: a half-written or refused message changes nothing. Not by libc's
    /// `write`: a thread that was cancelled would end there.
    pub fn to_stderr(&self) {
        let _ = fd::write(2, &self.bytes[..self.length]);
    }
}
