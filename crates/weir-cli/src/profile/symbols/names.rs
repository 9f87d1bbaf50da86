//! Names of functions as their language writes them.
//!
//! A mangled name may stand for one that is exponentially longer (C++'s substitutions), and may be in another user's file. So
//! what is written is bounded, and a name beyond the bound is shown as the file has it.

use cpp_demangle::{DemangleOptions, Symbol};
use std::fmt::{self, Write};

/// Bytes of a name at most. C++'s longest with a use for a reader have some hundreds.
const MOST: usize = 4096;

/// The name of a function for readers.
pub fn readable(symbol: &str) -> String {
    let name = if symbol.len() > MOST { None } else { of_rust(symbol).or_else(|| of_cpp(symbol)) };
    name.unwrap_or_else(|| cut(symbol).to_owned())
}

fn of_rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok()?;
    Some(out.0)
}

fn of_cpp(symbol: &str) -> Option<String> {
    // Both bound how deep a name may nest.
    let name = Symbol::new(symbol).ok()?;
    let mut out = Bounded::default();
    name.structured_demangle(&mut out, &DemangleOptions::default()).ok()?;
    Some(out.0)
}

/// A text up to as many bytes as a name has at most.
pub fn cut(symbol: &str) -> &str {
    &symbol[..symbol.floor_char_boundary(MOST)]
}

/// Text up to [`MOST`] bytes; more is an error.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MOST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(readable("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(readable("_ZN3foo"), "_ZN3foo", "what is none stays");
    }

    /// Each argument is a pair of the one before: the last stands for 2^35 words.
    #[test]
    fn a_name_that_stands_for_gigabytes_is_shown_as_it_is() {
        let pairs = ('0'..='9').chain('A'..='Y').map(|number| format!("S_IS{number}_S{number}_E"));
        let symbol: String = std::iter::once("_Z1fSt4pairIiiE".to_owned()).chain(pairs).collect();
        assert_eq!(readable(&symbol), symbol);
        let short = readable("_Z1fSt4pairIiiES_IS0_S0_E");
        assert_eq!(short, "f(std::pair<int, int>, std::pair<std::pair<int, int>, std::pair<int, int> >)");
    }

    #[test]
    fn a_name_without_end_is_cut() {
        assert_eq!(readable(&"a".repeat(1 << 20)).len(), MOST);
        assert_eq!(readable(&"ä".repeat(1 << 20)).len(), MOST);
        let nested = format!("_Z1f{}i", "P".repeat(4000));
        assert!(readable(&nested).len() <= MOST);
    }
}
