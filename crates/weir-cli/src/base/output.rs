//! Writing to streams that may be closed, full, or a pipe without a reader.

use crate::base::failure::Failure;
use std::fmt;
use std::io::Write;

/// Text that another process chose, without what would steer a terminal or show its parts in another order; line ends
/// stay.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && (c.is_control() || is_direction(c)) { '?' } else { c }).collect()
}

/// Whether it is one of Unicode's controls of the direction of writing, or ends a line in some programs.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// As `printable`, on one line.
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "?")
}

/// Characters of an error at most: a part of it may be a file's or a process's own.
const LONGEST_ERROR: usize = 1000;

/// An error as it is printed: one line of bounded length that cannot steer the terminal.
pub fn error_line(error: impl fmt::Display) -> String {
    let text = error.to_string();
    // Cut first: each character is replaced by one.
    let cut = text.char_indices().nth(LONGEST_ERROR).map_or(text.as_str(), |(end, _)| &text[..end]);
    let rest = if cut.len() < text.len() { " ..." } else { "" };
    format!("weir: {}{rest}\n", printable_line(cut))
}

/// Writes to standard error. A failure is ignored: there is no other place to report it.
pub fn say(text: fmt::Arguments) {
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

/// From now on SIGPIPE ends the command, if the reader of its output closes the pipe.
pub fn end_with_reader() {
    // SAFETY: sets the default action of a signal that the standard library set to be ignored; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Writes a command's result to standard output. If the reader closes the pipe, SIGPIPE ends the command.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print`], of what is no text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    end_with_reader();
    let mut out = std::io::stdout();
    let done = out.write_all(bytes).and_then(|()| out.flush());
    done.map_err(|e| Failure::of_weir(format!("cannot write to standard output: {e}")))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_ERROR, error_line, printable, printable_line};

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\n\tc\rd"), "a?[2J?b\n?c?d");
        assert_eq!(printable_line("a\nb\x1b"), "a?b?");
        assert_eq!(error_line("no \x1b[31mEVIL\x07\n"), "weir: no ?[31mEVIL??\n");
        assert_eq!(error_line("é".repeat(1 << 20)), format!("weir: {} ...\n", "é".repeat(LONGEST_ERROR)));
        assert_eq!(printable("\u{202e}gnp.exe\u{2069}\u{7f}\u{61c}\u{2028}é"), "?gnp.exe????é");
    }
}
