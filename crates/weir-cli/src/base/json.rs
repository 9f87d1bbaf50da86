//! JSON in which no text of another process's can steer a terminal, neither as it is nor when a program such as `jq -r`
//! has taken it out of its quotes.

use super::failure::Failure;
use super::output::printable;
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{Result, Write};

/// On one line, without its end.
pub fn line(value: &impl Serialize) -> std::result::Result<String, Failure> {
    written(value, CompactFormatter)
}

/// Over several lines, with the last one's end.
pub fn pretty(value: &impl Serialize) -> std::result::Result<String, Failure> {
    written(value, PrettyFormatter::new()).map(|text| text + "\n")
}

fn written(value: &impl Serialize, form: impl Formatter) -> std::result::Result<String, Failure> {
    let mut bytes = Vec::new();
    let done = value.serialize(&mut Serializer::with_formatter(&mut bytes, Plain(form)));
    done.map_err(|error| Failure::of_weir(format!("cannot write JSON: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Of that form, with what could steer a terminal replaced in texts; a line's end is written as `\n`.
struct Plain<F>(F);

/// Calls that are handed on.
macro_rules! handed_on {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, to: &mut W $(, $argument: $kind)*) -> Result<()> {
            self.0.$name(to $(, $argument)*)
        })*
    };
}

impl<F: Formatter> Formatter for Plain<F> {
    handed_on! {
        begin_array();
        end_array();
        begin_array_value(is_first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(is_first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, text: &str) -> Result<()> {
        to.write_all(printable(text).as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, to: &mut W, escape: CharEscape) -> Result<()> {
        use CharEscape::{AsciiControl, Backspace, CarriageReturn, FormFeed, Tab};
        match escape {
            AsciiControl(_) | Backspace | CarriageReturn | FormFeed | Tab => to.write_all(b"?"),
            other => self.0.write_char_escape(to, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_text_cannot_steer_the_terminal_and_all_else_is_as_ever() {
        let hostile = "\"a\\\n\t\r\u{8}\u{c}\u{1b}[31m\u{7f}\u{9b}31m\u{202e}gnp.exe\u{2066}\u{61c}é\u{1f980}";
        let value = BTreeMap::from([(hostile, vec![1, 2]), ("b", Vec::new())]);
        for text in [line(&value).unwrap(), pretty(&value).unwrap()] {
            let read: BTreeMap<String, Vec<u8>> = serde_json::from_str(&text).unwrap();
            let name = "\"a\\\n?????[31m??31m?gnp.exe??é\u{1f980}";
            assert_eq!(read.keys().collect::<Vec<_>>(), [name, "b"], "{text}");
        }
        assert_eq!(pretty(&vec![1]).unwrap(), serde_json::to_string_pretty(&vec![1]).unwrap() + "\n");
        assert_eq!(line(&value["b"]).unwrap(), "[]");
    }
}
