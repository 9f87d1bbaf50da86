//! JSON in which no text of another process's can steer a terminal. That holds for the text as it is, and after a
//! program such as `jq -r` has taken it out of its quotes.

use super::failure::Failure;
use super::output::printable;
use serde::{Serialize, Serializer};
use std::path::Path;

/// On one line, without its end.
pub fn line(value: &impl Serialize) -> Result<String, Failure> {
    plain(serde_json::to_string(value))
}

/// Over several lines, with the last one's end.
pub fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    plain(serde_json::to_string_pretty(value)).map(|text| text + "\n")
}

/// A path in JSON, which is text: what of a name is no UTF-8 is replaced. Serde refuses such a path.
pub fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// With what could steer a terminal replaced in texts; a line's end stays `\n`.
fn plain(written: serde_json::Result<String>) -> Result<String, Failure> {
    let text = written.map_err(|error| Failure::of_weir(format!("cannot write JSON: {error}")))?;
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match if c == '\\' { chars.next() } else { None } {
            // Control characters alone are written so, as `\u001b`.
            Some('u') => {
                chars.by_ref().take(4).for_each(drop);
                out.push('?');
            }
            Some('b' | 'f' | 'r' | 't') => out.push('?'),
            Some(escaped) => out.extend([c, escaped]),
            None => out.push(c),
        }
    }
    Ok(printable(&out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_text_cannot_steer_the_terminal_and_all_else_is_as_ever() {
        let hostile =
            "\"a\\\n\t\r\u{8}\u{c}\u{1b}[31m\u{7f}\u{9b}31m\u{202e}gnp.exe\u{2066}\u{61c}é\u{1f980}\\t\\u0041";
        let value = BTreeMap::from([(hostile, vec![1, 2]), ("b", Vec::new())]);
        for text in [line(&value).unwrap(), pretty(&value).unwrap()] {
            let read: BTreeMap<String, Vec<u8>> = serde_json::from_str(&text).unwrap();
            let name = "\"a\\\n?????[31m??31m?gnp.exe??é\u{1f980}\\t\\u0041";
            assert_eq!(read.keys().collect::<Vec<_>>(), [name, "b"], "{text}");
        }
        assert_eq!(pretty(&vec![1]).unwrap(), serde_json::to_string_pretty(&vec![1]).unwrap() + "\n");
        assert_eq!(line(&value["b"]).unwrap(), "[]");
    }
}
